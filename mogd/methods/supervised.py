"""Supervised: the ordinary cross entropy, for rows whose label is known."""

from __future__ import annotations

from torch import Tensor

from mogd.methods.base import Batch, Method, Output


class Supervised(Method):
    """Cross entropy on the true labels: the upper bound of every table. A row with several candidates weighs nothing.

    Give it true labels `(n,)` for the bound, or partial rows for "what the unambiguous rows alone teach".
    """

    uses_surrogate = True

    def losses(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        known = batch.candidates.sum(dim=1) == 1
        return known * batch.surrogate(out.logits, batch.candidates.to(out.logits.dtype))
