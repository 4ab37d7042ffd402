"""Which rows train, which are clean, which are tested: the paper's protocol, in one function for all experiments.

Everything here depends on its seed alone. Scaling belongs to the estimator, which fits it on the rows it trains on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mogd.candidates import Candidates
from mogd.compressed import dense_or_refuse
from mogd.datasets.base import PartialDataset


@dataclass(frozen=True, eq=False)
class Split:
    """One cell of an experiment; labels are class names, indices count the rows of the data set that was split."""

    train: PartialDataset
    clean_X: np.ndarray
    clean_y: np.ndarray
    test_X: np.ndarray
    test_y: np.ndarray
    train_index: np.ndarray
    clean_index: np.ndarray
    test_index: np.ndarray | None  # None when the test rows came from outside
    clean_candidates: Candidates  # the clean rows' own sets and, where there are any, their votes


def fold_numbers(y: np.ndarray, n_folds: int, rng: np.random.Generator) -> np.ndarray:
    """A fold for each row: of every class, and in all, any two folds hold the same number of rows or differ by one."""
    if not 2 <= n_folds <= len(y):
        raise ValueError(f"n_folds must be from 2 to the number of rows ({len(y)}); got {n_folds}")
    folds = np.empty(len(y), dtype=np.int64)
    folds[_by_class(y, rng)] = np.arange(len(y)) % n_folds  # dealt out like cards, class after class
    return rng.permutation(n_folds)[folds]


def hold_out(y: np.ndarray, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """The positions of `n_rows` rows in which every class has its share, rounded up or down."""
    if not 0 <= n_rows <= len(y):
        raise ValueError(f"cannot hold out {n_rows} of {len(y)} rows: ask for 0 to {len(y)}")
    if n_rows == 0:
        return np.empty(0, dtype=np.int64)
    step = len(y) / n_rows  # every step-th row in the order of the classes, from a random start
    positions = np.floor((np.arange(n_rows) + rng.random()) * step).astype(np.int64)
    return np.sort(_by_class(y, rng)[np.minimum(positions, len(y) - 1)])


def split_dataset(
    dataset: PartialDataset,
    *,
    n_clean: int,
    seed: int,
    fold: int | None = None,
    n_folds: int = 5,
    test: tuple[np.ndarray, np.ndarray] | None = None,
    singletons: bool = False,
) -> Split:
    """Split as the paper does: a test fold, `n_clean` rows of the rest with their true labels, the training rows.

    Parameters
    ----------
    dataset : its true labels must be known; training methods never see them but in the clean rows.
    n_clean : how many clean rows; they leave the training rows.
    seed : with `fold` it decides everything.
    fold, n_folds : the fold of a shuffled stratified k-fold that is tested.
    test : instead of a fold, the test rows and their class indices (images have their own).
    singletons : keep the clean rows among the training rows too, each with its true label as only candidate.
    """
    y = dataset.known_y()
    if (fold is None) == (test is None):
        raise ValueError("give either fold=, the number of the tested fold, or test=(X, y); got both or neither")
    rest, tested = np.arange(len(dataset)), None
    if fold is not None:
        if not 0 <= fold < n_folds:
            raise ValueError(f"fold must be from 0 to {n_folds - 1}; got {fold}")
        folds = fold_numbers(y, n_folds, np.random.default_rng([seed, 0]))
        rest, tested = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        test = dataset.X[tested], y[tested]
    assert test is not None
    if n_clean >= len(rest):
        raise ValueError(f"n_clean must leave rows to train on: at most {len(rest) - 1} here; got {n_clean}")
    clean = rest[hold_out(y[rest], n_clean, np.random.default_rng([seed, 1, fold or 0]))]
    kept = rest if singletons else np.setdiff1d(rest, clean, assume_unique=True)
    train = dataset.subset(kept)
    if singletons:
        matrix = dense_or_refuse(train.candidates.matrix, "a split with clean rows as single candidates").copy()
        matrix[np.searchsorted(kept, clean)] = np.eye(len(dataset.classes), dtype=bool)[y[clean]]
        train = replace(train, candidates=Candidates(matrix, dataset.classes))
    return Split(
        train=train,
        clean_X=dataset.X[clean],
        clean_y=dataset.classes[y[clean]],
        test_X=test[0],
        test_y=dataset.classes[test[1]],
        train_index=kept,
        clean_index=clean,
        test_index=tested,
        clean_candidates=dataset.candidates[clean],
    )


def repeated(
    dataset: PartialDataset, *, n_clean: int, seed: int = 0, n_repeats: int = 1, n_folds: int = 5, **options: Any
) -> Iterator[tuple[int, int, Split]]:
    """Every split of a repeated k-fold, as (seed, fold, split): the seeds are `seed`, `seed` + 1, …"""
    for chosen in range(seed, seed + n_repeats):
        for fold in range(n_folds):
            yield (
                chosen,
                fold,
                split_dataset(dataset, n_clean=n_clean, seed=chosen, fold=fold, n_folds=n_folds, **options),
            )


def _by_class(y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The rows class after class: the classes in random order, and so the rows of each."""
    _, y = np.unique(y, return_inverse=True)
    shuffled = rng.permutation(len(y))
    place = rng.permutation(y.max() + 1)
    return shuffled[np.argsort(place[y[shuffled]], kind="stable")]
