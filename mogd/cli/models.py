"""`mogd fit`, `predict` and `disambiguate`: from a table to a model, to labels of new rows, to resolved labels."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mogd.algorithms import ALGORITHMS, check_name
from mogd.cli import app
from mogd.cli.guarantee import AsJson, Coverage, Risk, guaranteed, mark_rows, sentence

if TYPE_CHECKING:
    import numpy as np

    from mogd.datasets.tables import TableDataset
    from mogd.estimator import PartialLabelEstimator

Columns = list[str]
TABLE = "CSV, TSV, Parquet or Feather, by its ending."

# how a table is read: options that several commands share
TableToLearn = Annotated[Path, typer.Argument(help=f"The rows to learn from: {TABLE}")]
CandidateColumn = Annotated[str, typer.Option(help="Column of candidate sets: a|b, a JSON list or an Arrow list.")]
AnnotatorColumns = Annotated[
    Columns | None, typer.Option(help="Instead: columns of one annotator each (repeat, or a,b,c).")
]
VotesFile = Annotated[Path | None, typer.Option(help="Instead: a table with the columns task, worker, label.")]
CleanRows = Annotated[str | None, typer.Option(metavar="FILE|COL", help="Labels known for sure: a column, or a table.")]
IdColumn = Annotated[str | None, typer.Option(help="Column that names the rows; by default `id`, or the row's number.")]
IgnoredColumns = Annotated[Columns | None, typer.Option(help="Columns that are no features (repeat, or a,b,c).")]
Impute = Annotated[str | None, typer.Option(help="Fill missing cells: median, mean or most_frequent.")]
MethodName = Annotated[str, typer.Option(help="`mogd methods` lists them.")]
OtherParams = Annotated[Columns | None, typer.Option(metavar="NAME=VALUE", help="Any other parameter (repeat).")]


@app.command()
def fit(
    table: TableToLearn,
    out: Annotated[Path, typer.Option(help="The folder to save the model as.")],
    candidates: CandidateColumn = "labels",
    annotators: AnnotatorColumns = None,
    votes: VotesFile = None,
    clean: CleanRows = None,
    clean_label: Annotated[str | None, typer.Option(help="Column of the clean table that holds the label.")] = None,
    id: IdColumn = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the pictures that the table names.")] = None,
    image_column: Annotated[str, typer.Option(help="Column with the file names of the pictures.")] = "file",
    size: Annotated[
        str | None, typer.Option(help="Height and width the pictures are brought to, such as 32x32.")
    ] = None,
    ignore: IgnoredColumns = None,
    impute: Impute = None,
    delimiter: Annotated[str | None, typer.Option(help="Between the labels of a set; by default | or ; or ,")] = None,
    empty: Annotated[
        str, typer.Option(help="Rows without a candidate: error, drop, or all (give them all labels).")
    ] = "error",
    method: MethodName = "mogd",
    backbone: Annotated[str | None, typer.Option(help="Network of a deep method: linear, mlp, …")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the rows of a deep method.")] = None,
    scale: Annotated[str, typer.Option(help="Features: standard, minmax or none.")] = "standard",
    param: OtherParams = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    keep_rows: Annotated[bool, typer.Option("--keep-rows", help="Save even a model that holds training rows.")] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="For `predict --coverage`: fit five times more, clean rows held out.")
    ] = False,
    as_json: AsJson = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
) -> None:
    """Learn from a table whose rows carry candidate labels, and save the model."""
    from mogd.saving import check_saving, save

    model = _estimator(method, backbone, epochs, scale, param or [], seed, quiet or as_json)
    check_saving(model, out, allow_rows=keep_rows)
    data = learnable(
        method,
        table,
        candidates,
        annotators=names(annotators),
        votes=votes,
        id=id,
        clean=clean,
        clean_label=clean_label,
        images=images,
        image_column=image_column,
        size=_size(size),
        ignore=names(ignore),
        impute=impute,
        delimiter=delimiter,
        empty=empty,
    )
    with notes():
        model.fit(data.X, data.candidates, X_val=none_if_empty(data.clean_X), y_val=none_if_empty(data.clean_y))
        if calibrate:
            _calibrate(model, data)
    save(model, out, data=data, allow_rows=keep_rows)
    _summary(data, model, out, as_json)


@app.command()
def predict(
    model: Annotated[Path, typer.Argument(help="A folder that `mogd fit` saved.")],
    table: Annotated[Path, typer.Argument(help=f"The rows to label: {TABLE}")],
    out: Annotated[Path, typer.Option(help=f"Where to write id (or row), label and confidence: {TABLE}")],
    images: Annotated[Path | None, typer.Option(help="Folder of the pictures that the table names.")] = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add a column for each class.")] = False,
    coverage: Coverage = None,
    risk: Risk = None,
    as_json: AsJson = False,
) -> None:
    """Label the rows of a table by a saved model."""
    from mogd.datasets.frames import check_ending, read_frame, write_frame
    from mogd.datasets.tables import row_ids
    from mogd.saving import id_name, load, load_encoder

    check_ending(out)
    fitted, encoder, name = load(model), load_encoder(model, images), id_name(model)
    frame = read_frame(table)
    with notes():
        X = encoder.transform(frame)
    check_missing(encoder.missing_, X, table, "fit the model with --impute median, or fill them")
    proba = fitted.predict_proba(X)
    best = proba.argmax(axis=1)
    known = name if name in frame.columns else None
    columns: dict[str, Any] = {known or "row": row_ids(frame, known)}
    columns |= {"label": fitted.classes_[best], "confidence": proba.max(axis=1)}
    columns, figures = guaranteed(fitted, proba, columns, coverage, risk)
    if probabilities:
        columns |= {f"p({label})": proba[:, k] for k, label in enumerate(fitted.classes_.tolist())}
    write_frame(out, columns)
    typer.echo(json.dumps(figures | {"out": str(out)}) if as_json else f"{sentence(figures)}: {out}")


@app.command()
def disambiguate(
    model: Annotated[Path, typer.Argument(help="A folder that `mogd fit` saved.")],
    out: Annotated[Path, typer.Option(help=f"Where to write the resolved labels: {TABLE}")],
    coverage: Annotated[float, typer.Option(help="How sure a row must be to need no look, if calibrated.")] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Write what every training row was resolved to, in the order of the table.

    The columns are the row's id (under the name it had, or `row`, its number from 0), label, confidence, runner_up,
    runner_up_confidence, clean and look (whether a person should look at the row).
    """
    from mogd.datasets.frames import write_frame
    from mogd.saving import id_name, load_resolved

    columns, unsure = mark_rows(model, load_resolved(model), coverage)
    write_frame(out, {(id_name(model) or "row") if key == "id" else key: value for key, value in columns.items()})
    figures = {"rows": len(columns["label"]), "look": unsure, "out": str(out)}
    said = f"{figures['rows']} rows resolved, {unsure} of them worth a look (column `look`): {out}"
    typer.echo(json.dumps(figures) if as_json else said)


