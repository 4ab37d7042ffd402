"""CleanWeight: how much a clean row counts in the loss, and from when."""

from __future__ import annotations

from dataclasses import replace

import torch

from mogd.callbacks.base import Callback
from mogd.methods.base import Batch


class CleanWeight(Callback):
    """A clean row weighs `weight` times as much as another one, after the first `start_fraction` of the epochs.

    Few clean rows that weigh much from the beginning are memorised before the network has seen the others.
    """

    def __init__(self, weight: float = 5.0, start_fraction: float = 0.0) -> None:
        self.weight = weight
        self.start_fraction = start_fraction

    def on_batch(self, batch: Batch) -> Batch:
        if batch.progress < self.start_fraction:
            return batch
        return replace(batch, weight=torch.where(batch.is_clean, self.weight * batch.weight, batch.weight))
