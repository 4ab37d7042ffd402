"""D²CNN: a discriminative network with temporal ensembling (Yao et al., AAAI 2020), reconstructed.

No code is public and the formulas are not at hand: the three terms are the paper's, their form is ours (see the page).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import posterior, with_known_gradient


class D2CNN(Method):
    """Fidelity to the candidates, a low entropy among them, and agreement with the running mean of past outputs.

    Parameters
    ----------
    discrimination : weight of the entropy term.
    ensembling : weight of the temporal term after its ramp.
    output_momentum : of the running mean of the outputs.
    ramp : epochs over which the temporal term rises, as `exp(−5 (1 − t/ramp)²)`.
    """

    updates_confidence = True
    needs_all_cells = True

    def __init__(
        self, discrimination: float = 0.1, ensembling: float = 1.0, output_momentum: float = 0.6, ramp: int = 80
    ) -> None:
        self.discrimination = discrimination
        self.ensembling = ensembling
        self.output_momentum = output_momentum
        self.ramp = ramp

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        assert isinstance(data.candidates, Tensor)
        self.outputs_ = torch.zeros_like(data.candidates, dtype=data.weight.dtype)
        self.epoch_ = 0

    def row_state(self) -> list[Tensor]:
        return [self.outputs_]

    def objective(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        loss, gradient = self._parts(out.logits.detach(), batch)
        share = batch.weight / batch.weight.sum().clamp(min=1e-12)
        return with_known_gradient(torch.dot(share, loss), [out.logits], [gradient.mul_(share[:, None])])

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        p = torch.softmax(out.logits.detach(), dim=1)
        outputs = torch.lerp(p, self.outputs_.index_select(0, batch.index), self.output_momentum)
        self.outputs_[batch.index] = outputs
        # outputs on the candidates, normalised: the start-up factor 1/(1 − momentum^t) cancels
        kept = outputs.clamp_(min=torch.finfo(outputs.dtype).tiny).mul_(batch.candidates)
        return kept.div_(kept.sum(dim=1, keepdim=True))

    def epoch_end(self, model: nn.Module, epoch: int) -> None:
        self.epoch_ = epoch + 1

    def _parts(self, logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss of each row, and its derivative by the logits."""
        log_p = log_softmax(logits, dim=1)
        p = log_p.exp()
        q = posterior(logits, batch.candidates)  # S⊙p / Σ_S p
        expected = (q * log_p).sum(dim=1)  # no log of a zero
        fidelity = -log_p.masked_fill(~batch.candidates, -torch.inf).logsumexp(dim=1)  # −log Σ_S p
        entropy = -fidelity - expected  # of q
        drift = p - batch.confidence
        weight = self.ensembling * self._ramp()
        loss = fidelity + self.discrimination * entropy + weight * drift.square().sum(dim=1)
        by_entropy = q * (expected[:, None] - log_p)  # −q (log q + entropy)
        by_drift = p * (drift - (p * drift).sum(dim=1, keepdim=True))
        return loss, (p - q).add_(by_entropy, alpha=self.discrimination).add_(by_drift, alpha=2 * weight)

    def _ramp(self) -> float:
        return math.exp(-5 * (1 - min(1.0, self.epoch_ / max(1, self.ramp))) ** 2)
