"""MSE: the unbiased risk of multiple complementary labels with the squared loss (Feng et al., ICML 2020)."""

from __future__ import annotations

import torch
from torch import Tensor

from mogd.methods.base import Batch, Method, Output
from mogd.methods.common import complementary


class MSE(Method):
    """`Σ_S ℓ_y − (K−1−s)/s · Σ_S̄ ℓ_y` with `ℓ_y = ‖p − e_y‖²` and s labels ruled out, in closed form.

    A row that rules out no label says nothing here and carries no weight.
    """

    def losses(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        n_classes = out.logits.shape[1]
        s, per_ruled_out = complementary(batch.candidates, out.logits.dtype)
        p = torch.softmax(out.logits, dim=1)
        inside = (p * batch.candidates).sum(dim=1)
        # the ‖p‖² + 1 of all labels together count |S| − (K−1−s) = 1 time
        loss = (p * p).sum(dim=1) + 1 - 2 * inside + 2 * (n_classes - 1 - s) * per_ruled_out * (1 - inside)
        return loss * (s > 0)
