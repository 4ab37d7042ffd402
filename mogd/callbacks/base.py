"""What a callback is, and the run that it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Output, TrainingData

Entry = dict[str, Any]  # of the history
Augment = Callable[[Tensor, Tensor], Tensor]  # of images and their row numbers


class Optimisation(Protocol):
    """How to optimise, as far as callbacks ask."""

    @property
    def epochs(self) -> int: ...

    @property
    def batch_size(self) -> int: ...

    @property
    def lr(self) -> float: ...

    def build(self, *parameters: list[nn.Parameter]) -> torch.optim.Optimizer: ...

    def lr_at(self, epoch: float) -> float: ...


@dataclass
class Run:
    """One training run: what is trained, on what, and how far it has come."""

    model: nn.Module
    method: Method
    data: TrainingData
    settings: Optimisation
    generator: torch.Generator
    callbacks: Sequence[Callback] = ()
    augment: Augment | None = None
    owner: Any = None  # the estimator that is being fitted, where there is one
    history: list[Entry] = field(default_factory=list)
    stop: bool = False  # set it to end the run after this epoch
    confidence: Tensor | None = None  # (n, K), of every row as it was at its last visit

    def optimizer(self) -> torch.optim.Optimizer:
        """A new optimizer over the model's parameters, the method's and the callbacks'."""
        of_callbacks = [p for callback in self.callbacks for p in callback.parameters()]
        return self.settings.build([*self.model.parameters()], [*self.method.parameters()], of_callbacks)

    def batch(self, index: Tensor, confidence: Tensor, progress: float) -> Batch:
        """The rows `index` as one batch, augmented."""
        data = self.data
        return Batch(
            index=index,
            x=data.x[index] if self.augment is None else self.augment(data.x[index], index),
            candidates=data.candidates[index],
            confidence=confidence,
            weight=data.weight[index],
            is_clean=data.is_clean[index],
            progress=progress,
            wants_features=any(callback.wants_features for callback in self.callbacks),
        )

    def note(self, entry: Entry) -> None:
        """Show an entry to every callback, each of which may add to it, and keep it in the history."""
        for callback in self.callbacks:
            callback.on_epoch_end(self, entry)
        self.history.append(entry)


class Callback(BaseEstimator):
    """A refinement or an observer of training: every hook may stay as it is.

    A callback is a scikit-learn parameter object: the constructor stores, `start` builds what it keeps, in attributes
    that end in `_`.
    """

    wants_features: ClassVar[bool] = False  # whether it reads `Output.features`

    @classmethod
    def name(cls) -> str:
        """How it is called in recipes, the shell and `config_`: `LossSchedule` is "loss-schedule"."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__).lower()

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        """Why it cannot be used here, as the end of a sentence; None where it can."""
        return None

    def start(self, run: Run) -> None:
        """Build what it keeps; called once, before the method starts."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """What to optimise beside the model."""
        return []

    def before_training(self, run: Run) -> None:
        """A phase of its own, before the first epoch."""

    def on_batch(self, batch: Batch) -> Batch:
        """The batch as the method shall see it: other row weights, another surrogate."""
        return batch

    def on_output(self, out: Output, batch: Batch) -> None:
        """Add to the opinions on the labels (`out.log_prior`) or to the losses (`out.add_losses`)."""

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        """Look at the run and add to the entry of its history."""

    def findings(self) -> dict[str, Any]:
        """What it found, as plain values by name; `config_` keeps it."""
        return {}

    def end(self, run: Run) -> None:
        """Called once, after the last epoch."""
