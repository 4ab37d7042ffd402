"""RC: the risk-consistent estimator (Feng et al., NeurIPS 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Output
from mogd.methods.common import fresh_logits, posterior


class RC(Method):
    """Cross entropy weighted by the model's own posterior on the candidates, taken anew after every step."""

    updates_confidence = True
    is_posterior = True
    uses_log_prior = True

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        out.logits = fresh_logits(model, batch.x)  # after the step
        return posterior(out.opinion, batch.candidates)
