"""Formulas and small tools that more than one classical paper uses."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import solve_triangular
from scipy.optimize import minimize
from sklearn.kernel_approximation import Nystroem
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.neighbors import NearestNeighbors

MEAN_DISTANCE_ROWS = 4000  # the mean over 8 million pairs is known to four digits; more pairs only cost time
SMALL_WORK = 1e9  # rows × rows × features: about 0.1 s of one core; less is not worth a second


@cache
def _pools() -> Any:
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def threads_for(X: Any) -> AbstractContextManager[Any]:
    """Within the block small work runs on one thread of BLAS and OpenMP; larger work has as many as the caller set.

    Threads that wait for each other in small operations are slower than one as soon as anything else uses the machine:
    SURE on 500 rows took 0.02 processor seconds on one thread and 0.6 on two.
    """
    shape: tuple[int, ...] = getattr(X, "shape", ())  # what is no array yet is not made one here
    small = len(shape) < 2 or float(shape[0]) ** 2 * shape[1] < SMALL_WORK
    return _pools().limit(limits=1) if small else nullcontext()


def require(holds: Any, name: str, must_be: str, value: Any) -> None:
    """The one sentence in which a parameter is refused."""
    if not holds:
        raise ValueError(f"{name} must be {must_be}; got {value!r}")


def restricted(probabilities: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Probabilities kept on the candidates only and normalised; uniform over them where nothing is left."""
    kept = np.where(candidates, probabilities, 0.0)
    total = kept.sum(axis=1, keepdims=True)
    uniform = candidates / candidates.sum(axis=1, keepdims=True)
    return np.where(total > 0, kept / np.where(total > 0, total, 1.0), uniform)


def project_simplex(values: np.ndarray, allowed: np.ndarray | None = None) -> np.ndarray:
    """The nearest distribution to each row (Euclidean), zero where not `allowed`; by one sort of all rows."""
    values = values if allowed is None else np.where(allowed, values, -np.inf)
    falling = -np.sort(-values, axis=1)
    usable = np.isfinite(falling)
    count = np.arange(1, values.shape[1] + 1)
    excess = np.where(usable, falling, 0.0).cumsum(axis=1) - 1.0
    support = (usable & (np.where(usable, falling, 0.0) * count > excess)).sum(axis=1)
    threshold = excess[np.arange(len(values)), support - 1] / support
    return np.maximum(values - threshold[:, None], 0.0)


def fit_linear(
    objective: Callable[[np.ndarray, np.ndarray], tuple[float, np.ndarray]],
    X: np.ndarray,
    n_outputs: int,
    penalty: float,
    max_iter: int,
    tol: float,
) -> tuple[np.ndarray, np.ndarray, int]:
    """L-BFGS over the weights of a linear model: coefficients, intercept and the number of iterations.

    `objective(W, X)` gives a mean of squared hinges plus `penalty/2·‖W‖²` and its gradient; the last row of `W` is the
    bias, which is not penalised. The steps are taken in coordinates in which the Hessian of the same squares without
    the hinge is the identity: a fifth of the iterations for Nyström features.
    """
    mean = X.mean(axis=0)
    centred = X - mean
    shape = (X.shape[1] + 1, n_outputs)
    hessian = np.zeros((shape[0], shape[0]))
    hessian[:-1, :-1] = 2.0 * (centred.T @ centred) / len(X) + penalty * np.eye(X.shape[1])
    hessian[-1, -1] = 2.0
    factor = np.linalg.cholesky(hessian)

    def back(values: np.ndarray) -> np.ndarray:
        return solve_triangular(factor, values.reshape(shape), trans=1, lower=True, check_finite=False)

    def flat(values: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = objective(back(values), centred)
        return loss, solve_triangular(factor, gradient, lower=True, check_finite=False).ravel()

    options = {"maxiter": max_iter, "gtol": tol, "ftol": 1e-9}
    found = minimize(flat, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options)
    W = back(found.x)
    return W[:-1], W[-1] - mean @ W[:-1], int(found.nit)


def neighbour_index(X: np.ndarray, n_neighbors: int, n_jobs: int | None) -> NearestNeighbors:
    """A search index over the rows: exact, since the search is a small part of the time at every size measured."""
    require(
        isinstance(n_neighbors, (int, np.integer)) and n_neighbors >= 1,
        "n_neighbors",
        "a whole number of at least 1",
        n_neighbors,
    )
    return NearestNeighbors(n_neighbors=min(n_neighbors, len(X)), n_jobs=n_jobs).fit(X)


def nearest(index: NearestNeighbors, X: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Distances and rows of the nearest neighbours; of the index's own rows, without themselves, when `X` is None."""
    count = index.n_neighbors if X is not None else min(index.n_neighbors, index.n_samples_fit_ - 1)
    if count == 0:
        return np.empty((1, 0)), np.empty((1, 0), dtype=np.int64)
    return index.kneighbors(X, n_neighbors=count)


def neighbour_matrix(values: np.ndarray, neighbour: np.ndarray, n_rows: int) -> sp.csr_array:
    """The values of each row's neighbours as a sparse matrix over all rows."""
    n, count = neighbour.shape
    return sp.csr_array((values.ravel(), neighbour.ravel(), np.arange(n + 1) * count), shape=(n, n_rows))


def mean_distance(X: np.ndarray, seed: int) -> float:
    """The mean distance between two rows, from a sample of the rows when there are many; 1 when all are equal."""
    if len(X) > MEAN_DISTANCE_ROWS:
        X = X[np.random.default_rng(seed).choice(len(X), MEAN_DISTANCE_ROWS, replace=False)]
    total = euclidean_distances(X).sum()
    return float(total / (len(X) * (len(X) - 1))) if total > 0 else 1.0


def rbf_gamma(X: np.ndarray, width: float, seed: int) -> float:
    """`1/(2σ²)` with σ = `width` × the mean distance between two rows."""
    require(width > 0, "width", "greater than 0", width)
    return 1.0 / (2.0 * (width * mean_distance(X, seed)) ** 2)


def nystroem(X: np.ndarray, gamma: float, n_components: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Landmark rows and the matrix that turns kernel values with them into features."""
    require(n_components >= 1, "n_components", "at least 1", n_components)
    fitted = Nystroem(gamma=gamma, n_components=min(n_components, len(X)), random_state=seed).fit(X)
    return fitted.components_, fitted.normalization_


def nystroem_features(X: np.ndarray, landmarks: np.ndarray, normalization: np.ndarray, gamma: float) -> np.ndarray:
    """The features of new rows; with no landmarks (a linear model) the rows themselves."""
    return rbf_kernel(X, landmarks, gamma=gamma) @ normalization.T if len(landmarks) else X
