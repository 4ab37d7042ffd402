"""What a deep method is, and what it is shown: `TrainingData` once, then a `Batch` at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

Step = Callable[[Tensor], Any]


@dataclass
class TrainingData:
    """The whole training set as tensors on the device, made once. Clean rows that train too are its last rows."""

    x: Tensor
    candidates: Tensor  # (n, K) bool
    weight: Tensor  # (n,) weight of each row in the loss
    clean_x: Tensor
    clean_y: Tensor  # class indices
    epochs: int = 1  # of the whole run, for what is scheduled over it


@dataclass
class Batch:
    """The rows of one step; `index` says which rows of the training set they are."""

    index: Tensor
    x: Tensor
    candidates: Tensor  # (b, K) bool
    confidence: Tensor  # (b, K), zero off the candidates
    weight: Tensor  # (b,)

    def mean(self, losses: Tensor) -> Tensor:
        """The weighted mean of one loss per row."""
        return (self.weight * losses).sum() / self.weight.sum()


class Method(BaseEstimator):
    """One deep paper. Write `loss` when the confidences do not change; write `train_batch` when the order matters.

    A method is a scikit-learn parameter object: the constructor stores, `start` builds what the paper keeps. It owns
    no loop, no optimizer and no device code, so that `train_batch(net, batch, step=losses.append)` tests it.
    """

    needs_clean_set = False
    keeps_confidence = False  # whether train_batch gives new confidences; otherwise the final posterior is reported
    train_on_clean: bool = True  # whether clean rows join the training rows with one candidate each

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        """Build what the paper keeps; called once, before the optimizer exists."""

    def clean_weight(self, n_clean: int, n_rows: int) -> float:
        """The weight of a clean row in the loss, where the user names none."""
        return 1.0

    def parameters(self) -> Iterable[nn.Parameter]:
        """What to optimise beside the model."""
        return []

    def init_confidence(self, candidates: Tensor) -> Tensor:
        """The confidence before the first step: uniform over each row's candidates."""
        return candidates.double() / candidates.sum(dim=1, keepdim=True)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Rung 1: one loss per row of the batch."""
        raise NotImplementedError(f"{type(self).__name__} must implement loss or train_batch")

    def train_batch(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """Rung 2: one step of the paper; call `step(loss)` (once, as a rule) and return the rows' new confidence."""
        step(batch.mean(self.loss(model(batch.x), batch)))
        return batch.confidence

    def epoch_end(self, model: nn.Module, epoch: int) -> dict[str, float] | None:
        """Whatever happens between epochs; what is returned is noted in the history."""
        return None
