"""LWS: the leveraged weighted loss with the sigmoid (Wen et al., ICML 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Step, TrainingData
from mogd.methods.common import fresh_logits, posterior


class LWS(Method):
    """Candidates are pushed up and the other labels down, each side by the labels that the model finds likely.

    `beta` leverages the side of the labels that are ruled out.
    """

    keeps_confidence = True

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = beta

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        n_classes = data.candidates.shape[1]
        self.weight_ = torch.full_like(data.candidates, 1 / n_classes, dtype=data.weight.dtype)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        weight = self.weight_[batch.index]
        # −z on the candidates, z off them: one sigmoid for both sides
        sigmoid = torch.sigmoid(torch.where(batch.candidates, -logits, logits))
        return (torch.where(batch.candidates, weight, self.beta * weight) * sigmoid).sum(dim=1)

    def train_batch(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        step(batch.mean(self.loss(model(batch.x), batch)))
        logits = fresh_logits(model, batch.x)
        confidence = posterior(logits, batch.candidates)  # each side is normalised for itself
        others = posterior(logits, ~batch.candidates)  # undefined, and not asked for, where no label is ruled out
        self.weight_[batch.index] = torch.where(batch.candidates, confidence, others)
        return confidence
