"""Controls on the clean rows alone: a method that does not beat them learned nothing from partial labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from mogd.estimator import PartialLabelEstimator, Rows


class CleanOnly(PartialLabelEstimator):
    """An ordinary classifier of scikit-learn, fitted to the clean rows; `model` is "logistic" or "forest"."""

    takes_images = True

    def __init__(
        self,
        model: str = "logistic",
        *,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.scale = scale
        self.classes = classes
        self.unseen = unseen
        self.random_state = random_state

    def _fit(self, rows: Rows) -> None:
        if not len(rows.clean_y):
            raise ValueError("a control on clean rows alone needs clean rows: pass X_val=…, y_val=… to fit")
        if self.model == "logistic":
            self.model_ = LogisticRegression(max_iter=1000)
        elif self.model == "forest":
            self.model_ = RandomForestClassifier(n_estimators=200, random_state=self.random_state)
        else:
            raise ValueError(f"model must be 'logistic' or 'forest'; got {self.model!r}")
        self.model_.fit(_flat(rows.clean_X), rows.clean_y)
        on_candidates = (self._scores(rows.X) + 1e-12) * rows.candidates
        self.confidence_ = on_candidates / on_candidates.sum(axis=1, keepdims=True)

    def _scores(self, X: np.ndarray) -> np.ndarray:
        scores = np.zeros((len(X), len(self.classes_)))
        scores[:, self.model_.classes_] = self.model_.predict_proba(_flat(X))
        return scores


def _flat(X: np.ndarray) -> np.ndarray:
    return X.reshape(len(X), -1) / (255 if X.dtype == np.uint8 else 1)
