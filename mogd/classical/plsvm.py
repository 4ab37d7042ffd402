"""PL-SVM: a margin between the best candidate and the best other label (Nguyen and Caruana, KDD 2008)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import softmax

from mogd.classical.base import ClassicalEstimator
from mogd.classical.common import require
from mogd.pooling import posterior


class PLSVM(ClassicalEstimator):
    """A linear model by Pegasos steps in mini-batches, each projected onto the ball that holds the optimum.

    Parameters
    ----------
    lam : λ of `λ/2·‖W‖² + mean hinge`.
    epochs, batch_size : passes over the rows, and rows in a step.
    clean_weight : weight of a clean row in the loss.
    scale, classes, unseen : as everywhere in the library.
    random_state : a seed for the order of the rows.

    The model is the mean of the iterates of the second half. `history_` holds the objective after each epoch.
    """

    takes_sparse = True
    learned = ("coef_", "intercept_")

    def __init__(
        self,
        lam: float = 1e-2,
        epochs: int = 100,
        batch_size: int = 100,
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.lam = lam
        self.epochs = epochs
        self.batch_size = batch_size
        self.clean_weight = clean_weight
        self.scale = scale
        self.classes = classes
        self.unseen = unseen
        self.random_state = random_state

    def _learn(self, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> np.ndarray:
        require(self.lam > 0, "lam", "greater than 0", self.lam)
        require(self.epochs >= 1, "epochs", "at least 1", self.epochs)
        require(self.batch_size >= 1, "batch_size", "at least 1", self.batch_size)
        ones = np.ones((len(candidates), 1))
        with_one = sp.hstack([X, ones], format="csr") if sp.issparse(X) else np.column_stack([X, ones])
        W = self._pegasos(with_one, candidates, weight / weight.mean())
        self.coef_, self.intercept_ = W[:, :-1], W[:, -1]
        return posterior(self._decision(X), candidates)

    def _pegasos(self, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> np.ndarray:
        generator = np.random.default_rng(self._seed())
        radius = 1.0 / np.sqrt(self.lam)
        # from the class means, not from zero, where all scores tie and the order of the classes would choose
        share = candidates / candidates.sum(axis=1, keepdims=True)
        W = (weight[:, None] * (share - share.mean(axis=0))).T @ X / len(candidates)
        mean, averaged, step = np.zeros_like(W), 0, 0
        self.history_ = []
        for epoch in range(self.epochs):
            order = generator.permutation(len(candidates))
            for rows in np.array_split(order, max(1, len(candidates) // self.batch_size)):
                step += 1
                _, slope = margin_loss(X[rows] @ W.T, candidates[rows], weight[rows])
                W = (1.0 - 1.0 / step) * W - slope.T @ X[rows] / (self.lam * step)
                W *= min(1.0, radius / max(np.linalg.norm(W), 1e-300))
                if epoch >= self.epochs // 2:
                    averaged += 1
                    mean += (W - mean) / averaged
            loss, _ = margin_loss(X @ W.T, candidates, weight)
            self.history_.append({"epoch": epoch + 1, "objective": loss + 0.5 * self.lam * float((W**2).sum())})
        return mean

    def _decision(self, X: np.ndarray) -> np.ndarray:
        return X @ self.coef_.T + self.intercept_

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return softmax(self._decision(X), axis=1)


def margin_loss(scores: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> tuple[float, np.ndarray]:
    """Weighted mean of `max(0, 1 − max_{j∈S} s_j + max_{j∉S} s_j)` and a subgradient in the scores.

    A row whose set holds every class has no other label and no loss.
    """
    row = np.arange(len(scores))
    best = np.where(candidates, scores, -np.inf).argmax(axis=1)
    rival = np.where(candidates, -np.inf, scores).argmax(axis=1)
    hinge = np.maximum(0.0, 1.0 - scores[row, best] + scores[row, rival])
    weight = np.where((hinge > 0) & ~candidates.all(axis=1), weight, 0.0) / len(scores)
    slope = np.zeros_like(scores)
    slope[row, best] -= weight
    slope[row, rival] += weight
    return float(weight @ hinge), slope
