"""PL-kNN: the neighbours vote for their candidates (Hüllermeier and Beringer, IDA 2006)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mogd.classical.base import ClassicalEstimator
from mogd.classical.common import nearest, neighbour_index, neighbour_matrix, require, restricted

TIE_BREAK = 1e-6  # far above rounding, far below the weight of a vote


class PLKNN(ClassicalEstimator):
    """Each of the nearest rows votes for all of its candidates; the class with the most votes wins.

    Parameters
    ----------
    n_neighbors : number of neighbours.
    weights : the weight of a neighbour at distance d: "linear" (1 − d/Σd), "distance" (1/d) or "uniform".
    clean_weight : votes of a clean row count this many times.
    scale, classes, unseen : as everywhere in the library.
    n_jobs : jobs of the neighbour search.

    Where two classes have the same votes, the smaller sets decide: a vote's share of its set, as a millionth of a vote.
    """

    learned = ("rows_", "candidates_", "weight_")

    def __init__(
        self,
        n_neighbors: int = 10,
        weights: str = "linear",
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.clean_weight = clean_weight
        self.scale = scale
        self.classes = classes
        self.unseen = unseen
        self.n_jobs = n_jobs

    @property
    def holds_rows(self) -> bool:
        return True

    def _learn(self, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> np.ndarray:
        require(
            self.weights in ("linear", "distance", "uniform"),
            "weights",
            "'linear', 'distance' or 'uniform'",
            self.weights,
        )
        self._load_state({"rows_": X, "candidates_": candidates, "weight_": weight})
        return restricted(self._votes(*nearest(self.index_)), candidates)

    def _load_state(self, state: Mapping[str, np.ndarray]) -> None:
        super()._load_state(state)
        self.index_ = neighbour_index(self.rows_, self.n_neighbors, self.n_jobs)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        votes = self._votes(*nearest(self.index_, X))
        return votes / votes.sum(axis=1, keepdims=True)

    def _votes(self, distance: np.ndarray, neighbour: np.ndarray) -> np.ndarray:
        vote = vote_weight(distance, self.weights) * self.weight_[neighbour]
        share = self.candidates_ / self.candidates_.sum(axis=1, keepdims=True)
        return neighbour_matrix(vote, neighbour, len(self.rows_)) @ (self.candidates_ + TIE_BREAK * share)


def vote_weight(distance: np.ndarray, weights: str) -> np.ndarray:
    """The weight of each neighbour's vote, from the distances of one row's neighbours."""
    if weights == "uniform":
        return np.ones_like(distance)
    if weights == "distance":
        # a neighbour in the same place outvotes all others, as in scikit-learn
        same = distance == 0
        near = 1.0 / np.where(same, 1.0, distance)
        return np.where(same.any(axis=1, keepdims=True), same, near)
    total = distance.sum(axis=1, keepdims=True)
    linear = 1.0 - distance / np.where(total > 0, total, 1.0)
    return np.where(linear.sum(axis=1, keepdims=True) > 0, linear, 1.0)  # one neighbour alone has its full vote
