"""LWS: the leveraged weighted loss with the sigmoid (Wen et al., ICML 2021), and its cross-entropy sibling LWC."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import fresh_logits, posterior


class LWS(Method):
    """Candidates are pushed up and the other labels down, each side by the labels that the model finds likely.

    Parameters
    ----------
    beta : leverage of the side of the labels that are ruled out.
    surrogate : "sigmoid" for LWS, "cross-entropy" for the paper's LWC.
    warmup_epochs : epochs for which all labels of a row weigh the same; the authors' code has one.
    """

    updates_confidence = True
    needs_all_cells = True
    is_posterior = True

    def __init__(self, beta: float = 1.0, surrogate: str = "sigmoid", warmup_epochs: int = 1) -> None:
        self.beta = beta
        self.surrogate = surrogate
        self.warmup_epochs = warmup_epochs

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        if self.surrogate not in ("sigmoid", "cross-entropy"):
            raise ValueError(f"surrogate must be 'sigmoid' or 'cross-entropy'; got {self.surrogate!r}")
        assert isinstance(data.candidates, Tensor)
        n_classes = data.candidates.shape[1]
        equal = torch.full_like(data.candidates, 1 / n_classes, dtype=data.weight.dtype)
        self.weight_ = torch.where(data.candidates, equal, self.beta * equal)  # with the leverage in it
        self.epoch_ = 0

    def row_state(self) -> list[Tensor]:
        return [self.weight_]

    def losses(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        logits = out.logits
        if self.surrogate == "sigmoid":  # −z on the candidates, z off them: one sigmoid for both sides
            cost = torch.sigmoid(logits * torch.where(batch.candidates, -1.0, 1.0).to(logits.dtype))
        else:
            log_p = log_softmax(logits, dim=1)
            highest = 1 - torch.finfo(logits.dtype).eps
            cost = -torch.where(batch.candidates, log_p, torch.log1p(-log_p.exp().clamp(max=highest)))
        return (self.weight_.index_select(0, batch.index) * cost).sum(dim=1)

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        logits = fresh_logits(model, batch.x)
        confidence = posterior(logits, batch.candidates)  # each side is normalised for itself
        if self.epoch_ + 1 >= self.warmup_epochs:
            # undefined, and not asked for, where no label is ruled out
            others = self.beta * torch.softmax(logits.masked_fill(batch.candidates, -torch.inf), dim=1)
            self.weight_[batch.index] = torch.where(batch.candidates, confidence, others)
        return confidence

    def epoch_end(self, model: nn.Module, epoch: int) -> None:
        self.epoch_ = epoch + 1
