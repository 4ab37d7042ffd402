"""CLPL: a convex loss for partial labels (Cour, Sapp and Taskar, JMLR 2011)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from mogd.classical.base import KernelEstimator
from mogd.classical.common import minimise, posterior, require, squared_hinge


class CLPL(KernelEstimator):
    """A linear model whose mean score over the candidates is pushed above 1 and every other score below −1.

    Parameters
    ----------
    C : weight of the loss against `½‖W‖²`; the loss is summed over the rows, as in `sklearn.svm.LinearSVC`.
    kernel : "linear" as in the paper, or "rbf" by Nyström features.
    width : the RBF width in units of the mean distance between two rows.
    n_components : number of Nyström features.
    max_iter, tol : of L-BFGS.
    clean_weight : weight of a clean row in the loss.
    scale, classes, unseen : as everywhere in the library.
    random_state : a seed for the Nyström rows; the linear model has nothing random.
    """

    def __init__(
        self,
        C: float = 0.1,
        kernel: str = "linear",
        width: float = 1.0,
        n_components: int = 500,
        max_iter: int = 300,
        tol: float = 1e-5,
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "error",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.width = width
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.clean_weight = clean_weight
        self.scale = scale
        self.classes = classes
        self.unseen = unseen
        self.random_state = random_state

    def _learn(self, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> np.ndarray:
        require(self.C > 0, "C", "greater than 0", self.C)
        features = self._fit_features(X, self._seed())
        penalty = 1.0 / (self.C * weight.sum())
        start = np.zeros((features.shape[1] + 1, candidates.shape[1]))
        found, self.n_iter_ = minimise(
            lambda W: clpl_objective(W, features, candidates, weight, penalty), start, self.max_iter, self.tol
        )
        self.coef_, self.intercept_ = found[:-1], found[-1]
        return posterior(features @ self.coef_ + self.intercept_, candidates)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return softmax(self._decision(X), axis=1)


def clpl_objective(
    W: np.ndarray, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray, penalty: float
) -> tuple[float, np.ndarray]:
    """Mean of `ψ(mean_{j∈S} g_j) + Σ_{j∉S} ψ(−g_j)` plus `penalty/2·‖W‖²`, and its gradient.

    The last row of `W` is the bias of each class, which is not penalised.
    """
    scores = X @ W[:-1] + W[-1]
    share = candidates / candidates.sum(axis=1, keepdims=True)
    inside, slope_inside = squared_hinge((scores * share).sum(axis=1))
    outside, slope_outside = squared_hinge(-scores)
    weight = weight / weight.sum()
    loss = weight @ (inside + np.where(candidates, 0.0, outside).sum(axis=1))
    by_score = weight[:, None] * (slope_inside[:, None] * share - np.where(candidates, 0.0, slope_outside))
    gradient = np.vstack([X.T @ by_score + penalty * W[:-1], by_score.sum(axis=0)])
    return float(loss + 0.5 * penalty * (W[:-1] ** 2).sum()), gradient
