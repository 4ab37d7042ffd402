"""`mogd fit`, `predict` and `disambiguate`: from a table to a model, to labels of new rows, to resolved labels."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mogd.algorithms import ALGORITHMS, AUTO, check_name
from mogd.cli import app
from mogd.cli.fit_summary import BUDGET
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
from mogd.cli.reading import TABLE, WRITTEN, Reading, reads_table
from mogd.cli.scoring import Encoding, ImageFolder, SavedModel, TextModel, score_parts
from mogd.cli.targets import Force, check_free

if TYPE_CHECKING:
    import numpy as np

    from mogd.choice import Comparison as Estimates
    from mogd.comparison import Comparison
    from mogd.datasets.tables import TableDataset
    from mogd.estimator import PartialLabelEstimator

MethodName = Annotated[str, typer.Option(help="`mogd methods` lists them.")]
MethodOrAuto = Annotated[
    str | None,
    typer.Option(
        help="`mogd methods` lists them; auto compares a few on the rows. Tables are compared without --method, "
        "--backbone and --param; otherwise it is mogd."
    ),
]
OtherParams = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other parameter (repeat).")]


@app.command()
@reads_table
def fit(
    reading: Reading,
    out: Annotated[Path, typer.Option(help="The folder to save the model as.")],
    method: MethodOrAuto = None,
    backbone: Annotated[
        str | None, typer.Option(help="Network of a deep method: linear, rbf, mlp, …; auto compares them.")
    ] = None,
    budget: Annotated[
        float, typer.Option(help="Of a comparison: seconds after which no further method is begun.")
    ] = BUDGET,
    epochs: Annotated[int | None, typer.Option(help="Passes over the rows of a deep method.")] = None,
    scale: Annotated[
        str | None, typer.Option(help="Features: standard (default), minmax or none; compared methods have their own.")
    ] = None,
    param: OtherParams = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    keep_rows: Annotated[bool, typer.Option("--keep-rows", help="Save even a model that holds training rows.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a saved model that is there.")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="For `predict --coverage`: fit five times more, clean rows held out.")
    ] = False,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Save the state of training there after every epoch.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint of --checkpoint.")] = False,
    compare: Annotated[
        bool | None,
        typer.Option(
            "--compare/--no-compare",
            help="Judge by the clean rows, beside majority vote and Dawid–Skene; by default for tables of votes. "
            "--no-compare compares nothing at all.",
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Learn from a table whose rows carry candidate labels, and save the model."""
    from mogd.cli.fit_summary import Tried, choose
    from mogd.cli.ranks import joined
    from mogd.modelfolder import saved_here
    from mogd.saving import check_saving

    silent = quiet or as_json

    def build(name: str) -> PartialLabelEstimator:
        return _estimator(name, backbone, epochs, scale or "standard", param or [], seed, silent)

    own_settings = bool(backbone or param or checkpoint or resume)
    if method == AUTO and own_settings:
        raise ValueError(
            "--method auto chooses the model and its settings: leave out --backbone, --param, --checkpoint"
        )
    if method is None:
        compared = compare is not False and not own_settings and reading.given["images"] is None
        method = AUTO if compared else "mogd"
    first = build("mogd" if method == AUTO else method)
    if checkpoint is not None or resume:
        _add_checkpoint(first, method, checkpoint, resume)
    check_saving(first, out, allow_rows=keep_rows, overwrite=force)
    replaced = saved_here(out)
    data = learnable(method, reading)
    clean: dict[str, Any] = {"X_val": none_if_empty(data.clean_X), "y_val": none_if_empty(data.clean_y)}
    if calibrate and clean["y_val"] is None:
        raise ValueError("--calibrate needs clean rows: name them by --clean COL or --clean FILE")
    clean["candidates_val"] = data.clean_candidates if clean["y_val"] is not None else None
    with joined() as is_first, notes(), _interrupts():
        tried = None
        if method == AUTO:
            tried = Tried(
                allow_rows=keep_rows, scale=scale, epochs=epochs, budget=budget, seed=seed, verbose=0 if silent else 1
            )
        used, model, comparison, estimates = choose(method, data, build, compare, tried)
        if checkpoint is not None or resume:
            _add_checkpoint(model, used, checkpoint, resume)
        model.fit(data.X, data.candidates, **clean)
        if estimates is not None:
            model.config_ = getattr(model, "config_", {}) | {"choice": estimates.as_dict()}
        if calibrate:
            _calibrate(model, data, clean)
    if is_first:
        _save(model, out, data=data, allow_rows=keep_rows, overwrite=force)
        _summary(data, model, out, replaced, used, comparison, estimates, as_json)


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
    from mogd.datasets.frames import check_target, write_frame
    from mogd.saving import id_name, load_resolved

    check_target(out)
    check_free(out, force)
    columns, unsure = mark_rows(model, load_resolved(model), coverage)
    figures = {"rows": len(columns["label"]), "look": unsure}
    if form is not None or source is not None:
        from mogd.cli.exports import write_back

        said = write_back(columns, form, source, question, out)
    else:
        write_frame(out, {(id_name(model) or "row") if key == "id" else key: value for key, value in columns.items()})
        said = f"{figures['rows']} rows resolved, {unsure} of them worth a look (column `look`)"
    _report(said, out, figures if as_json else None)


