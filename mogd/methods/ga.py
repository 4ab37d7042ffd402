"""GA: complementary-label learning with gradient ascent (Ishida et al., ICML 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.rows import parts_of


class GA(Method):
    """Every label that a row rules out is a complementary label; where a class's risk turns negative, step back up."""

    takes_class_weight = False
    one_process = "its loss compares the classes of a whole batch, of which each process would see a part"

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        weight, sets = data.weight, data.candidates
        pairs = torch.stack([weight[part] @ (~sets[part]).to(weight.dtype) for part in parts_of(sets)]).sum(dim=0)
        self.prior_ = valid_prior(pairs / pairs.sum().clamp(min=1e-12))  # π̄_k, over the whole training set

    def risks(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The risk of each class on the batch, and how much weight of complementary labels each class has there."""
        ruled_out = (~batch.candidates).to(logits.dtype) * batch.weight[:, None]
        count = ruled_out.sum(dim=0)
        share = ruled_out / count.clamp(min=1e-12)  # of a row in Ê_j; a class absent from the batch counts nothing
        losses = -log_softmax(logits, dim=1)  # ℓ_k
        # Σ_j π̄_j Ê_j[ℓ_k] − (K − 1) π̄_k Ê_k[ℓ_k], without the K×K matrix of all Ê_j[ℓ_k]
        risk = (share @ self.prior_) @ losses - (len(count) - 1) * self.prior_ * (share * losses).sum(dim=0)
        return risk, count

    def objective(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        risk, count = self.risks(out.logits, batch)
        negative = (risk * count / count.mean().clamp(min=1e-12)).clamp(max=0).sum()
        # the gradient of the negated sum is the negated gradient: ascent by the same optimizer
        return -negative if negative < 0 else risk.sum()


def valid_prior(share: Tensor) -> Tensor:
    """The shares of the complementary labels, moved to where no class is rarer than never.

    In the paper's model `π̄_k = (1 − π_k) / (K − 1)`. Candidate sets leave true complementary labels out, so that a rare
    class can have a larger share than that: its implied π_k is negative, and ascent would make it the only prediction.
    """
    others = max(1, len(share) - 1)
    implied = (1 - others * share).clamp(min=0)
    return (1 - implied / implied.sum().clamp(min=1e-12)) / others
