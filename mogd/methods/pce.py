"""PCE: partial cross entropy, the cross entropy summed over the candidates (MoGD paper, Eq. 1)."""

from __future__ import annotations

from torch import Tensor

from mogd.methods.base import Batch, Method, Output


class PCE(Method):
    """Every candidate counts as true: MoGD without the meta objective.

    `reduction="mean"` divides each row by its number of candidates, so that the loss has the scale of a cross entropy;
    "sum" is Eq. 1 as printed, in which a row weighs as much as it has candidates.
    """

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def confidence(self, out: Output, batch: Batch) -> Tensor:
        if self.reduction not in ("mean", "sum"):
            raise ValueError(f"reduction must be 'mean' or 'sum'; got {self.reduction!r}")
        labels = batch.candidates.to(out.logits.dtype)  # y_ij of Eq. 1
        return labels / labels.sum(dim=1, keepdim=True) if self.reduction == "mean" else labels
