"""Supervised: the ordinary cross entropy, for rows whose label is known."""

from __future__ import annotations

from torch import Tensor

from mogd.methods.base import Batch, Method
from mogd.methods.common import weighted_cross_entropy


class Supervised(Method):
    """Cross entropy on the true labels: the upper bound of every table. A row with several candidates weighs nothing.

    Give it true labels `(n,)` for the bound, or partial rows for "what the unambiguous rows alone teach".
    """

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        known = batch.candidates.sum(dim=1) == 1
        return known * weighted_cross_entropy(logits, batch.candidates.to(logits.dtype))