def _estimator(
    method: str, backbone: str | None, epochs: int | None, scale: str, param: list[str], seed: int, quiet: bool
) -> PartialLabelEstimator:
    from mogd.algorithms import make

    check_name(method, "--method")
    deep = method == "mogd-paper" or ALGORITHMS[method].kind == "deep"
    given: dict[str, Any] = {"backbone": backbone, "epochs": epochs}
    params = {key: value for key, value in given.items() if value is not None}
    if params and not deep:
        raise ValueError(f"--{next(iter(params))} is for deep methods; {method} is a classical one")
    params |= {"scale": None if scale == "none" else scale} | dict(read_param(text) for text in param)
    if deep:
        return make(method, **params, random_state=seed, verbose=0 if quiet else 1)
    own = signature(ALGORITHMS[method].load()).parameters
    return make(method, **params, **({"random_state": seed} if "random_state" in own else {}))


def _calibrate(model: PartialLabelEstimator, data: TableDataset) -> None:
    from mogd.conformal import cross_calibrate

    if none_if_empty(data.clean_y) is None:
        raise ValueError("--calibrate needs clean rows: name them by --clean COL or --clean FILE")
    cross_calibrate(model, data.X, data.candidates, data.clean_X, data.clean_y)


def read_param(text: str) -> tuple[str, Any]:
    """`lr=0.1` as a name and a value: what JSON reads, or else the text itself."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--param must be NAME=VALUE, such as lr=0.1; got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, {"None": None, "True": True, "False": False}.get(value, value)


def names(given: list[str] | None) -> list[str]:
    return [name.strip() for text in given or [] for name in text.split(",") if name.strip()]


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.lower().partition("x")
    if not (height.isdigit() and width.isdigit() and int(height) and int(width)):
        raise ValueError(f"--size must be HEIGHTxWIDTH, such as 32x32; got {text!r}")
    return int(height), int(width)


def none_if_empty(values: np.ndarray | None) -> np.ndarray | None:
    return values if values is not None and len(values) else None


@contextmanager
def notes() -> Iterator[None]:
    """What the library warns of, as a line each and once; which rows are taken to be clean, the shell says itself."""
    from mogd.estimator import AssumedCleanWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", AssumedCleanWarning)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in caught):
        _note(text)


def _note(text: str) -> None:
    typer.secho(f"note: {text}", err=True, fg=typer.colors.YELLOW)


def check_missing(missing: Any, X: np.ndarray, table: Path, way_out: str) -> None:
    """Refuse rows with missing cells; `way_out` says what to do about them."""
    import numpy as np

    if missing and X.dtype.kind == "f" and np.isnan(X).any():
        counts = ", ".join(f"{name}: {count}" for name, count in missing.items())
        raise ValueError(f"{table} has missing cells ({counts}): {way_out}")


def learnable(method: str, table: Path, candidates: str, **how: Any) -> TableDataset:
    """The table as `read_table` reads it, once the method can learn from it; what is worth knowing is told as notes."""
    from mogd.datasets.tables import read_table

    with notes():
        data = read_table(table, candidates, **how)
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
    needs_clean = method == "mogd-paper" or ALGORITHMS[method].needs_clean_set
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


def _summary(data: TableDataset, model: PartialLabelEstimator, out: Path, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    facts = data.describe()
    n_clean = 0 if data.clean_y is None else len(data.clean_y)
    covering = model.score(data.X, data.candidates)
    if as_json:
        figures = {"covering_rate": covering, "mean_confidence": float(model.disambiguate().confidence.mean())}
        typer.echo(json.dumps({**facts, "n_clean": n_clean, **figures, "model": str(out)}, indent=2))
        return
    table = Table(show_header=False, box=None)
    table.add_row("rows", f"{facts['n_rows']} with candidates, {n_clean} clean")
    table.add_row("features", str(facts["n_features"]))
    table.add_row("classes", str(facts["n_classes"]))
    table.add_row("average candidates", f"{facts['average_candidates']:.2f}")
    table.add_row("covering rate", f"{covering:.3f} of the predictions lie in the row's candidate set")
    table.add_row("mean confidence", f"{model.disambiguate().confidence.mean():.3f}")
    advice = model.clean_set_advice() if hasattr(model, "clean_set_advice") else None
    if advice is not None:
        table.add_row("clean rows", str(advice))
    table.add_row("model", str(out))
    Console().print(table)
    typer.echo(f"next: mogd disambiguate {out} --out resolved.csv; mogd predict {out} NEW_TABLE --out labels.csv")
