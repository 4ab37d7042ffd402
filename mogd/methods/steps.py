"""Step rules: how far the alignments with the clean rows move the confidences, in logits."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mogd.methods.base import Batch, TrainingData
from mogd.methods.shrinkage import Compared, Shrinkage

MOMENTUM = 0.98  # of the running means behind the shrinkage and the scale: 50 steps
FULL_RATIO = 20  # partial rows to each clean one at which a step has its full length
LONGEST = 1.5  # a step's length at most, in units of that (docs/studies/strength.md)


def clean_ratio(n_clean: int, n_partial: int) -> float:
    """How many clean rows there are beside the partial ones: 1 where one row in twenty is clean."""
    return FULL_RATIO * n_clean / max(n_partial, 1)


class StepRule:
    """`beta · alignment` where `beta` is given, else `strength · alignment / rms`: a typical step, whatever the scale.

    With `shrink` the step is multiplied by how far two halves of the clean rows agree and by their ratio to the other
    rows, and leaves alone the candidates of whose class there is no clean row.
    """

    def __init__(self, strength: float, beta: float | None, shrink: bool, data: TrainingData, every: int = 1) -> None:
        self.strength, self.beta, self.shrink = strength, beta, shrink
        _, clean_y = data.guides
        self.has_clean_rows = torch.bincount(clean_y, minlength=data.n_classes) > 0
        self.ratio = clean_ratio(len(clean_y), data.n_partial)
        self.means = Shrinkage()
        self.every = every  # steps between two looks at the scale and the halves
        self.steps = 0
        self.size = 0.0  # what the alignment is multiplied by

    def __call__(self, alignments: Sequence[Tensor], batch: Batch) -> Tensor:
        """The move of each label's logit."""
        compared = Compared(batch.candidates & self.has_clean_rows if self.shrink else batch.candidates)
        if self.shrink:
            alignments = [compared.centre(a) for a in alignments]
        mean = average(alignments)
        if self.steps % self.every == 0:
            self.means.note(alignments, mean, compared, MOMENTUM**self.every)
            self.size = self._size()
        self.steps += 1
        return self.size * mean

    def _size(self) -> float:
        size = self.strength / self.means.rms() if self.beta is None else self.beta
        return size * min(LONGEST, self.ratio) * self.means.factor() if self.shrink else size

    def history(self) -> dict[str, float]:
        """The alignment's root mean square and, where the halves are compared, the shrinkage."""
        noted = {"alignment": self.means.rms()}
        return noted | ({"shrinkage": self.means.factor()} if self.shrink else {})


def average(alignments: Sequence[Tensor]) -> Tensor:
    """The alignment with the whole clean set, from those with its halves."""
    return alignments[0] if len(alignments) == 1 else (alignments[0] + alignments[1]) / 2


def sum_normalised(alignments: Sequence[Tensor], batch: Batch) -> Tensor:
    """Ren et al. (2018): positive alignments divided by their row's sum; a row without one carries no weight."""
    helpful = average(alignments).clamp(min=0) * batch.candidates
    total = helpful.sum(dim=1, keepdim=True)
    return torch.where(total > 0, helpful / total, 0.0)
