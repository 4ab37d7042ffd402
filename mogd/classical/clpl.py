"""CLPL: a convex loss for partial labels (Cour, Sapp and Taskar, JMLR 2011)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import softmax

from mogd.classical.base import KernelEstimator
from mogd.classical.common import fit_linear, require
from mogd.pooling import posterior


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
        unseen: str = "warn",
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
        share = candidates / candidates.sum(axis=1, keepdims=True)
        self.coef_, self.intercept_, self.n_iter_ = fit_linear(
            lambda W, Z: clpl_objective(W, Z, share, weight, penalty),
            features,
            share.shape[1],
            penalty,
            self.max_iter,
            self.tol,
        )
        return posterior(features @ self.coef_ + self.intercept_, candidates)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return softmax(self._decision(X), axis=1)


def clpl_objective(
    W: np.ndarray, X: np.ndarray, share: np.ndarray, weight: np.ndarray, penalty: float
) -> tuple[float, np.ndarray]:
    """Mean of `ψ(mean_{j∈S} g_j) + Σ_{j∉S} ψ(−g_j)`, ψ(u) = max(0, 1−u)², plus `penalty/2·‖W‖²`, and its gradient.

    `share` holds 1/|S| on the candidates. The last row of `W` is the bias of each class, which is not penalised.
    """
    weight = weight / weight.sum()
    scores = X @ W[:-1] + W[-1]
    inside = np.maximum(1.0 - np.einsum("ij,ij->i", scores, share), 0.0)
    outside = np.maximum(1.0 + scores, 0.0, out=scores)
    outside *= share == 0
    loss = weight @ (inside**2 + np.einsum("ij,ij->i", outside, outside))
    by_score = outside - inside[:, None] * share
    by_score *= 2.0 * weight[:, None]
    gradient = np.vstack([X.T @ by_score + penalty * W[:-1], by_score.sum(axis=0)])
    return float(loss + 0.5 * penalty * (W[:-1] ** 2).sum()), gradient
