"""The base of the algorithms that resolve rows by their votes alone: a logistic regression predicts new rows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from mogd.classical.base import ClassicalEstimator, as_float
from mogd.classical.common import require
from mogd.estimator import Rows


class VoteEstimator(ClassicalEstimator):
    """A subclass writes `_resolve`: the confidence of the partial rows, and what the regression is trained on."""

    takes_sparse = True
    learned: ClassVar[tuple[str, ...]] = ("coef_", "intercept_")
    C: float

    def _fit(self, rows: Rows) -> None:
        require(self.C > 0, "C", "greater than 0", self.C)
        require(self.clean_weight >= 0, "clean_weight", "0 or more", self.clean_weight)
        self.confidence_, targets = self._resolve(rows)
        if self.clean_weight > 0:
            rows = rows.join_clean(self.clean_weight)
            targets = np.concatenate([targets, rows.candidates[len(targets) :]])
        self.coef_, self.intercept_ = fit_logistic(as_float(rows.X), targets, rows.weight, self.C)

    def _resolve(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError(f"{type(self).__name__} must implement _resolve")

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return softmax(X @ self.coef_ + self.intercept_, axis=1)


def uniform(candidates: np.ndarray) -> np.ndarray:
    """The confidence of sets of which nothing more is known."""
    return candidates / candidates.sum(axis=1, keepdims=True)


def fit_logistic(X: np.ndarray, targets: np.ndarray, weight: np.ndarray, C: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients `(d, K)` and intercepts of a logistic regression on soft labels.

    Each row is repeated for the labels it may have, as heavy as they are probable. A class that no row may have gets
    the probability 0.
    """
    row, label = np.nonzero(targets)
    coef, intercept = np.zeros((X.shape[1], targets.shape[1])), np.full(targets.shape[1], -np.inf)
    known = np.unique(label)
    if len(known) == 1:
        intercept[known] = 0.0
        return coef, intercept
    model = LogisticRegression(C=C, max_iter=1000).fit(X[row], label, sample_weight=weight[row] * targets[row, label])
    if len(known) == 2:  # scikit-learn has one column for two classes
        coef[:, known[1]], intercept[known] = model.coef_[0], [0.0, model.intercept_[0]]
    else:
        coef[:, known], intercept[known] = model.coef_.T, model.intercept_
    return coef, intercept
