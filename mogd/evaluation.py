"""How good a model is on rows whose true label is known: accuracy and its interval, classes, calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mogd.conformal import Calibration
from mogd.metrics import calibration_error, confusion_counts, log_loss, reliability, wilson_interval


@dataclass(frozen=True)
class Share:
    """How many of n rows, and the interval in which the true share lies with a probability of 95 %."""

    hits: int
    n: int

    @property
    def value(self) -> float:
        return self.hits / self.n if self.n else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.hits, self.n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.value:.1f} % ({100 * low:.1f} to {100 * high:.1f}, {self.hits} of {self.n} rows)"

    def to_json(self) -> dict[str, Any]:
        return {"value": self.value, "interval": list(self.interval), "hits": self.hits, "rows": self.n}


@dataclass(frozen=True)
class Evaluation:
    """Predictions beside the truth; `counts` has a row for each true class and a column for each predicted one."""

    classes: list[Any]
    counts: np.ndarray
    calibration_error: float
    log_loss: float
    reliability: list[dict[str, float]]
    n_unknown: int = 0  # rows whose true label the model does not know: all of them are wrong
    sets: dict[str, float] | None = None  # prediction sets: the coverage asked for, the one found, labels a set
    crossed: bool = False  # whether each row was predicted by a model like this one that did not see it

    @property
    def accuracy(self) -> Share:
        return Share(int(self.counts.trace()), int(self.counts.sum()) + self.n_unknown)

    def per_class(self) -> list[dict[str, Any]]:
        """For each class that occurs or was predicted: its rows, recall and precision (None where undefined)."""
        rows, columns, right = self.counts.sum(axis=1), self.counts.sum(axis=0), self.counts.diagonal()
        return [
            {
                "label": label,
                "rows": int(rows[k]),
                "predicted": int(columns[k]),
                "recall": float(right[k] / rows[k]) if rows[k] else None,
                "precision": float(right[k] / columns[k]) if columns[k] else None,
            }
            for k, label in enumerate(self.classes)
            if rows[k] or columns[k]
        ]

    def confusions(self, most: int = 10) -> list[tuple[Any, Any, int]]:
        """The most frequent mistakes: the true label, the predicted one, how often."""
        wrong = self.counts.copy()
        np.fill_diagonal(wrong, 0)
        order = np.argsort(-wrong, axis=None, kind="stable")[:most]
        pairs = (np.unravel_index(place, wrong.shape) for place in order)
        return [(self.classes[i], self.classes[j], int(wrong[i, j])) for i, j in pairs if wrong[i, j]]

    def to_json(self) -> dict[str, Any]:
        return {
            "accuracy": self.accuracy.to_json(),
            "calibration_error": self.calibration_error,
            "log_loss": self.log_loss,
            "per_class": self.per_class(),
            "classes": self.classes,
            "confusion": self.counts.tolist(),
            "reliability": self.reliability,
            "rows_of_unknown_label": self.n_unknown,
            "prediction_sets": self.sets,
            "crossed": self.crossed,
        }


def evaluate(
    probabilities: np.ndarray,
    truth: Sequence[Any],
    classes: np.ndarray,
    calibration: Calibration | None = None,
    *,
    coverage: float = 0.9,
    crossed: bool = False,
) -> Evaluation:
    """Compare probabilities with true labels, compared as text; None is a row without one, and is left out.

    With a calibration the probabilities are shown at its temperature, and its prediction sets are measured.
    """
    names = classes.tolist()
    where = {str(label): k for k, label in enumerate(names)}
    index = np.array([-2 if label is None else where.get(str(label), -1) for label in truth], dtype=np.int64)
    if not (index >= 0).any():
        shown = ", ".join(map(str, names[:5]))
        raise ValueError(f"no row has a true label that the model knows; it knows {shown}{', …' if names[5:] else ''}")
    known = index >= 0
    y, raw = index[known], np.asarray(probabilities)[known]
    shown_probabilities = raw if calibration is None else calibration.probabilities(raw)
    sets = None
    if calibration is not None:
        chosen = calibration.sets(raw, coverage)
        covered = float(chosen[np.arange(len(y)), y].mean())
        sets = {"coverage": coverage, "covered": covered, "labels": float(chosen.sum(axis=1).mean())}
    return Evaluation(
        classes=names,
        counts=confusion_counts(y, raw.argmax(axis=1), len(names)),
        calibration_error=calibration_error(y, shown_probabilities),
        log_loss=log_loss(y, shown_probabilities),
        reliability=reliability(y, shown_probabilities),
        n_unknown=int((index == -1).sum()),
        sets=sets,
        crossed=crossed,
    )
