"""`mogd next`: which rows to label next, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mogd.cli import app
from mogd.cli.label import (
    AnnotatorColumns,
    CandidatesToLabel,
    IdColumn,
    IgnoredColumns,
    KnownLabels,
    PictureColumn,
    PictureFolder,
    TextColumn,
    VotesFile,
)
from mogd.cli.reading import WRITTEN, names
from mogd.cli.targets import STANDARD, Force, check_free

if TYPE_CHECKING:
    from mogd.nextrows import NextRows


@app.command("next")
def next_rows(
    source: Annotated[Path, typer.Argument(metavar="MODEL|TABLE", help="A folder that `mogd fit` saved, or a table.")],
    n: Annotated[int, typer.Option("--n", "-n", min=1, help="How many rows.")] = 50,
    table: Annotated[
        Path | None, typer.Option(help="With a model: the table it was fitted on, so that rows are compared.")
    ] = None,
    candidates: CandidatesToLabel = "labels",
    annotators: AnnotatorColumns = None,
    votes: VotesFile = None,
    clean: KnownLabels = None,
    text: TextColumn = None,
    images: PictureFolder = None,
    image_column: PictureColumn = "file",
    id: IdColumn = None,
    ignore: IgnoredColumns = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same rows.")] = 0,
    out: Annotated[Path | None, typer.Option(help=f"Write them here too: {WRITTEN}")] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """Choose the rows whose true label would help most, with the reason for each.

    Of a TABLE they are spread over its classes and clusters. Of a MODEL they are those of which it is uncertain and
    that many others are like.
    """
    from mogd.datasets.frames import check_target, write_frame

    if out is not None:
        check_target(out)
        check_free(out, force)
    if source.is_dir():
        key, ids, found = _of_model(source, table, images, n, seed)
    elif table is not None:
        raise ValueError(f"--table goes with a model; {source} is a table itself")
    else:
        how: dict[str, Any] = {"annotators": names(annotators), "votes": votes, "clean": clean, "id": id, "text": text}
        how |= {"images": images, "image_column": image_column, "ignore": names(ignore)}
        key, ids, found = _of_table(source, candidates, how, n, seed)
    columns = {key: [ids[row] for row in found.row.tolist()], "worth": [_rounded(value) for value in found.worth]}
    columns |= {"reason": found.reason.tolist()}
    if out is not None:
        write_frame(out, columns)
    if as_json:
        rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=1))
    else:
        _print(columns)
        if out is not None and str(out) != STANDARD:
            typer.echo(f"{len(found.row)} rows to label, the most useful first: {out}")


def _of_table(path: Path, candidates: str, how: dict[str, Any], n: int, seed: int) -> tuple[str, list[Any], NextRows]:
    from mogd.labeling.features import features
    from mogd.labeling.known import Known
    from mogd.labeling.rows import read_rows
    from mogd.nextrows import next_to_label

    rows = read_rows(path, candidates, **how)
    known = Known.of(rows, {row: rows.class_names[k] for row, k in rows.known.items()})
    found = next_to_label(features(rows), known.candidates, n=n, labelled=known.done, random_state=seed)
    return rows.id_name or "row", rows.ids.tolist(), found


def _of_model(
    path: Path, table: Path | None, images: Path | None, n: int, seed: int
) -> tuple[str, list[Any], NextRows]:
    import numpy as np

    from mogd.candidates import Candidates
    from mogd.nextrows import next_to_label
    from mogd.saving import id_name, load_resolved

    resolved = load_resolved(path)
    first, second = resolved["label"], resolved["runner_up"]
    classes = sorted({*first.tolist(), *(label for label in second if label is not None)})
    place = {label: k for k, label in enumerate(classes)}
    confidence = np.zeros((len(first), len(classes)))
    for row, (best, other) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        if other is not None:
            confidence[row, place[other]] = resolved["runner_up_confidence"][row]
        confidence[row, place[best]] = resolved["confidence"][row]
    X = None if table is None else _features(path, table, images, resolved["id"])
    sets = Candidates(confidence > 0, np.array(classes))
    found = next_to_label(X, sets, n=n, confidence=confidence, labelled=resolved["clean"], random_state=seed)
    return id_name(path) or "row", resolved["id"].tolist(), found


def _features(model: Path, table: Path, images: Path | None, ids: Any) -> Any:
    """The features of the rows that the model was fitted on, in the order of `ids`."""
    from mogd.datasets.exports import table_of
    from mogd.datasets.frames import read_rows
    from mogd.datasets.rows import row_ids
    from mogd.saving import id_name, load_encoder

    frame = table_of(read_rows(table))
    where = {str(name): row for row, name in enumerate(row_ids(frame, id_name(model)).tolist())}
    absent = [name for name in ids.tolist() if str(name) not in where]
    if absent:
        raise ValueError(f"{table} has no row {absent[0]!r}, which the model was fitted on: give the table of that fit")
    return load_encoder(model, images).transform(frame[[where[str(name)] for name in ids.tolist()]])


def _rounded(worth: float) -> float:
    """One place after the point, or two digits where it is small: 1236.8, 0.062."""
    return round(float(worth), 1) if worth >= 1 else float(f"{worth:.2g}")


def _print(columns: dict[str, list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name == "worth" else "left", overflow="fold")
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(Text(str(cell)) for cell in cells))
    Console().print(table)
