"""Dawid–Skene: each annotator has a confusion matrix, found together with the truth (Dawid and Skene 1979)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mogd.classical.common import require
from mogd.classical.votes import VoteEstimator, uniform
from mogd.crowd import dawid_skene, partial_weight, weigh_votes
from mogd.estimator import Rows


class DawidSkene(VoteEstimator):
    """The truth of each row is inferred from who said what; a logistic regression on it predicts new rows.

    Give the clean rows' own votes to `fit` as `candidates_val`: they show what each annotator says where the truth is
    known. Plain sets have no votes: they stay uniform over their candidates.

    Parameters
    ----------
    partial_weight : what a row of unknown truth counts in the confusion matrices beside a clean one. 1 is the algorithm
        as published; "auto" lets all of them together count as much as the clean rows.
    exponents : let the clean rows' votes decide how far to follow who said it, and how far the mere count of the votes.
    shrinkage : votes that the common matrix of all annotators is worth in each one's own; None finds the most probable.
    C : inverse strength of the regression's penalty, as in scikit-learn.
    clean_weight : weight of a clean row in the regression; 0 leaves the clean rows out of everything.
    scale, classes, unseen : as everywhere in the library.

    Attributes
    ----------
    sources_ : the annotators' names. confusion_ : P(said l | truth j), [annotator, j, l].
    reliability_ : the probability that each annotator says the truth.
    exponents_ : of the annotators' opinion and of the count; 1 and 0 where they were not asked for.
    """

    learned = (*VoteEstimator.learned, "confusion_", "reliability_", "exponents_")

    def __init__(
        self,
        partial_weight: float | str = 1.0,
        exponents: bool = False,
        shrinkage: float | None = None,
        C: float = 1.0,
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
    ) -> None:
        self.partial_weight = partial_weight
        self.exponents = exponents
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
        self.exponents_ = np.array([1.0, 0.0])
        if rows.evidence is None:
            self.sources_, self.confusion_ = np.empty(0, dtype=str), np.empty((0, n_classes, n_classes))
            self.reliability_ = np.empty(0)
            return (uniform(rows.candidates),) * 2
        if rows.evidence.kind != "votes":
            raise ValueError("dawid-skene needs votes of several annotators, but y holds scores: use majority")
        clean_y, gold = (rows.clean_y, rows.clean_evidence) if self.clean_weight > 0 else (None, None)
        if weight == "auto":
            weight = partial_weight(len(rows.candidates), 0 if gold is None else len(gold), n_classes)
        found = dawid_skene(rows.evidence, rows.candidates, gold, clean_y, weight=float(weight), shrinkage=shrinkage)
        self.sources_, self.confusion_ = rows.evidence.sources, found.confusions.matrices
        self.reliability_ = found.confusions.reliability(found.prior)
        confidence = found.confidence
        if self.exponents and gold is not None:
            confidence, self.exponents_ = weigh_votes(found, rows.evidence, rows.candidates, gold, rows.clean_y)
        return confidence, confidence