def _estimator(
    method: str, backbone: str | None, epochs: int | None, scale: str, param: list[str], seed: int, quiet: bool
) -> PartialLabelEstimator:
    from mogd.algorithms import make

    check_name(method, "--method")
    deep = ALGORITHMS[method].is_deep
    given: dict[str, Any] = {"backbone": backbone, "epochs": epochs}
    params = {key: value for key, value in given.items() if value is not None}
    if params and not deep:
        raise ValueError(f"--{next(iter(params))} is for deep methods; {method} is a classical one")
    params |= {"scale": None if scale == "none" else scale} | dict(read_param(text) for text in param)
    return make(method, **params, random_state=seed, **({"verbose": 0 if quiet else 1} if deep else {}))


def _add_checkpoint(model: Any, method: str, folder: Path | None, resume: bool) -> None:
    if folder is None:
        raise ValueError("--resume goes on from a checkpoint: name its folder by --checkpoint FOLDER")
    if not ALGORITHMS[method].is_deep:
        raise ValueError(f"--checkpoint is for deep methods; {method} is a classical one, which has no epochs")
    from mogd.callbacks.checkpoint import Checkpoint, check_folder

    check_folder(folder, resume=resume)
    wanted = [model.callbacks] if isinstance(model.callbacks, str) else model.callbacks
    model.set_params(callbacks=[*wanted, Checkpoint(folder, resume=resume)])


@contextmanager
def _interrupts() -> Iterator[None]:
    """What a run that Ctrl-C ended says of how to go on, and the shell's own code for it."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        typer.secho(f"mogd: {interrupt or 'interrupted'}", err=True, fg=typer.colors.RED)
        raise typer.Exit(130) from None


def _calibrate(model: PartialLabelEstimator, data: TableDataset, clean: dict[str, Any]) -> None:
    """Calibrate by further fits without the checkpoint, which belongs to the fit on all rows."""
    from mogd.conformal import cross_calibrate

    own = {"callbacks": model.callbacks} if hasattr(model, "callbacks") else {}
    if isinstance(own.get("callbacks"), list):
        model.set_params(callbacks=[c for c in own["callbacks"] if not getattr(c, "observer", False)])
    cross_calibrate(model, data.X, data.candidates, **clean)
    model.set_params(**own)


def read_param(text: str) -> tuple[str, Any]:
    """`lr=0.1` as a name and a value: what JSON reads, or else the text itself."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--param must be NAME=VALUE, such as lr=0.1; got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, {"None": None, "True": True, "False": False}.get(value, value)


def none_if_empty(values: np.ndarray | None) -> np.ndarray | None:
    return values if values is not None and len(values) else None


@contextmanager
def notes() -> Iterator[None]:
    """What the library warns of, as a line each and once, before an error too, which it may explain.

    Which rows are taken to be clean, the shell says itself.
    """
    from mogd.estimator import AssumedCleanWarning

    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", AssumedCleanWarning)
            warnings.simplefilter("ignore", DeprecationWarning)  # of a library's own parts: nothing a user can mend
            yield
    finally:
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            _note(text)


def _report(what: str, out: Path, figures: dict[str, Any] | None = None) -> None:
    """What was written, or its figures as JSON, on the standard output unless the rows themselves went there."""
    to_standard = str(out) == "-"
    said = what if to_standard else f"{what}: {out}"
    typer.echo(said if figures is None else json.dumps(figures | {"out": str(out)}), err=to_standard)


def _note(text: str) -> None:
    typer.secho(f"note: {text}", err=True, fg=typer.colors.YELLOW)


