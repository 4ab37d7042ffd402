"""The base of the classical algorithms: the clean rows join here, and what a saved model needs is named here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from mogd.candidates import name_rows
from mogd.classical.common import nystroem, nystroem_features, rbf_gamma, require, threads_for
from mogd.estimator import PartialLabelEstimator, Rows

LARGEST = 1e150  # the square of a difference is still a number, and so is the sum of very many


class ClassicalEstimator(PartialLabelEstimator):
    """A partial label learner without a network. A subclass writes `_learn` and `_scores`, and names its `learned`.

    `_learn` sets the arrays named in `learned`, all that `_scores` needs, and returns the confidence of its rows.
    """

    learned: ClassVar[tuple[str, ...]] = ()
    clean_weight: float = 1.0
    random_state: Any = None

    @property
    def holds_rows(self) -> bool:
        """Whether prediction needs rows of the training data, so that a saved model holds them."""
        return False

    def _check_features(self, X: Any, *, reset: bool, name: str = "X") -> np.ndarray:
        X = super()._check_features(X, reset=reset, name=name)
        values = X.data if sp.issparse(X) else X
        if max(float(values.max(initial=0)), -float(values.min(initial=0))) > LARGEST:
            bad = np.unique((np.abs(X) > LARGEST).nonzero()[0])
            raise ValueError(
                f"{name} holds numbers beyond ±{LARGEST:g} in {name_rows(bad)}, whose distances cannot be computed: "
                "use another unit for these columns, or drop these rows"
            )
        return X

    def _fit(self, rows: Rows) -> None:
        require(self.clean_weight >= 0, "clean_weight", "0 or more", self.clean_weight)
        if self.clean_weight > 0:
            rows = rows.join_clean(self.clean_weight)
        X = as_float(rows.X)
        with threads_for(X):
            self.confidence_ = self._learn(X, rows.candidates, rows.weight)[: rows.n_given]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of each row, in the order of `classes_`."""
        with threads_for(X):
            return super().predict_proba(X)

    def _best(self, X: Any) -> np.ndarray:
        with threads_for(X):
            return super()._best(X)

    def _learn(self, X: np.ndarray, candidates: np.ndarray, weight: np.ndarray) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} must implement _learn")

    def _state(self) -> dict[str, np.ndarray]:
        """The learned arrays from which `_load_state` makes the model predict again."""
        return {name: np.asarray(getattr(self, name)) for name in self.learned}

    def _load_state(self, state: Mapping[str, np.ndarray]) -> None:
        for name in self.learned:
            setattr(self, name, state[name])


def as_float(X: Any) -> Any:
    """Rows in float64, sparse ones still sparse."""
    return X.astype(np.float64) if sp.issparse(X) else np.ascontiguousarray(X, dtype=np.float64)


class KernelEstimator(ClassicalEstimator):
    """A model that is linear in the features, or in Nyström features of the RBF kernel.

    The parameters `kernel`, `width` and `n_components` of a subclass are read here.
    """

    learned: ClassVar[tuple[str, ...]] = ("rows_", "normalization_", "gamma_", "coef_", "intercept_")
    kernel: str
    width: float
    n_components: int
    coef_: np.ndarray
    intercept_: np.ndarray

    @property
    def holds_rows(self) -> bool:
        return self.kernel == "rbf"

    def _fit_features(self, X: np.ndarray, seed: int) -> np.ndarray:
        """Choose the landmarks and return the features of the training rows."""
        require(self.kernel in ("rbf", "linear"), "kernel", "'rbf' or 'linear'", self.kernel)
        self.rows_, self.normalization_, self.gamma_ = X[:0], np.empty((0, 0)), 0.0
        if self.kernel == "rbf":
            self.gamma_ = rbf_gamma(X, self.width, seed)
            self.rows_, self.normalization_ = nystroem(X, self.gamma_, self.n_components, seed)
        return self._features(X)

    def _features(self, X: np.ndarray) -> np.ndarray:
        return nystroem_features(X, self.rows_, self.normalization_, float(self.gamma_))

    def _decision(self, X: np.ndarray) -> np.ndarray:
        return self._features(X) @ self.coef_ + self.intercept_
