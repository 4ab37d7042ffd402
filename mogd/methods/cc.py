"""CC: the classifier-consistent loss (Feng et al., NeurIPS 2020)."""

from __future__ import annotations

from torch import Tensor

from mogd.methods.base import Batch, Method, Output
from mogd.methods.common import posterior


class CC(Method):
    """`−log Σ_S p`, by its gradient: that of the cross entropy weighted by the posterior on the candidates."""

    is_posterior = True
    uses_log_prior = True

    def confidence(self, out: Output, batch: Batch) -> Tensor:
        return posterior(out.opinion, batch.candidates)
