"""What the calibration of a saved model adds to predictions and resolved labels: sets, abstention, rows to look at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from mogd.conformal import Calibration

Coverage = Annotated[
    float | None, typer.Option(help="Add the labels that hold the truth with this probability, such as 0.9.")
]
Risk = Annotated[float | None, typer.Option(help="Leave the label empty where more than this share would be wrong.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]
WITHOUT_CALIBRATION = 0.5  # a resolved label with less confidence than this should be looked at


def calibration_of(fitted: Any, option: str) -> Calibration:
    """The calibration of a loaded model, or the way to one."""
    found = getattr(fitted, "calibration_", None)
    if found is None:
        raise ValueError(
            f"{option} needs a calibrated model: fit it with --calibrate, or give clean rows that it did not train on "
            "to `mogd calibrate MODEL TABLE --truth COL`"
        )
    return found


def guaranteed(
    fitted: Any, proba: np.ndarray, columns: dict[str, Any], coverage: float | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns `label` and `confidence`, calibrated where possible, with sets; and their figures."""
    import numpy as np

    calibration = getattr(fitted, "calibration_", None)
    if calibration is not None:
        columns = columns | {"confidence": calibration.probabilities(proba).max(axis=1)}
    figures: dict[str, Any] = {"rows": len(proba), "mean_confidence": float(np.mean(columns["confidence"]))}
    if coverage is not None:
        chosen = calibration_of(fitted, "--coverage").sets(proba, coverage)
        columns = columns | {"set": joined(chosen, proba, fitted.classes_), "set_size": chosen.sum(axis=1)}
        sizes = chosen.sum(axis=1)
        figures |= {"coverage": coverage, "labels_a_set": float(sizes.mean()), "empty_sets": int((sizes == 0).sum())}
        figures |= {"single_sets": int((sizes == 1).sum())}
    return columns, figures


def abstaining(
    calibration: Calibration, frame: pl.DataFrame, top: np.ndarray, risk: float
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Labels only where they are sure enough among all rows of the table, by their largest probabilities `top`."""
    import polars as pl

    accepted = calibration.accepts(top[:, None], risk)
    label = pl.when(pl.Series(accepted)).then(pl.col("label")).otherwise(None).alias("label")
    return frame.with_columns(label), {"risk": risk, "abstained": int((~accepted).sum())}


def together(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a whole table from those of its parts."""
    if len(parts) == 1:
        return parts[0]
    n_rows = sum(part["rows"] for part in parts)
    figures = dict(parts[0])
    for name in figures:
        if name in ("mean_confidence", "labels_a_set"):
            figures[name] = sum(part["rows"] * part[name] for part in parts) / n_rows
        elif name != "coverage":
            figures[name] = sum(part[name] for part in parts)
    return figures


def sentence(figures: dict[str, Any]) -> str:
    """What `predict` says in one line."""
    said = f"{figures['rows']} rows labelled, mean confidence {figures['mean_confidence']:.3f}"
    if "abstained" in figures:
        said = f"{figures['rows'] - figures['abstained']} of {said}; {figures['abstained']} left without a label"
    if "coverage" in figures:
        said += f"; sets of {figures['labels_a_set']:.2f} labels, {figures['single_sets']} of them single"
        if figures["empty_sets"]:
            said += f", {figures['empty_sets']} empty (no label fits; a higher --coverage fills them)"
    return said


def joined(chosen: np.ndarray, proba: np.ndarray, classes: np.ndarray) -> list[str]:
    """Each row's set as text, the most probable label first: `a|b`, or a JSON list where a label holds a bar."""
    import json

    names = [str(label) for label in classes.tolist()]
    sets = [[names[k] for k in order if own[k]] for own, order in zip(chosen, (-proba).argsort(axis=1), strict=True)]
    if any("|" in name for name in names):
        return [json.dumps(labels, ensure_ascii=False) for labels in sets]
    return ["|".join(labels) for labels in sets]


def mark_rows(model: Path, coverage: float) -> Iterator[dict[str, Any]]:
    """`load_resolved`'s columns, a part after the other, with `look`: whether a person should look at the row.

    With `fit --calibrate` these are the rows of which a model that did not see them leaves not exactly one candidate
    in its prediction set, or another one than they were resolved to. Without, those of little confidence.
    """
    import numpy as np

    from mogd.conformal import Calibration, unsettled
    from mogd.modelfolder import read_described
    from mogd.saving import load_training_rows

    rows, calibration = load_training_rows(model), read_described(model).get("calibration")
    unsure = None
    if rows.held_out is not None and calibration is not None:
        found = Calibration.from_json(calibration, rows.confidence.shape[1])
        unsure = unsettled(rows.held_out, rows.confidence, found, coverage)
        unsure = np.concatenate([unsure, np.zeros(len(rows.clean), dtype=bool)])
    for index, columns in rows.resolved():
        little = columns["confidence"] < WITHOUT_CALIBRATION
        yield columns | {"look": little & ~columns["clean"] if unsure is None else unsure[index]}
