"""Majority vote: the label that most sources gave, and a logistic regression on it for new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mogd.classical.votes import VoteEstimator, uniform
from mogd.crowd import majority, vote_shares
from mogd.estimator import Rows


class Majority(VoteEstimator):
    """The label with the greatest weight of votes (or of scores) wins; a logistic regression predicts new rows.

    `confidence_` is each candidate's share of the weight. The regression is trained on the winners; where several tie,
    on all of them in equal parts. Plain sets have no votes: they stay uniform over their candidates.

    Parameters
    ----------
    C : inverse strength of the regression's penalty, as in scikit-learn.
    clean_weight : weight of a clean row in the regression.
    scale, classes, unseen : as everywhere in the library.
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        clean_weight: float = 1.0,
        scale: str | None = None,
        classes: Sequence[Any] | None = None,
        unseen: str = "warn",
    ) -> None:
        self.C = C
        self.clean_weight = clean_weight
        self.scale = scale
        self.classes = classes
        self.unseen = unseen

    def _resolve(self, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
        if rows.evidence is None:
            return (uniform(rows.candidates),) * 2
        return vote_shares(rows.evidence, rows.candidates), majority(rows.evidence, rows.candidates)
