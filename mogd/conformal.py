"""A guarantee instead of a guess: prediction sets, abstention and calibrated probabilities from held-out clean rows.

Split conformal prediction (Vovk et al. 2005; Sadinle, Lei and Wasserman 2019): a label belongs to the set of a row when
its probability is at least the ⌊(M+1)α⌋-th smallest that the true labels of M clean rows were given, by a model that
did not train on them. For rows like the clean ones such sets hold the truth with probability at least 1 − α, and at
most 1 − α + 1/(M+1) without ties, whatever the model is. The probabilities enter as the model gives them: the
temperature, which is fitted on the same rows, changes what is shown and no set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import clone

from mogd.candidates import as_candidates, as_labels
from mogd.compressed import dense_or_refuse
from mogd.estimator import PartialLabelEstimator
from mogd.labels import n_rows_of
from mogd.metrics import log_loss
from mogd.selection import held_out_probabilities

TEMPERATURES = (0.05, 20.0)
LIKELIHOOD_RATIO = 3.84  # chi-squared of one degree of freedom at 5 %


@dataclass(frozen=True, eq=False)
class Calibration:
    """What a model's probabilities were worth on clean rows that it had not seen.

    held_out, y : the probabilities of the clean rows `(M, K)`, and the indices of their true classes.
    temperature : `softmax(log p / temperature)` has the least log loss on these rows; 1 where p itself will do.
    crossed : whether the rows were held out in turn, from models like the final one, and then trained on.
    """

    held_out: np.ndarray
    y: np.ndarray
    temperature: float = 1.0
    crossed: bool = False

    @classmethod
    def of(cls, held_out: np.ndarray, y: np.ndarray, *, crossed: bool = False) -> Self:
        """From the probabilities of held-out clean rows and the indices of their true classes."""
        held_out, y = np.asarray(held_out, dtype=np.float64), np.asarray(y, dtype=np.int64)
        if not len(y):
            raise ValueError("there are no clean rows to calibrate on: hold some out of training")
        return cls(held_out, y, fit_temperature(held_out, y), crossed)

    @property
    def correct(self) -> np.ndarray:
        """Whether the most probable class was the true one, `(M,)`."""
        return self.held_out.argmax(axis=1) == self.y

    def __len__(self) -> int:
        return len(self.y)

    def probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        """The same probabilities at the fitted temperature; no order within a row changes."""
        return tempered(probabilities, self.temperature)

    def threshold(self, coverage: float) -> float:
        """The least probability that puts a label into a set."""
        _check_share("coverage", coverage)
        left_out = floor((len(self) + 1) * (1 - coverage) + 1e-9)
        true = self.held_out[np.arange(len(self)), self.y]
        # with too few rows for this coverage every label must be in
        return float(np.sort(true)[left_out - 1]) if left_out else 0.0

    def sets(self, probabilities: np.ndarray, coverage: float) -> np.ndarray:
        """Which labels belong to the prediction set of each row, `(n, K)`.

        Where the model is right more often than asked, some sets are empty: none of the labels fits well enough.
        """
        return np.asarray(probabilities, dtype=np.float64) >= self.threshold(coverage)

    def accepts(self, probabilities: np.ndarray, risk: float) -> np.ndarray:
        """Which rows of a table are sure enough to be labelled, `(n,)`; of the others nothing should be said.

        The expected share of wrong labels among the accepted rows is at most `risk`. Each row has a conformal p-value
        of being wrong, from the clean rows that were wrong with at least its certainty, and Benjamini and Hochberg's
        procedure selects among them (Jin and Candès 2023, "Selection by prediction with conformal p-values").
        """
        _check_share("risk", risk)
        if risk * (len(self) + 1) < 1:
            raise ValueError(
                f"a risk of {risk:g} needs at least {ceil(1 / risk) - 1} clean rows that were held out; there are "
                f"{len(self)}: ask for a risk of {1 / (len(self) + 1):.2g} or more, or calibrate on more rows"
            )
        top = np.asarray(probabilities, dtype=np.float64).max(axis=1)
        wrong = np.sort(self.held_out.max(axis=1)[~self.correct])
        p = (1 + len(wrong) - np.searchsorted(wrong, top, side="left")) / (len(self) + 1)
        ranked = np.sort(p)
        passed = np.flatnonzero(ranked <= risk * np.arange(1, len(p) + 1) / max(len(p), 1))
        return p <= ranked[passed[-1]] if len(passed) else np.zeros(len(p), dtype=bool)

    def to_json(self) -> dict[str, Any]:
        rows = {"held_out": self.held_out.tolist(), "y": self.y.tolist()}
        return {**rows, "temperature": self.temperature, "crossed": self.crossed}

    @classmethod
    def from_json(cls, state: Mapping[str, Any], n_classes: int) -> Self:
        held_out, y = np.array(state["held_out"], dtype=np.float64), np.array(state["y"], dtype=np.int64)
        temperature = float(state["temperature"])
        fits = len(y) > 0 and held_out.shape == (len(y), n_classes) and 0 <= y.min() <= y.max() < n_classes
        if not fits or not np.isfinite(held_out).all() or not 0 < temperature < np.inf:
            raise ValueError("the saved calibration does not fit together: calibrate the model again")
        return cls(held_out, y, temperature, bool(state["crossed"]))


def calibrate(model: PartialLabelEstimator, X: Any, y: Any) -> Calibration:
    """Calibrate a fitted model on clean rows that it did not train on; kept as `model.calibration_`."""
    model.calibration_ = Calibration.of(model.predict_proba(X), as_labels(y, model.classes_, name="y"))
    return model.calibration_


def cross_calibrate(
    model: PartialLabelEstimator,
    X: Any,
    candidates: Any,
    X_val: Any,
    y_val: Any,
    candidates_val: Any = None,
    *,
    n_splits: int = 10,
    random_state: int | None = 0,
) -> Calibration:
    """Calibrate a fitted model on the few clean rows that it trained on, by fitting it `n_splits` times more.

    Each row, clean or partial, is scored by a model that saw neither it nor the others of its part. The final model saw
    a little more than those, so that sets are a little too large rather than too small, and the more so the fewer the
    parts; no proof covers this use (the one of CV+ gives 1 − 2α), docs/studies/coverage.md measures it. Kept as
    `model.calibration_`, and the probabilities of the partial rows as `model.held_out_`.
    """
    checked = as_candidates(candidates, classes=model.classes, n_rows=n_rows_of(X), unseen=model.unseen)
    dense_or_refuse(checked.matrix, "calibration by further fits")
    clean_y = as_labels(y_val, checked.classes)
    own_sets = None if candidates_val is None else as_candidates(candidates_val, classes=checked.classes, unseen="keep")
    proba, clean_proba = held_out_probabilities(
        clone(model), X, checked, X_val, clean_y, n_splits, random_state, own_sets
    )
    model.calibration_ = Calibration.of(clean_proba, clean_y, crossed=True)
    model.held_out_ = proba.astype(np.float32)
    return model.calibration_


def unsettled(
    held_out: np.ndarray, confidence: np.ndarray, calibration: Calibration, coverage: float = 0.9
) -> np.ndarray:
    """Which partial rows a person should look at, `(n,)`.

    Those with several candidates of which a model that did not see them leaves not exactly one in its prediction set,
    or another one than the row was resolved to.
    """
    candidates, resolved = confidence > 0, confidence.argmax(axis=1)
    possible = calibration.sets(held_out, coverage) & candidates
    doubtful = (possible.sum(axis=1) != 1) | ~possible[np.arange(len(resolved)), resolved]
    return doubtful & (candidates.sum(axis=1) > 1)


def fit_temperature(probabilities: np.ndarray, y: np.ndarray) -> float:
    """The temperature with the least log loss, between 1/20 and 20; 1 where it gains no more than noise would.

    A hundred rows are few: the likelihood-ratio test at 5 % decides whether the gain counts.
    """
    low, high = (log(t) for t in TEMPERATURES)
    found = minimize_scalar(
        lambda t: log_loss(y, tempered(probabilities, float(np.exp(t)))), bounds=(low, high), method="bounded"
    )
    gain = 2 * len(y) * (log_loss(y, tempered(probabilities, 1.0)) - found.fun)
    return float(np.exp(found.x)) if gain > LIKELIHOOD_RATIO else 1.0


def tempered(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """`softmax(log p / temperature)`; a probability of 0 counts as the smallest that there is."""
    logits = np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), 1e-12)) / temperature
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, such as 0.9; got {value!r}")
