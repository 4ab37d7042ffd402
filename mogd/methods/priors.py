"""Priors: the confidence from which a step starts, as a logarithm up to a constant of each row."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mogd.methods.base import Batch, Output, TrainingData
from mogd.methods.common import posterior
from mogd.methods.rows import by_rows

Prior = Callable[[Output, Batch], Tensor]


def uniform(out: Output, batch: Batch) -> Tensor:
    """The paper's: every candidate alike."""
    return torch.zeros_like(out.logits)


def of_network(out: Output, batch: Batch) -> Tensor:
    """The network's own probabilities."""
    return out.network_exponent * out.logits.detach()


class LastVisit:
    """The network's probabilities on the candidates as they were when the row was last visited."""

    def __init__(self, data: TrainingData) -> None:
        self.seen = by_rows(_equal_shares, data.candidates).to(data.weight.dtype)

    def __call__(self, out: Output, batch: Batch) -> Tensor:
        before = self.seen[batch.index]
        self.seen[batch.index] = posterior(out.logits.detach(), batch.candidates)
        return out.network_exponent * before.clamp(min=1e-12).log()


def _equal_shares(candidates: Tensor) -> Tensor:
    return candidates.double() / candidates.sum(dim=1, keepdim=True)


PRIORS = ("posterior", "running", "uniform")


def make_prior(name: str, data: TrainingData) -> Prior:
    """A prior by its name."""
    return {"posterior": of_network, "uniform": uniform}.get(name) or LastVisit(data)
