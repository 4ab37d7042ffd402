"""RC: the risk-consistent estimator (Feng et al., NeurIPS 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Step
from mogd.methods.common import fresh_logits, posterior, weighted_cross_entropy


class RC(Method):
    """Cross entropy weighted by the model's own posterior on the candidates, taken anew after every step."""

    keeps_confidence = True

    def train_batch(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        step(batch.mean(weighted_cross_entropy(model(batch.x), batch.confidence)))
        return posterior(fresh_logits(model, batch.x), batch.candidates)  # after the step
