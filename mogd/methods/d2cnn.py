"""D²CNN: a discriminative network with temporal ensembling (Yao et al., AAAI 2020), reconstructed.

No code is public and the formulas are not at hand: the three terms are the paper's, their form is ours (see the page).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Step, TrainingData
from mogd.methods.common import log_candidate_mass, posterior


class D2CNN(Method):
    """Fidelity to the candidates, a low entropy among them, and agreement with the running mean of past outputs.

    Parameters
    ----------
    discrimination : weight of the entropy term.
    ensembling : weight of the temporal term after its ramp.
    momentum : of the running mean of the outputs.
    ramp : epochs over which the temporal term rises, as `exp(−5 (1 − t/ramp)²)`.
    """

    keeps_confidence = True

    def __init__(
        self, discrimination: float = 0.1, ensembling: float = 1.0, momentum: float = 0.6, ramp: int = 80
    ) -> None:
        self.discrimination = discrimination
        self.ensembling = ensembling
        self.momentum = momentum
        self.ramp = ramp

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        self.outputs_ = torch.zeros_like(data.candidates, dtype=data.weight.dtype)
        self.epoch_ = 0

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        fidelity = -log_candidate_mass(logits, batch.candidates)
        entropy = candidate_entropy(logits, batch.candidates)
        drift = (torch.softmax(logits, dim=1) - batch.confidence).square().sum(dim=1)
        return fidelity + self.discrimination * entropy + self.ensembling * self._ramp() * drift

    def train_batch(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        logits = model(batch.x)
        step(batch.mean(self.loss(logits, batch)))
        outputs = self.momentum * self.outputs_[batch.index]
        outputs = outputs + (1 - self.momentum) * torch.softmax(logits.detach(), dim=1)
        self.outputs_[batch.index] = outputs
        inside = outputs * batch.candidates  # the start-up factor 1/(1 − momentum^t) cancels here
        total = inside.sum(dim=1, keepdim=True)
        return torch.where(total > 0, inside / total, batch.confidence)

    def epoch_end(self, model: nn.Module, epoch: int) -> None:
        self.epoch_ = epoch + 1

    def _ramp(self) -> float:
        return math.exp(-5 * (1 - min(1.0, self.epoch_ / max(1, self.ramp))) ** 2)


def candidate_entropy(logits: Tensor, candidates: Tensor) -> Tensor:
    """`H(p̃)` with `p̃ = S⊙p / Σ_S p`, as `logsumexp_S z − Σ p̃ z`: no logarithm of a zero."""
    inside = posterior(logits, candidates)
    return logits.masked_fill(~candidates, -torch.inf).logsumexp(dim=1) - (inside * logits).sum(dim=1)
