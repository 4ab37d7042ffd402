"""Parameters chosen on training rows alone, in one way for every algorithm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import KFold, ParameterGrid

from mogd.candidates import Candidates, as_candidates, as_labels
from mogd.compressed import Matrix, sizes
from mogd.estimator import PartialLabelEstimator
from mogd.labels import n_rows_of
from mogd.metrics import accuracy, covering_rate
from mogd.rowsource import on_disk

Part = tuple[np.ndarray, np.ndarray]  # positions of rows, and the rows
COVERING_BIAS = 0.05  # how far the accuracy read off the candidate sets may be from the truth (one standard deviation)


@dataclass(frozen=True)
class Selection:
    """What `select` found: the best parameters, their score, and a table with a row for every point of the grid."""

    params: dict[str, Any]
    score: float
    table: list[dict[str, Any]] = field(repr=False)


def select(
    estimator: PartialLabelEstimator,
    grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
    X: Any,
    candidates: Any,
    X_val: Any = None,
    y_val: Any = None,
    *,
    n_splits: int = 3,
    random_state: int | None = None,
    n_jobs: int | None = None,
) -> Selection:
    """The point of a parameter grid (as scikit-learn's `ParameterGrid` takes it) with the best `inner_score`.

    All points are judged on the same splits. A point that cannot be fitted stays in the table with its `error`; of two
    equal points the earlier wins. The estimator itself is left as it is.
    """
    points = list(ParameterGrid(grid))
    seed = int(np.random.default_rng().integers(2**31)) if random_state is None else random_state
    candidates = _checked(estimator, X, candidates)

    def judge(params: dict[str, Any]) -> dict[str, Any]:
        try:
            point = clone(estimator).set_params(**params)
            score = inner_score(point, X, candidates, X_val, y_val, n_splits=n_splits, random_state=seed)
        except (ValueError, ArithmeticError) as error:
            return {"params": params, "score": float("nan"), "error": str(error)}
        return {"params": params, "score": score, "error": None}

    table = Parallel(n_jobs=n_jobs)(delayed(judge)(params) for params in points)
    done = [row for row in table if row["error"] is None]
    if not done:
        raise ValueError(f"no point of the grid could be fitted; the first said: {table[0]['error']}")
    best = max(done, key=lambda row: row["score"])
    return Selection(best["params"], best["score"], table)


def inner_score(
    estimator: PartialLabelEstimator,
    X: Any,
    candidates: Any,
    X_val: Any = None,
    y_val: Any = None,
    n_splits: int = 3,
    random_state: int | None = None,
    candidates_val: Any = None,
) -> float:
    """An estimate of the accuracy of a configuration from training rows alone, clean and partial.

    It is cross-validated over both, so that no row judges a model that saw it; `pooled_accuracy` puts them together.
    """
    candidates = _checked(estimator, X, candidates)
    clean_y = np.empty(0, dtype=np.int64) if y_val is None else as_labels(y_val, candidates.classes)
    own_sets = None
    if candidates_val is not None:
        own_sets = as_candidates(candidates_val, classes=candidates.classes, unseen="keep")
    guess, clean_guess = held_out(estimator, X, candidates, X_val, clean_y, n_splits, random_state, own_sets)
    return pooled_accuracy(candidates.matrix, guess, clean_y, clean_guess)


def held_out(
    estimator: PartialLabelEstimator,
    X: Any,
    candidates: Candidates,
    X_val: Any,
    clean_y: np.ndarray,
    *how: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Predicted class indices of the partial and of the clean rows, each from a model that did not see the row."""
    partial, clean = np.empty(len(candidates), dtype=np.int64), np.empty(len(clean_y), dtype=np.int64)
    for fitted, (held, rows), (clean_held, clean_rows) in _fits(estimator, X, candidates, X_val, clean_y, *how):
        partial[held] = as_labels(fitted.predict(rows), candidates.classes)
        if len(clean_held):
            clean[clean_held] = as_labels(fitted.predict(clean_rows), candidates.classes)
    return partial, clean


def held_out_probabilities(
    estimator: PartialLabelEstimator,
    X: Any,
    candidates: Candidates,
    X_val: Any,
    clean_y: np.ndarray,
    *how: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Class probabilities of the partial and of the clean rows, each from a model that did not see the row."""
    partial, clean = np.empty(candidates.shape), np.empty((len(clean_y), candidates.shape[1]))
    for fitted, (held, rows), (clean_held, clean_rows) in _fits(estimator, X, candidates, X_val, clean_y, *how):
        partial[held] = fitted.predict_proba(rows)
        if len(clean_held):
            clean[clean_held] = fitted.predict_proba(clean_rows)
    return partial, clean


def _fits(
    estimator: PartialLabelEstimator,
    X: Any,
    candidates: Candidates,
    X_val: Any,
    clean_y: np.ndarray,
    n_splits: int,
    random_state: int | None,
    candidates_val: Candidates | None = None,
) -> Iterator[tuple[PartialLabelEstimator, Part, Part]]:
    """Models fitted without a part of the rows, with the partial and the clean rows that each did not see."""
    if n_splits < 2:
        raise ValueError(f"n_splits must be at least 2; got {n_splits!r}")
    X = _in_memory(X)
    clean_X = X[:0] if X_val is None else _in_memory(X_val)
    generator = np.random.default_rng(random_state)
    n_rows = X.shape[0]
    partial_folds, clean_folds = _folds(n_rows, n_splits, generator), _folds(len(clean_y), n_splits, generator)
    for held, clean_held in zip(partial_folds, clean_folds, strict=True):
        keep, clean_keep = np.delete(np.arange(n_rows), held), np.delete(np.arange(len(clean_y)), clean_held)
        clean: dict[str, Any] = {}
        if len(clean_keep):
            clean = {"X_val": clean_X[clean_keep], "y_val": candidates.classes[clean_y[clean_keep]]}
            if candidates_val is not None:
                clean["candidates_val"] = candidates_val[clean_keep]
        fitted = clone(estimator).fit(X[keep], candidates[keep], **clean)
        yield fitted, (held, X[held]), (clean_held, clean_X[clean_held])


def pooled_accuracy(candidates: Matrix, guess: np.ndarray, clean_y: np.ndarray, clean_guess: np.ndarray) -> float:
    """One estimate of the accuracy from predictions on partial rows and on clean rows.

    On clean rows the accuracy is unbiased but noisy: variance up to 1/(4M). On partial rows a share c of the
    predictions lies in the set; if a wrong one lies there by chance, ρ = mean (|S|−1)/(K−1), the accuracy is
    (c−ρ)/(1−ρ). There are many such rows, but mistakes prefer the wrong candidates, so the reading has a bias, taken as
    `COVERING_BIAS`. The two are averaged with the inverse of their mean squared errors as weights, which depend on the
    sizes alone: with 100 clean rows each has about half, with 1000 the clean rows have nine tenths, with none the sets
    decide.
    """
    n_classes = candidates.shape[1]
    chance = (sizes(candidates) - 1).mean() / max(n_classes - 1, 1)
    if chance >= 1:  # every set is full, or there is one class: the sets say nothing
        return accuracy(clean_y, clean_guess) if len(clean_y) else 1.0 / n_classes
    by_sets = (covering_rate(candidates, guess) - chance) / (1 - chance)
    if not len(clean_y):
        return by_sets
    clean_error = 0.25 / len(clean_y)
    sets_error = COVERING_BIAS**2 + 0.25 / (candidates.shape[0] * (1 - chance) ** 2)
    weight = sets_error / (clean_error + sets_error)
    return weight * accuracy(clean_y, clean_guess) + (1 - weight) * by_sets


def _checked(estimator: PartialLabelEstimator, X: Any, candidates: Any) -> Candidates:
    return as_candidates(candidates, classes=estimator.classes, n_rows=n_rows_of(X), unseen=estimator.unseen)


def _in_memory(X: Any) -> Any:
    if on_disk(X) is not None:
        raise ValueError(
            "cross-validation needs X in memory, and it is on the disk: pass some of its rows, X[:100_000]"
        )
    return sp.csr_array(X) if sp.issparse(X) else np.asarray(X)


def _folds(n: int, n_splits: int, generator: np.random.Generator) -> list[np.ndarray]:
    """Held-out rows of each split; fewer rows than splits leave some splits without any."""
    if n < n_splits:
        return list(np.array_split(generator.permutation(n), n_splits))
    splitter = KFold(n_splits, shuffle=True, random_state=int(generator.integers(2**31)))
    return [held for _, held in splitter.split(np.empty(n))]
