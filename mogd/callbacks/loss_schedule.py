"""LossSchedule: one-vs-all first, cross entropy between, squared error last."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from mogd.callbacks.base import Callback
from mogd.methods.base import Batch, Method, TrainingData
from mogd.methods.common import one_vs_all, squared_error

FINISH_SCALE = 5.0  # of the squared error, whose gradient is the smaller one; 2 and 10 do the same in training folds
ROUNDING = 1e-9


class LossSchedule(Callback):
    """The loss of the weighted labels over the run, for every method that leaves its choice open.

    Parameters
    ----------
    warmup_fraction : of the epochs, the first ones, in which the loss is a logistic regression for every class by
        itself, so that the confidences settle later.
    finish_fraction : of the epochs, the last ones, in which it is the squared error of the probabilities: rows that the
        model cannot fit count for less.
    """

    def __init__(self, warmup_fraction: float = 0.5, finish_fraction: float = 0.25) -> None:
        self.warmup_fraction = warmup_fraction
        self.finish_fraction = finish_fraction

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if method.uses_surrogate:
            return None
        return "its loss is its own, so that there is no other to put in its place"

    def on_batch(self, batch: Batch) -> Batch:
        if batch.progress < self.warmup_fraction:
            return replace(batch, surrogate=one_vs_all)
        if batch.progress > 1 - self.finish_fraction - ROUNDING:
            return replace(batch, surrogate=_scaled_squared_error)
        return batch


def _scaled_squared_error(logits: Tensor, confidence: Tensor) -> Tensor:
    return FINISH_SCALE * squared_error(logits, confidence)
