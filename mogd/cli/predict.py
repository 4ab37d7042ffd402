"""`mogd predict` and `disambiguate`: from a model to labels of new rows and to resolved labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mogd.cli import app
from mogd.cli.guarantee import (
    AsJson,
    Coverage,
    Risk,
    abstaining,
    calibration_of,
    guaranteed,
    mark_rows,
    sentence,
    together,
)
from mogd.cli.reading import TABLE, WRITTEN
from mogd.cli.scoring import Encoding, ImageFolder, SavedModel, TextModel, score_parts
from mogd.cli.targets import Force, check_free


@app.command()
def predict(
    model: SavedModel,
    table: Annotated[Path, typer.Argument(help=f"The rows to label: {TABLE}")],
    out: Annotated[Path, typer.Option(help=f"Where to write id (or row), label and confidence: {WRITTEN}")],
    images: ImageFolder = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add a column for each class.")] = False,
    text_model: TextModel = None,
    encoding: Encoding = None,
    coverage: Coverage = None,
    risk: Risk = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Label the rows of a table by a saved model."""
    import numpy as np
    import polars as pl

    from mogd.datasets.folders import ImageEncoder
    from mogd.datasets.frames import as_frame, check_target, write_frame
    from mogd.datasets.rows import row_ids
    from mogd.saving import id_name

    check_target(out)
    check_free(out, force)
    name = id_name(model)
    written: list[pl.DataFrame] = []
    top: list[np.ndarray] = []
    parts: list[dict[str, Any]] = []
    for fitted, encoder, frame, proba in score_parts(model, table, images, text_model, encoding):
        known = name if name in frame.columns else None
        ids = row_ids(frame, known)
        columns: dict[str, Any] = {known or "row": ids if known else ids + sum(part.height for part in written)}
        if isinstance(encoder, ImageEncoder) and known != encoder.column:
            columns["file"] = frame[encoder.column].to_list()
        columns |= {"label": fitted.classes_[proba.argmax(axis=1)], "confidence": proba.max(axis=1)}
        columns, found = guaranteed(fitted, proba, columns, coverage)
        judge = None if risk is None else calibration_of(fitted, "--risk")
        top.append(proba.max(axis=1))
        if probabilities:
            columns |= {f"p({label})": proba[:, k] for k, label in enumerate(fitted.classes_.tolist())}
        written.append(as_frame(columns))
        parts.append(found)
    labelled, figures = pl.concat(written, how="vertical_relaxed"), together(parts)
    if risk is not None and judge is not None:
        labelled, abstained = abstaining(judge, labelled, np.concatenate(top), risk)
        figures |= abstained
    write_frame(out, labelled)
    _report(sentence(figures), out, figures if as_json else None)


@app.command()
def disambiguate(
    model: SavedModel,
    out: Annotated[Path, typer.Option(help=f"Where to write the resolved labels: {WRITTEN}")],
    form: Annotated[
        str | None, typer.Option("--format", help="Write them back for label-studio, argilla or prodigy.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="With --format: the export that the model was fitted on.")
    ] = None,
    question: Annotated[
        str | None, typer.Option(help="With --format: of an export with several questions, the one that was learned.")
    ] = None,
    coverage: Annotated[float, typer.Option(help="How sure a row must be to need no look, if calibrated.")] = 0.9,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write what every training row was resolved to, in the order of the table.

    The columns are the row's id (under the name it had, or `row`, its number from 0), label, confidence, runner_up,
    runner_up_confidence, clean and look (whether a person should look at the row).
    """
    import polars as pl

    from mogd.datasets.frames import as_frame, check_target, write_frame
    from mogd.saving import id_name

    check_target(out)
    check_free(out, force)
    back = form is not None or source is not None
    name = "id" if back else id_name(model) or "row"
    parts = ({name if key == "id" else key: v for key, v in part.items()} for part in mark_rows(model, coverage))
    resolved = pl.concat([as_frame(part) for part in parts], how="vertical_relaxed")
    figures = {"rows": resolved.height, "look": int(resolved["look"].sum())}
    if back:
        from mogd.cli.exports import write_back

        said = write_back({column.name: column.to_numpy() for column in resolved}, form, source, question, out)
    else:
        write_frame(out, resolved)
        said = f"{figures['rows']} rows resolved, {figures['look']} of them worth a look (column `look`)"
    _report(said, out, figures if as_json else None)


def _report(what: str, out: Path, figures: dict[str, Any] | None = None) -> None:
    """What was written, or its figures as JSON, on the standard output unless the rows themselves went there."""
    to_standard = str(out) == "-"
    said = what if to_standard else f"{what}: {out}"
    typer.echo(said if figures is None else json.dumps(figures | {"out": str(out)}), err=to_standard)
