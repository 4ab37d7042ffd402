"""AutoClassifier: `make("auto")`, an estimator that compares a handful of others on its training rows first."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mogd.choice import as_given, compare, options, report
from mogd.estimator import PartialLabelEstimator, Rows


class AutoClassifier(PartialLabelEstimator):
    """Fits the best of a handful of algorithms: MoGD on each kind of features, SURE, and those for votes.

    `fit` compares them by `mogd.choice.compare`, three-fold on the training rows, 2,000 of them at most, and fits the
    best on all rows. A saved model is the estimator that was chosen.

    Parameters
    ----------
    budget : seconds after which no further algorithm is tried; the first always is. What a budget leaves out depends on
        the machine, so that only without one the same seed always chooses the same.
    allow_rows : whether it may choose an algorithm that predicts from its training rows (SURE): a saved model then
        holds them.
    epochs : of the deep ones; None is their default. The comparison takes 40 at most.
    scale : "auto" takes for each the scaler that suits it; any other value is for all.
    classes, unseen : as everywhere in the library.
    random_state : a seed, for the same splits and the same fit every time; None draws a new one.
    verbose : 0 is silence; 1 reports on the standard error what was tried, and shows the bar of the last fit.

    Attributes
    ----------
    estimator_ : the one that was chosen, fitted.
    config_ : its own `config_`, where it has one, and under "choice" every estimate of the comparison.
    """

    takes_images = True
    takes_compressed = True
    estimator_: PartialLabelEstimator
    config_: dict[str, Any]

    def __init__(
        self,
        *,
        budget: float | None = None,
        allow_rows: bool = True,
        epochs: int | None = None,
        scale: str | None = "auto",
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.budget = budget
        self.allow_rows = allow_rows
        self.epochs = epochs
        self.scale = scale
        self.classes = classes
        self.unseen = unseen
        self.random_state = random_state
        self.verbose = verbose

    @property
    def holds_rows(self) -> bool:
        return bool(getattr(getattr(self, "estimator_", None), "holds_rows", False))

    def chosen(self) -> PartialLabelEstimator:
        """The estimator that was chosen, as if it had been given the rows itself."""
        check_is_fitted(self)
        alone = copy.copy(self.estimator_)
        for name in ("feature_names_in_", "calibration_", "held_out_"):
            if hasattr(self, name):
                setattr(alone, name, getattr(self, name))
        return alone

    def _fit(self, rows: Rows) -> None:
        seed = self._seed()
        given = as_given(rows, self.classes_)
        tried = options(
            has_clean="y_val" in given,
            has_votes=rows.evidence is not None,
            is_image=rows.X.ndim > 2,
            is_compressed=not isinstance(rows.candidates, np.ndarray),
            allow_rows=self.allow_rows,
            scale=self.scale,
            epochs=self.epochs,
        )
        shown = report if self.verbose else None
        found = compare(**given, tried=tried, budget=self.budget, random_state=seed, on_outcome=shown)
        chosen = found.best.option.estimator(seed, unseen="keep", verbose=self.verbose)
        given["y"] = given.pop("candidates")
        self.estimator_ = chosen.fit(**given, sample_weight=rows.weight)
        self.confidence_, self.outside_ = chosen.confidence_, chosen.outside_
        self.config_ = getattr(chosen, "config_", {}) | {"choice": found.as_dict()}
        chosen.config_ = self.config_

    def _scores(self, X: np.ndarray) -> np.ndarray:
        return self.estimator_.predict_proba(X)

    def _fit_scaler(self, X: np.ndarray, clean_X: np.ndarray) -> None:
        self.scaler_ = None  # the one that is chosen scales