def learnable(method: str, reading: Reading) -> TableDataset:
    """The table as `read_table` reads it, once the method can learn from it; what is worth knowing comes as notes."""
    from mogd.datasets.tables import read_table

    with notes():
        data = read_table(reading.table, **reading.options())
    _check_learnable(data, method)
    return data


def _check_learnable(data: TableDataset, method: str) -> None:
    import numpy as np

    for X in (data.X, data.clean_X):
        if X is not None and np.isnan(X).any():
            raise ValueError(
                "missing cells cannot be learned from: fill them with --impute median, or --ignore the columns"
            )
    if len(data.classes) < 2:
        raise ValueError(f"there is only one label, {data.classes.tolist()[0]!r}, so there is nothing to tell apart")
    needs_clean = method != AUTO and ALGORITHMS[method].needs_clean_set
    if not needs_clean or none_if_empty(data.clean_y) is not None:
        return
    n_single = int((data.candidates.sizes == 1).sum())
    if n_single:
        _note(f"no clean rows were named, so the {n_single} rows with one candidate are taken to be sure")
    else:
        others = ", ".join(a.name for a in ALGORITHMS.values() if not (a.needs_clean_set or a.needs_labels))
        raise ValueError(
            f"{method} needs rows whose label is known for sure: name them by --clean COL or --clean FILE, or choose a "
            f"--method that needs none ({others})"
        )


def _save(model: PartialLabelEstimator, out: Path, **how: Any) -> None:
    """Save the model; where that fails, in the cache folder, since the time of training would be lost."""
    from time import strftime

    from mogd.datasets.sources import cache_folder
    from mogd.saving import save

    try:
        save(model, out, **how)
    except OSError as error:
        rescued = cache_folder() / "rescued" / f"{out.name}-{strftime('%Y%m%d-%H%M%S')}"
        try:
            save(model, rescued, **how)
        except OSError:
            raise error from None
        raise OSError(
            f"{out} could not be written ({error.strerror or error}); the trained model is saved as {rescued}: move it "
            "to its place"
        ) from None


def _summary(
    data: TableDataset,
    model: PartialLabelEstimator,
    out: Path,
    replaced: str | None,
    used: str,
    comparison: Comparison | None,
    estimates: Estimates | None,
    as_json: bool,
) -> None:
    from rich.console import Console
    from rich.table import Table

    from mogd.cli.fit_summary import callback_settings, comparison_rows, covering_warning, estimate_rows, source_rows

    facts = data.describe()
    n_clean = 0 if data.clean_y is None else len(data.clean_y)
    covering = model.score(data.X, data.candidates)
    if as_json:
        figures = {"covering_rate": covering, "mean_confidence": float(model.disambiguate().confidence.mean())}
        chosen = {"method": used, "config": getattr(model, "config_", None)}
        typer.echo(json.dumps({**facts, "n_clean": n_clean, **figures, **chosen, "model": str(out)}, indent=2))
        return
    table = Table(show_header=False, box=None)
    table.add_row("rows", f"{facts['n_rows']} with candidates, {n_clean} clean")
    table.add_row("features", str(facts["n_features"]))
    table.add_row("classes", str(facts["n_classes"]))
    backbone = getattr(model, "backbone_", None)
    table.add_row("method", f"{used}, {backbone}" if isinstance(backbone, str) else used)
    for name, said in estimate_rows(estimates) if estimates else []:
        table.add_row(name, said)
    config = getattr(model, "config_", {})
    if "callbacks" in config:
        table.add_row("callbacks", callback_settings(config))
    table.add_row("average candidates", f"{facts['average_candidates']:.2f}")
    table.add_row("covering rate", f"{covering:.3f} of the predictions lie in the row's candidate set")
    table.add_row("mean confidence", f"{model.disambiguate().confidence.mean():.3f}")
    advice = model.clean_set_advice() if hasattr(model, "clean_set_advice") else None
    if advice is not None:
        table.add_row("meta step", str(advice))
    for name, said in [*source_rows(model), *(comparison_rows(used, comparison) if comparison else [])]:
        table.add_row(name, said)
    table.add_row("model", str(out) if replaced is None else f"{out}, in place of the one that was there ({replaced})")
    Console().print(table)
    if warning := covering_warning(covering, facts["average_candidates"], facts["n_classes"]):
        typer.secho(f"warning: {warning}", err=True, fg=typer.colors.RED)
    typer.echo(f"next: mogd disambiguate {out} --out resolved.csv; mogd predict {out} NEW_TABLE --out labels.csv")
