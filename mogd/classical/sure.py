"""SURE: self-guided retraining with a reward for a large confidence (Feng and An, AAAI 2019)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.metrics.pairwise import rbf_kernel

from mogd.classical.base import KernelEstimator
from mogd.classical.common import project_simplex, rbf_gamma, require


class SURE(KernelEstimator):
    """Ridge regression of a confidence matrix that is itself learned, in turns.

    Parameters
    ----------
    lam : reward λ for a large confidence in one candidate.
    beta : ridge penalty β.
    kernel : "rbf" or "linear".
    width : the RBF width in units of the mean distance between two rows (1 is the paper's).
    max_iter, tol : turns, which end early when no confidence moves by more than `tol`.
    exact_rows : with more rows than this the RBF kernel is approximated by Nyström features.
    n_components : number of Nyström features.
    clean_weight : weight of a clean row in the regression.
    scale, classes, unseen : as everywhere in the library.
    random_state : a seed for the Nyström rows; without Nyström nothing is random.
    """

    def __init__(
        self,
        lam: float = 0.3,
        beta: float = 0.05,
        kernel: str = "rbf",
        width: float = 1.0,
        max_iter: int = 50,
        tol: float = 1e-3,
        exact_rows: int = 5000,
        n_components: int = 1000,
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.lam = lam
        self.beta = beta
        self.kernel = kernel
        self.width = width
        self.max_iter = max_iter
        self.tol = tol
        self.exact_rows = exact_rows
        self.n_components = n_components
        self.clean_weight = clean_weight
        self.scale = scale
        self.classes = classes
        self.unseen = unseen
        self.random_state = random_state

    def _learn(self, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> np.ndarray:
        require(self.lam >= 0, "lam", "0 or more", self.lam)
        require(self.beta > 0, "beta", "greater than 0", self.beta)
        require(self.max_iter >= 1, "max_iter", "at least 1", self.max_iter)
        seed = self._seed()
        if self.kernel != "rbf" or len(X) > self.exact_rows:
            return self._alternate(primal_ridge(self._fit_features(X, seed), self.beta, weight), candidates)
        self.rows_, self.normalization_ = X, np.empty((0, 0))
        self.gamma_ = rbf_gamma(X, self.width, seed)
        return self._alternate(dual_ridge(X, self.gamma_, self.beta, weight), candidates)

    def _alternate(self, ridge: Ridge, candidates: np.ndarray) -> np.ndarray:
        confidence, moved, self.n_iter_ = candidates / candidates.sum(axis=1, keepdims=True), np.inf, 0
        while self.n_iter_ < self.max_iter and moved >= self.tol:
            output, self.coef_, self.intercept_ = ridge(confidence)
            new = sharpen(output, candidates, self.lam)
            moved = np.abs(new - confidence).max()
            confidence, self.n_iter_ = new, self.n_iter_ + 1
        return confidence

    def _features(self, X: np.ndarray) -> np.ndarray:
        if len(self.rows_) and not len(self.normalization_):  # the exact kernel: its values are the features
            return rbf_kernel(X, self.rows_, gamma=float(self.gamma_))
        return super()._features(X)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return project_simplex(self._decision(X))


# a ridge regression that was factorised once: targets -> fitted outputs, coefficients, intercept
Ridge = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


def dual_ridge(X: np.ndarray, gamma: float, beta: float, weight: np.ndarray) -> Ridge:
    """Kernel ridge regression with intercept: `(K + βV⁻¹)A + 1bᵀ = P`, `1ᵀA = 0`.

    The same optimum as the paper's unsymmetric system, by Cholesky; the Gram matrix is overwritten by its factor, since
    the outputs are `P − βV⁻¹A`: one n × n matrix in all.
    """
    gram = rbf_kernel(X, gamma=gamma)
    shift = beta / weight
    gram[np.diag_indices_from(gram)] += shift
    factor = cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    ones = cho_solve(factor, np.ones(len(X)), check_finite=False)

    def solve(target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        intercept = ones @ target / ones.sum()
        coef = cho_solve(factor, target - intercept, check_finite=False)
        return target - shift[:, None] * coef, coef, intercept

    return solve


def primal_ridge(X: np.ndarray, beta: float, weight: np.ndarray) -> Ridge:
    """Ridge regression on features, with an intercept that is not penalised."""
    mean = weight @ X / weight.sum()
    centred = X - mean
    system = (centred * weight[:, None]).T @ centred
    system[np.diag_indices_from(system)] += beta
    factor = cho_factor(system, lower=True, overwrite_a=True)

    def solve(target: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        average = weight @ target / weight.sum()
        coef = cho_solve(factor, centred.T @ (weight[:, None] * (target - average)))
        return centred @ coef + average, coef, average - mean @ coef

    return solve


def sharpen(output: np.ndarray, candidates: np.ndarray, lam: float) -> np.ndarray:
    """The confidence step: `argmin_p ‖p − q‖² − λ·max_j p_j` on the candidates' simplex, in closed form.

    With j the best candidate, it is the projection of `q + λ/2·e_j` onto the simplex.
    """
    lifted = np.array(output)
    best = np.where(candidates, output, -np.inf).argmax(axis=1)
    lifted[np.arange(len(best)), best] += lam / 2
    return project_simplex(lifted, candidates)
