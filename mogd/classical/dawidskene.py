"""Dawid–Skene: each annotator has a confusion matrix, found together with the truth (Dawid and Skene 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mogd.classical.common import require
from mogd.classical.votes import VoteEstimator
from mogd.crowd import dawid_skene, partial_weight
from mogd.estimator import Rows


class DawidSkene(VoteEstimator):
    """The truth of each row is inferred from who said what; a logistic regression on it predicts new rows.

    Give the clean rows' own votes to `fit` as `candidates_val`: they show what each annotator says where the truth is
    known. Plain sets have no votes: they stay uniform over their candidates.

    Parameters
    ----------
    partial_weight : what a row of unknown truth counts in the confusion matrices beside a clean one. 1 is the algorithm
        as published; "auto" lets all of them together count as much as the clean rows.
    shrinkage : votes that the common matrix of all annotators is worth in each one's own; None finds the most probable.
    C : inverse strength of the regression's penalty, as in scikit-learn.
    clean_weight : weight of a clean row in the regression; 0 leaves the clean rows out of everything.
    scale, classes, unseen : as everywhere in the library.

    Attributes
    ----------
    sources_ : the annotators' names. confusion_ : P(said l | truth j), [annotator, j, l].
    reliability_ : the probability that each annotator says the truth.
    """

    learned = (*VoteEstimator.learned, "confusion_", "reliability_")

    def __init__(
        self,
        partial_weight: float | str = 1.0,
        shrinkage: float | None = None,
        C: float = 1.0,
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
    ) -> None:
        self.partial_weight = partial_weight
        self.shrinkage = shrinkage
        self.C = C
        self.clean_weight = clean_weight
        self.scale = scale
        self.classes = classes
        self.unseen = unseen

    def _resolve(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        weight, shrinkage = self.partial_weight, self.shrinkage
        is_number = isinstance(weight, (int, float, np.number))
        require(weight == "auto" or (is_number and float(weight) > 0), "partial_weight", "'auto' or above 0", weight)
        require(shrinkage is None or shrinkage > 0, "shrinkage", "None or greater than 0", shrinkage)
        n_classes = rows.candidates.shape[1]
        if rows.evidence is None:
            self.sources_, self.confusion_ = np.empty(0, dtype=str), np.empty((0, n_classes, n_classes))
            self.reliability_ = np.empty(0)
            uniform = rows.candidates / rows.candidates.sum(axis=1, keepdims=True)
            return uniform, uniform
        if rows.evidence.kind != "votes":
            raise ValueError("dawid-skene needs votes of several annotators, but y holds scores: use majority")
        use_clean = self.clean_weight > 0
        gold = rows.clean_evidence if use_clean else None
        if weight == "auto":
            weight = partial_weight(rows.n_partial, 0 if gold is None else len(gold), n_classes)
        fit = dawid_skene(
            rows.evidence,
            rows.candidates,
            gold,
            rows.clean_y if use_clean else None,
            weight=float(weight),
            shrinkage=shrinkage,
        )
        self.sources_, self.confusion_ = rows.evidence.sources, fit.confusions.matrices
        self.reliability_ = fit.confusions.reliability(fit.prior)
        return fit.confidence, fit.confidence
