"""EXP: the bounded exponential loss for multiple complementary labels (Feng et al., ICML 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from mogd.methods.base import Batch, Method, Output
from mogd.methods.common import complementary


class EXP(Method):
    """`2(K−1)/s · exp(−P_S)`, with P_S the probability of the candidates and s the number of labels ruled out.

    A row that rules out no label says nothing here and carries no weight.
    """

    def losses(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        _, per_ruled_out = complementary(batch.candidates, out.logits.dtype)
        inside = (torch.softmax(out.logits, dim=1) * batch.candidates).sum(dim=1)
        return 2 * (out.logits.shape[1] - 1) * per_ruled_out * torch.exp(-inside)  # Eq. 12
