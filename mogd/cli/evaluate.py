"""`mogd evaluate` and `mogd calibrate`: what a saved model is worth on rows whose true label is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mogd.cli import app
from mogd.cli.guarantee import AsJson
from mogd.cli.scoring import Encoding, ImageFolder, SavedModel, TextModel, score_table

if TYPE_CHECKING:
    from mogd.evaluation import Evaluation

LabelledTable = Annotated[Path, typer.Argument(help="Rows with their true labels, none of them trained on.")]
TrueLabels = Annotated[str, typer.Option(help="Column of true labels; rows where it is empty are left out.")]
MOST_CLASSES = 12  # a table of confusion with more columns than this is a list of the most frequent mistakes instead


@app.command()
def evaluate(
    model: SavedModel,
    table: LabelledTable,
    truth: TrueLabels,
    images: ImageFolder = None,
    text_model: TextModel = None,
    encoding: Encoding = None,
    coverage: Annotated[float, typer.Option(help="Of prediction sets, where the model is calibrated.")] = 0.9,
    as_json: AsJson = False,
) -> None:
    """Measure a saved model: accuracy with its interval, per class, confusion and calibration."""
    from mogd.evaluation import evaluate as measure

    fitted, _, frame, proba = score_table(model, table, images, text_model, encoding)
    calibration = getattr(fitted, "calibration_", None)
    found = measure(proba, _labels(frame, truth), fitted.classes_, calibration, coverage=coverage)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2))
        return
    _show(found)


@app.command()
def calibrate(
    model: SavedModel,
    table: LabelledTable,
    truth: TrueLabels,
    images: ImageFolder = None,
    text_model: TextModel = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Calibrate a saved model on clean rows that it did not train on, for `predict --coverage` and `--risk`."""
    from mogd.candidates import as_labels
    from mogd.conformal import Calibration
    from mogd.saving import save_calibration

    fitted, _, frame, proba = score_table(model, table, images, text_model, encoding)
    labels = _labels(frame, truth)
    rows = [i for i, label in enumerate(labels) if label is not None]
    if not rows:
        raise ValueError(f"column {truth!r} of {table} is empty: it must hold the true labels")
    by_name = {str(label): label for label in fitted.classes_.tolist()}
    y = [by_name.get(str(labels[i]), labels[i]) for i in rows]
    found = Calibration.of(proba[rows], as_labels(y, fitted.classes_, name="y"))
    save_calibration(model, found)
    figures = {"rows": len(found), "temperature": found.temperature, "model": str(model)}
    said = f"calibrated on {len(found)} rows, temperature {found.temperature:.2f}: {model}"
    typer.echo(json.dumps(figures) if as_json else said)


def _labels(frame: Any, column: str) -> list[Any]:
    from mogd.datasets.frames import need
    from mogd.datasets.labelsets import column_labels

    need(frame, column, "--truth")
    return column_labels(frame[column])


def _show(found: Evaluation) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    console = Console()
    facts = Table(show_header=False, box=None)
    facts.add_row("accuracy", str(found.accuracy))
    facts.add_row("calibration error", f"{100 * found.calibration_error:.1f} points between confidence and accuracy")
    facts.add_row("log loss", f"{found.log_loss:.3f}")
    if found.sets is not None:
        asked, covered, size = (found.sets[key] for key in ("coverage", "covered", "labels"))
        facts.add_row(f"{100 * asked:g} % sets", f"hold the truth in {100 * covered:.1f} %, {size:.2f} labels a set")
    if found.n_unknown:
        facts.add_row("unknown labels", f"{found.n_unknown} rows, counted as wrong")
    console.print(facts)
    classes = Table("class", "rows", "recall, %", "precision, %", box=SIMPLE)
    for row in found.per_class():
        shares = ["–" if row[key] is None else f"{100 * row[key]:.1f}" for key in ("recall", "precision")]
        classes.add_row(str(row["label"]), str(row["rows"]), *shares)
    console.print(classes)
    if len(found.classes) <= MOST_CLASSES:
        confusion = Table("true \\ predicted", *map(str, found.classes), box=SIMPLE)
        for label, row in zip(found.classes, found.counts.tolist(), strict=True):
            confusion.add_row(str(label), *map(str, row))
        console.print(confusion)
        return
    mistakes = Table("true", "predicted", "rows", box=SIMPLE, title="most frequent mistakes")
    for true, predicted, count in found.confusions():
        mistakes.add_row(str(true), str(predicted), str(count))
    console.print(mistakes)
