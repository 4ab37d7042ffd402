"""PRODEN: progressive identification of true labels (Lv et al., ICML 2020)."""

from __future__ import annotations

from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Output
from mogd.methods.common import posterior


class PRODEN(Method):
    """Cross entropy weighted by the posterior on the candidates as it was at the row's last visit."""

    updates_confidence = True
    is_posterior = True
    uses_log_prior = True

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        return posterior(out.opinion, batch.candidates)  # from the pass before the step
