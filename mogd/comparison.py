"""Which algorithm the clean rows prefer: cross-validated, every row judged by a fit that did not know its label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold

from mogd.algorithms import make
from mogd.candidates import Candidates
from mogd.compressed import stacked, take_dense
from mogd.estimator import PartialLabelEstimator
from mogd.evidence import with_same_sources

LEAST_CLEAN = 10  # rows to compare by: the shares of fewer are noise
BEYOND_NOISE = 2.0  # standard errors
SIMPLE: dict[str, dict[str, Any]] = {
    "majority": {},
    "dawid-skene": {"partial_weight": "auto", "exponents": True},
}


@dataclass(frozen=True, eq=False)
class Judged:
    """Which of the clean rows an algorithm got right without knowing their labels."""

    name: str
    right: np.ndarray  # (n_clean,) from 0 to 1: labels that tie share the point

    @property
    def share(self) -> float:
        return float(self.right.mean())

    def gain(self, other: Judged) -> tuple[float, float]:
        """How much larger the share is than another's on the same rows, and the standard error of that."""
        difference = self.right - other.right
        return float(difference.mean()), float(difference.std(ddof=1) / np.sqrt(len(difference)))

    def beats(self, other: Judged) -> bool:
        """Whether it is better by more than chance explains."""
        gain, error = self.gain(other)
        return gain > BEYOND_NOISE * error


@dataclass(frozen=True, eq=False)
class Comparison:
    """Algorithms judged on the same clean rows."""

    own: Judged | None  # the one that uses the features
    simple: list[Judged]  # those that read the votes alone
    without_clean: Judged | None = None  # the first, fitted without clean rows

    @property
    def judged(self) -> list[Judged]:
        return [*self.simple, *([self.own] if self.own else [])]

    @property
    def best_simple(self) -> Judged | None:
        return max(self.simple, key=lambda judged: judged.share, default=None)

    @property
    def preferred(self) -> Judged:
        """The one that uses the features, unless a simple one is better beyond noise: it weighs the same votes, and to
        choose by the larger share alone resolves fewer rows (docs/studies/annotators.md)."""
        best = self.best_simple
        if self.own is None or (best is not None and best.beats(self.own)):
            assert best is not None
            return best
        return self.own

    def as_dict(self) -> dict[str, Any]:
        """For `config_`: the clean rows, and how many of them each algorithm got right."""
        return {"rows": len(self.judged[0].right), "right": {one.name: float(one.right.sum()) for one in self.judged}}


def compare(
    estimator: PartialLabelEstimator | None,
    name: str,
    X: np.ndarray,
    candidates: Candidates,
    clean_X: np.ndarray,
    clean_y: np.ndarray,
    clean_candidates: Candidates | None,
    *,
    without_clean: PartialLabelEstimator | None = None,
    n_splits: int = 3,
    random_state: int = 0,
) -> Comparison:
    """Majority vote and Dawid–Skene, where there are votes, beside an estimator: cross-validated on the clean rows.

    `without_clean` is what would be fitted if there were no clean rows: it is judged on all of them at once.
    """
    clean = (clean_y, clean_candidates)
    simple = []
    if candidates.evidence is not None and clean_candidates is not None:
        blank, clean_blank = np.zeros((len(X), 1)), np.zeros((len(clean_y), 1))  # they read the votes alone
        usable = SIMPLE if candidates.evidence.kind == "votes" else ["majority"]
        for simple_name in usable:
            voter = make(simple_name, **SIMPLE[simple_name])
            right = judge(voter, blank, candidates, clean_blank, *clean, n_splits, random_state)
            simple.append(Judged(simple_name, right))
    own = alone = None
    if estimator is not None:
        own = Judged(name, judge(estimator, X, candidates, clean_X, *clean, n_splits, random_state))
    if without_clean is not None:
        alone = Judged(name, judge(without_clean, X, candidates, clean_X, *clean, 1, random_state))
    return Comparison(own, simple, alone)


def judge(
    estimator: PartialLabelEstimator,
    X: np.ndarray,
    candidates: Candidates,
    clean_X: np.ndarray,
    clean_y: np.ndarray,
    clean_candidates: Candidates | None,
    n_splits: int,
    random_state: int,
) -> np.ndarray:
    """Of each clean row, whether its label was found by a fit to which the row was a partial one, or unknown.

    Held-out rows whose own sets or votes are known join the partial rows and are resolved; others are predicted.
    """
    n_clean = len(clean_y)
    index = {label: i for i, label in enumerate(candidates.classes.tolist())}
    truth = np.array([index[label] for label in clean_y.tolist()])
    right = np.empty(n_clean)
    folds = [np.arange(n_clean)]
    if n_splits > 1:
        splitter = KFold(n_splits, shuffle=True, random_state=random_state)
        folds = [held for _, held in splitter.split(clean_X)]
    for held in folds:
        kept = np.delete(np.arange(n_clean), held)
        given: dict[str, Any] = {}
        if len(kept):
            given = {"X_val": clean_X[kept], "y_val": clean_y[kept]}
            given["candidates_val"] = None if clean_candidates is None else clean_candidates[kept]
        model = clone(estimator)
        if "verbose" in model.get_params(deep=False):
            model.set_params(verbose=0)
        if clean_candidates is None:
            belief = model.fit(X, candidates, **given).predict_proba(clean_X[held])
        else:
            joined = join(candidates, clean_candidates[held])
            belief = take_dense(model.fit(np.concatenate([X, clean_X[held]]), joined, **given).confidence_[len(X) :])
        best = belief >= belief.max(axis=1, keepdims=True) - 1e-9
        right[held] = best[np.arange(len(held)), truth[held]] / best.sum(axis=1)
    return right


def join(first: Candidates, second: Candidates) -> Candidates:
    """The rows of both, the second behind the first, with what was said of them."""
    matrix = stacked(first.matrix, second.matrix)
    before, after = with_same_sources(first.evidence, second.evidence)
    if before is None or after is None:
        return Candidates(matrix, first.classes)
    return Candidates(matrix, first.classes, before.followed_by(after))
