"""PL-ECOC: disambiguation-free learning by output codes (Zhang, Yu and Tang, TKDE 2017)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from scipy.special import softmax

from mogd.classical.base import KernelEstimator
from mogd.classical.common import fit_linear, require
from mogd.pooling import posterior

ENUMERATE_UP_TO = 10  # classes for which all splits are listed (511) rather than drawn
MAX_FAILURES = 10_000  # consecutive splits that fit too few rows before the search ends with the columns it has
LARGEST_MARGIN = 20.0  # e²⁰ is large enough to lose a class; beyond it the exponential only overflows


class PLECOC(KernelEstimator):
    """Random splits of the classes, each a binary problem of the rows whose whole set falls on one side.

    Parameters
    ----------
    length : number of columns in units of log₂ K (10 is the paper's).
    min_share : a split must use at least this share of the rows.
    kernel : "linear", or "rbf" by Nyström features.
    width : the RBF width in units of the mean distance between two rows.
    n_components : number of Nyström features.
    C : weight of the squared hinge loss against `½‖w‖²`, as in `sklearn.svm.LinearSVC`.
    max_iter, tol : of L-BFGS, which fits all columns together.
    clean_weight : weight of a clean row in the binary problems and in the performance matrix.
    scale, classes, unseen : as everywhere in the library.
    random_state : a seed for the splits and the Nyström rows.
    """

    learned = (*KernelEstimator.learned, "code_", "performance_")

    def __init__(
        self,
        length: float = 10.0,
        min_share: float = 0.1,
        kernel: str = "rbf",
        width: float = 1.0,
        n_components: int = 500,
        C: float = 10.0,
        max_iter: int = 200,
        tol: float = 1e-5,
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.length = length
        self.min_share = min_share
        self.kernel = kernel
        self.width = width
        self.n_components = n_components
        self.C = C
        self.max_iter = max_iter
        self.tol = tol
        self.clean_weight = clean_weight
        self.scale = scale
        self.classes = classes
        self.unseen = unseen
        self.random_state = random_state

    def _learn(self, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> np.ndarray:
        require(self.length > 0, "length", "greater than 0", self.length)
        require(self.C > 0, "C", "greater than 0", self.C)
        seed = self._seed()
        n_columns = int(np.ceil(self.length * np.log2(max(candidates.shape[1], 2))))
        self.code_ = draw_code(candidates, n_columns, self.min_share, np.random.default_rng(seed))
        side = sides(candidates, self.code_)
        features = self._fit_features(X, seed)
        penalty = 1.0 / (self.C * weight.sum())
        self.coef_, self.intercept_, self.n_iter_ = fit_linear(
            lambda W, Z: binary_objective(W, Z, side, weight, penalty),
            features,
            side.shape[1],
            penalty,
            self.max_iter,
            self.tol,
        )
        margin = features @ self.coef_ + self.intercept_
        self.performance_ = performance(margin, candidates, self.code_, weight)
        return posterior(-decoding_loss(margin, self.code_, self.performance_), candidates)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return softmax(-decoding_loss(self._decision(X), self.code_, self.performance_), axis=1)


def pack(sets: np.ndarray) -> np.ndarray:
    """A 0/1 matrix with 64 columns to a word."""
    packed = np.packbits(sets.astype(bool), axis=1, bitorder="little")
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8)))).view(np.uint64)


def sides(candidates: np.ndarray, code: np.ndarray) -> np.ndarray:
    """+1, −1 or 0 for every row and column: the whole set is positive, negative, or divided."""
    words, positive, negative = pack(candidates), pack(code.T > 0), pack(code.T < 0)
    inside = [~(words & p).any(axis=1) for p in negative]
    outside = [~(words & p).any(axis=1) for p in positive]
    return np.stack(inside, axis=1).astype(np.int8) - np.stack(outside, axis=1).astype(np.int8)


def _splits(n_classes: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Different splits in random order, the first class positive in all: a split and its mirror are the same."""
    if n_classes <= ENUMERATE_UP_TO:
        count = 2 ** (n_classes - 1) - 1
        for number in generator.permutation(count):
            yield np.array([1] + [1 if number >> bit & 1 else -1 for bit in range(n_classes - 1)], dtype=np.int8)
        return
    seen: set[bytes] = set()
    while True:
        split = np.where(generator.random(n_classes) < 0.5, 1, -1).astype(np.int8)
        split *= split[0]
        if split.min() < 0 and split.tobytes() not in seen:
            seen.add(split.tobytes())
            yield split


def draw_code(candidates: np.ndarray, n_columns: int, min_share: float, generator: np.random.Generator) -> np.ndarray:
    """The coding matrix `(K, L)`: splits with rows on both sides and at least `min_share` of all rows."""
    n_classes = candidates.shape[1]
    if n_classes == 1:
        return np.ones((1, 1), dtype=np.int8)
    columns: list[np.ndarray] = []
    failures = 0
    for split in islice(_splits(n_classes, generator), MAX_FAILURES * n_columns):
        side = sides(candidates, split[:, None])
        if (side > 0).any() and (side < 0).any() and np.abs(side).sum() >= min_share * len(side):
            columns.append(split)
            failures = 0
        else:
            failures += 1
        if len(columns) == n_columns or failures == MAX_FAILURES:
            break
    if not columns:
        raise ValueError(
            f"PL-ECOC found no split of the {n_classes} classes with {min_share:.0%} of the rows wholly on one side: "
            f"the sets are too large ({candidates.sum(axis=1).mean():.1f} candidates on average); lower min_share or "
            "take another algorithm"
        )
    return np.stack(columns, axis=1)


def binary_objective(
    W: np.ndarray, X: np.ndarray, side: np.ndarray, weight: np.ndarray, penalty: float
) -> tuple[float, np.ndarray]:
    """The squared hinge losses of all columns, each over the rows on one of its sides; the last row is the bias."""
    weight = weight / weight.sum()
    short = X @ W[:-1] + W[-1]
    short *= side
    np.maximum(1.0 - short, 0.0, out=short)
    short *= side  # keeps the sign for the gradient, and leaves out the rows that the column divides
    loss = weight @ np.einsum("ij,ij->i", short, short)
    short *= -2.0 * weight[:, None]
    gradient = np.vstack([X.T @ short + penalty * W[:-1], short.sum(axis=0)])
    return float(loss + 0.5 * penalty * (W[:-1] ** 2).sum()), gradient


def performance(margin: np.ndarray, candidates: np.ndarray, code: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Ĝ `(K, L)`: how often column l says M(j, l) on the rows with candidate j; each row sums to one."""
    holds = candidates * weight[:, None]
    says_yes = holds.T @ (margin > 0)
    total = holds.sum(axis=0)[:, None]
    share = np.where(code > 0, says_yes, total - says_yes) / np.where(total > 0, total, 1.0)
    share = np.where(share.sum(axis=1, keepdims=True) > 0, share, 1.0)
    return share / share.sum(axis=1, keepdims=True)


def decoding_loss(margin: np.ndarray, code: np.ndarray, performance: np.ndarray) -> np.ndarray:
    """`Σ_l Ĝ(j,l)·exp(−f_l(x)·M(j,l))` for every row and class: the least loss is the prediction."""
    margin = np.clip(margin, -LARGEST_MARGIN, LARGEST_MARGIN)
    return np.exp(-margin) @ (performance * (code > 0)).T + np.exp(margin) @ (performance * (code < 0)).T
