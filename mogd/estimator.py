"""The face that every algorithm shows: one gate in front of `fit`, and what a fitted algorithm can be asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data

from mogd.candidates import as_candidates, as_labels, name_rows
from mogd.metrics import covering_rate

SCALERS = {"standard": StandardScaler, "minmax": MinMaxScaler}


class AssumedCleanWarning(UserWarning):
    """Training rows with one candidate were taken to be clean, because no clean rows were given."""


class Resolved(NamedTuple):
    """What the training rows were resolved to: a label and its confidence for each."""

    label: np.ndarray
    confidence: np.ndarray


@dataclass
class Rows:
    """Checked training rows: features, their candidate sets, their weights, and the clean rows apart.

    When clean rows train too they stand behind the first `n_partial` rows, with one candidate each.
    """

    X: np.ndarray
    candidates: np.ndarray  # (n, K) bool
    weight: np.ndarray  # (n,)
    clean_X: np.ndarray
    clean_y: np.ndarray  # class indices
    n_partial: int

    def join_clean(self, clean_weight: float) -> Rows:
        """The same rows with the clean ones behind them, each with its one candidate and the weight given."""
        if not len(self.clean_y):
            return self
        one_hot = np.eye(self.candidates.shape[1], dtype=bool)[self.clean_y]
        return Rows(
            X=np.concatenate([self.X, self.clean_X]),
            candidates=np.concatenate([self.candidates, one_hot]),
            weight=np.concatenate([self.weight, np.full(len(one_hot), float(clean_weight))]),
            clean_X=self.clean_X,
            clean_y=self.clean_y,
            n_partial=self.n_partial,
        )


class PartialLabelEstimator(ClassifierMixin, BaseEstimator):
    """Base of every algorithm of the library. A subclass writes `_fit(rows)` and `_scores(X)`.

    `_fit` sets `confidence_`, one row for each row of `X` given to `fit`. The parameters `scale`, `classes` and
    `unseen`, where a subclass has them, are read here.
    """

    classes_: np.ndarray
    confidence_: np.ndarray
    n_features_in_: int
    scale: str | None = None
    classes: Sequence[Any] | None = None
    unseen: str = "error"
    takes_images = False  # whether X may have more than two dimensions
    holds_rows: Any = False  # whether prediction needs rows of the training data

    def fit(self, X: Any, y: Any, *, X_val: Any = None, y_val: Any = None) -> Self:
        """Learn from rows with candidate sets `y` and, where given, clean rows `X_val` with true labels `y_val`."""
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: pass labels or candidate sets")
        X = self._check_features(X, reset=True)
        candidates = as_candidates(y, classes=self.classes, n_rows=len(X), unseen=self.unseen)
        self.classes_ = candidates.classes
        clean_X, clean_y = self._check_clean(X, X_val, y_val)
        self._fit_scaler(X, clean_X)
        X, clean_X = self._transform(X), self._transform(clean_X)
        self._fit(Rows(X, candidates.matrix, np.ones(len(X)), clean_X, clean_y, len(X)))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of each row, in the order of `classes_`."""
        check_is_fitted(self)
        return self._scores(self._transform(self._check_features(X, reset=False)))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy for labels `(n,)`; for candidate sets, the share of predictions that lie in the row's set."""
        if not getattr(y, "shape", (0,))[1:] and not (len(y) and isinstance(y[0], (list, set, frozenset))):
            return super().score(X, y, sample_weight)
        candidates = as_candidates(y, classes=self.classes_, n_rows=len(X), unseen="keep")
        return covering_rate(candidates.matrix, self.predict_proba(X).argmax(axis=1))

    def disambiguate(self) -> Resolved:
        """The label that each training row was resolved to, and the confidence in it, in the order given to `fit`."""
        check_is_fitted(self, "confidence_", msg="%(name)s has no confidences of training rows: fit it first")
        best = self.confidence_.argmax(axis=1)
        return Resolved(self.classes_[best], self.confidence_[np.arange(len(best)), best])

    def report(self) -> Any:
        """A page of what was learned; a notebook shows it, `report().save("model.html")` writes it."""
        from mogd.report.modelpage import ModelFacts, model_page

        check_is_fitted(self, "confidence_", msg="%(name)s has nothing to report: fit it first")
        return model_page(ModelFacts.of_model(self))

    def _fit(self, rows: Rows) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement _fit")

    def _scores(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} must implement _scores")

    def _check_features(self, X: Any, *, reset: bool, name: str = "X") -> np.ndarray:
        if hasattr(X, "detach"):
            X = X.detach().cpu().numpy()
        try:
            X = validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32, np.uint8],
                order="C",  # the same rows give the same bits, whatever table they came in
                ensure_all_finite=False,
                allow_nd=self.takes_images,
            )
        except (TypeError, ValueError) as error:
            if name == "X":
                raise
            said = re.sub(r"\bX\b", name, str(error))  # scikit-learn knows these rows by no other name
            kind = ValueError if isinstance(error, ValueError) else TypeError
            raise kind(said if name in said else f"{name}: {said}") from None
        if X.dtype.kind == "f" and not np.isfinite(X.sum(dtype=np.float64)):
            bad = np.flatnonzero(~np.isfinite(X.reshape(len(X), -1)).all(axis=1))
            if len(bad):
                raise ValueError(
                    f"{name} contains NaN or infinity in {name_rows(bad)}: impute them (sklearn.impute.SimpleImputer "
                    "in a pipeline, or mogd.read_table(..., impute='median')) or drop these rows"
                )
        return X

    def _fit_scaler(self, X: np.ndarray, clean_X: np.ndarray) -> None:
        """On all rows that train: a column that varies in the clean rows alone would else reach into the hundreds."""
        if self.scale is not None and self.scale not in SCALERS:
            raise ValueError(f"scale must be None, 'standard' or 'minmax'; got {self.scale!r}")
        self.scaler_ = None
        if self.scale is not None and X.ndim == 2:
            self.scaler_ = SCALERS[self.scale]().fit(np.concatenate([X, clean_X]) if len(clean_X) else X)

    def _transform(self, X: np.ndarray) -> np.ndarray:
        return X if self.scaler_ is None or not len(X) else self.scaler_.transform(X)

    def _check_clean(self, X: np.ndarray, X_val: Any, y_val: Any) -> tuple[np.ndarray, np.ndarray]:
        if (X_val is None) != (y_val is None):
            given, absent = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
            raise ValueError(f"{given} was given without {absent}: clean rows need both")
        if X_val is None:
            return X[:0], np.empty(0, dtype=np.int64)
        clean_X = self._check_features(X_val, reset=False, name="X_val")
        clean_y = as_labels(y_val, self.classes_)
        if len(clean_X) != len(clean_y):
            raise ValueError(f"X_val has {len(clean_X)} rows but y_val has {len(clean_y)} labels")
        return clean_X, clean_y


__all__ = ["SCALERS", "AssumedCleanWarning", "PartialLabelEstimator", "Resolved", "Rows"]
