"""PRODEN: progressive identification of true labels (Lv et al., ICML 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Step
from mogd.methods.common import posterior, weighted_cross_entropy


class PRODEN(Method):
    """Cross entropy weighted by the posterior on the candidates as it was at the row's last visit."""

    keeps_confidence = True

    def train_batch(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        logits = model(batch.x)
        step(batch.mean(weighted_cross_entropy(logits, batch.confidence)))
        return posterior(logits.detach(), batch.candidates)  # from the pass before the step
