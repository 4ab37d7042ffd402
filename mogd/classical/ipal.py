"""IPAL: candidates propagate along reconstruction weights (Zhang and Yu, IJCAI 2015)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import nnls
from sklearn.preprocessing import normalize

from mogd.classical.base import ClassicalEstimator
from mogd.classical.common import nearest, neighbour_index, neighbour_matrix, require, restricted

CHUNK = 2000  # rows whose neighbours' features are in memory at a time
FLOOR = 1e-6  # smallest relative residual: a query that is a training row would otherwise divide by zero


class IPAL(ClassicalEstimator):
    """Label propagation over the candidates, then the class whose neighbours rebuild a new row best.

    Parameters
    ----------
    n_neighbors : neighbours that rebuild a row.
    alpha : how much of a row's confidence comes from its neighbours in each round.
    max_iter, tol : the propagation stops when the change (Frobenius norm) falls below `tol`.
    normalize : whether every row is divided by its l2 norm first, as the authors' code does.
    clean_weight : how many times a clean row counts among the neighbours that a row's confidence comes from.
    scale, classes, unseen : as everywhere in the library.
    n_jobs : jobs of the neighbour search and of the least squares.
    """

    learned = ("rows_", "labels_")

    def __init__(
        self,
        n_neighbors: int = 10,
        alpha: float = 0.95,
        max_iter: int = 100,
        tol: float = 1e-4,
        normalize: bool = True,
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.max_iter = max_iter
        self.tol = tol
        self.normalize = normalize
        self.clean_weight = clean_weight
        self.scale = scale
        self.classes = classes
        self.unseen = unseen
        self.n_jobs = n_jobs

    @property
    def holds_rows(self) -> bool:
        return True

    def _learn(self, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> np.ndarray:
        require(0 <= self.alpha <= 1, "alpha", "between 0 and 1", self.alpha)
        X = normalize(X) if self.normalize else X
        index = neighbour_index(X, self.n_neighbors, self.n_jobs)
        _, neighbour = nearest(index)
        transition = rebuild_weights(X, X, neighbour, self.n_jobs) * weight[neighbour]
        confidence, self.n_iter_ = propagate(transition, neighbour, candidates, self.alpha, self.max_iter, self.tol)
        labels = confidence.argmax(axis=1)
        self._load_state({"rows_": X, "labels_": labels})
        return confidence

    def _load_state(self, state: Mapping[str, np.ndarray]) -> None:
        super()._load_state(state)
        self.index_ = neighbour_index(self.rows_, self.n_neighbors, self.n_jobs)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        X = np.asarray(X, dtype=np.float64)
        X = normalize(X) if self.normalize else X
        _, neighbour = nearest(self.index_, X)
        weights = rebuild_weights(X, self.rows_, neighbour, self.n_jobs)
        residual = np.concatenate(
            [
                class_residuals(X[part], self.rows_, self.labels_, neighbour[part], weights[part], len(self.classes_))
                for part in _chunks(len(X))
            ]
        )
        length = np.linalg.norm(X, axis=1, keepdims=True)
        score = 1.0 / np.maximum(residual, FLOOR * np.where(length > 0, length, 1.0))
        return score / score.sum(axis=1, keepdims=True)


def _chunks(n: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


def rebuild_weights(X: np.ndarray, rows: np.ndarray, neighbour: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """`argmin_{w≥0} ‖x_i − Σ_r w_r x_(r)‖²` for every row of `X` over its neighbours among `rows`."""

    def solve(part: slice) -> np.ndarray:
        return np.array([nnls(rows[near].T, x)[0] for x, near in zip(X[part], neighbour[part], strict=True)])

    if not neighbour.shape[1]:
        return np.zeros(neighbour.shape)
    return np.concatenate(Parallel(n_jobs=n_jobs)(delayed(solve)(part) for part in _chunks(len(X))))


def propagate(
    weights: np.ndarray, neighbour: np.ndarray, candidates: np.ndarray, alpha: float, max_iter: int, tol: float
) -> tuple[np.ndarray, int]:
    """Confidence over the candidates after propagation and the class-mass correction, and the rounds it took."""
    total = weights.sum(axis=1, keepdims=True)
    transition = neighbour_matrix(weights / np.where(total > 0, total, 1.0), neighbour, len(neighbour))
    first = candidates / candidates.sum(axis=1, keepdims=True)
    confidence, change, rounds = first, np.inf, 0
    while rounds < max_iter and change >= tol:
        new = restricted(alpha * (transition @ confidence) + (1 - alpha) * first, candidates)
        change = float(np.linalg.norm(new - confidence))
        confidence, rounds = new, rounds + 1
    mass = confidence.sum(axis=0)
    return restricted(confidence * (first.sum(axis=0) / np.where(mass > 0, mass, 1.0)), candidates), rounds


def class_residuals(
    X: np.ndarray, rows: np.ndarray, labels: np.ndarray, neighbour: np.ndarray, weights: np.ndarray, n_classes: int
) -> np.ndarray:
    """`‖x − Σ_{r: ŷ_(r)=j} w_r x_(r)‖` for every class j; a class without neighbours leaves ‖x‖."""
    parts = rows[neighbour] * weights[:, :, None]
    near = labels[neighbour]
    square = np.broadcast_to((X**2).sum(axis=1)[:, None], (len(X), n_classes)).copy()
    for r in range(neighbour.shape[1]):
        same = (near == near[:, [r]]).astype(X.dtype)
        rebuilt = np.einsum("ik,ikd->id", same, parts)
        square[np.arange(len(X)), near[:, r]] = ((X - rebuilt) ** 2).sum(axis=1)
    return np.sqrt(square)
