"""CC: the classifier-consistent loss (Feng et al., NeurIPS 2020)."""

from __future__ import annotations

from torch import Tensor

from mogd.methods.base import Batch, Method
from mogd.methods.common import log_candidate_mass


class CC(Method):
    """Minus the logarithm of the probability that the model gives to the candidates together."""

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return -log_candidate_mass(logits, batch.candidates)  # the paper's constant −log 1/(2^(K−1) − 1) moves nothing
