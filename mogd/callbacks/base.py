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
from mogd.methods.rows import Rows

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
class Position:
    """How far a run has come. Between epochs there is no order; within one, `step` of its batches are over."""

    epoch: int = 0  # epochs that are over
    step: int = 0
    order: Tensor | None = None  # of the rows in the present epoch
    losses: Tensor | None = None  # of its batches
    seconds: float = 0.0  # that it took before it was interrupted


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
    at: Position = field(default_factory=Position)
    confidence: Rows = field(default_factory=lambda: torch.empty(0))  # of every row, once the method has started
    optimizer: torch.optim.Optimizer | None = None  # of the epochs; a phase before them has its own
    interrupted: bool = False  # by Ctrl-C: the run ends after the current batch

    def new_optimizer(self) -> torch.optim.Optimizer:
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

    def hold_out(self, count: int) -> tuple[Tensor, Tensor]:
        """So many clean rows, drawn at random, that from now on neither train nor guide: their rows and labels."""
        data = self.data
        order = torch.randperm(len(data.clean_y), generator=self.generator).to(data.clean_y.device)
        held, kept = order.tensor_split([count])
        x, y = data.clean_x[held], data.clean_y[held]
        if len(data.clean_rows):
            data.weight[data.clean_rows[held]] = 0.0
        data.keep_clean(kept)
        return x, y

    def note(self, entry: Entry) -> None:
        """Show an entry to every callback, each of which may add to it, and keep it in the history."""
        for callback in self.callbacks:
            callback.on_epoch_end(self, entry)
        self.history.append(entry)

    def save_point(self) -> None:
        """Let the run be saved as it stands."""
        for callback in self.callbacks:
            callback.on_save_point(self)

    def check_interrupt(self) -> None:
        """Where Ctrl-C was pressed, let the run be saved and end it."""
        if not self.interrupted:
            return
        notes = [note for callback in self.callbacks if (note := callback.on_interrupt(self))]
        where = f"epoch {min(self.at.epoch + 1, self.settings.epochs)} of {self.settings.epochs}"
        where += f" after batch {self.at.step}" if self.at.step else ""
        lost = (
            "nothing is saved; a run with callbacks=['auto', Checkpoint('FOLDER')] (in the shell --checkpoint FOLDER) "
            "can be resumed"
        )
        raise KeyboardInterrupt(f"training was interrupted in {where}: {'; '.join(notes) or lost}")


class Callback(BaseEstimator):
    """A refinement or an observer of training: every hook may stay as it is.

    A callback is a scikit-learn parameter object: the constructor stores, `start` builds what it keeps, in attributes
    that end in `_`. These are what a checkpoint holds of it; what `start` can build again from the data needs no `_`.
    """

    observer: ClassVar[bool] = False  # whether it looks on: without it the same is learned
    starts_last: ClassVar[bool] = False  # whether it asks which clean rows others have left to it
    has_task: ClassVar[bool] = False  # whether its further losses are to be learned in a phase before training, too
    wants_features: ClassVar[bool] = False  # whether it reads `Output.features`
    weighs_network: ClassVar[bool] = False  # whether its exponents are for the network as it is in training

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

    def restore(self, run: Run) -> bool:
        """Put the run where an earlier one stood, and say whether there was one; called once the method has started."""
        return False

    def before_training(self, run: Run) -> None:
        """A phase of its own, before the first epoch."""

    def on_batch(self, batch: Batch) -> Batch:
        """The batch as the method shall see it: other row weights, another surrogate."""
        return batch

    def on_output(self, out: Output, batch: Batch) -> None:
        """Add to the opinions on the labels (`out.log_prior`) or the losses (`out.add_losses`), or weigh the rows."""

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        """Look at the run and add to the entry of its history."""

    def on_save_point(self, run: Run) -> None:
        """Called where the run can be saved as it stands: before the first epoch, and when each one is noted."""

    def on_interrupt(self, run: Run) -> str | None:
        """Ctrl-C was pressed, and a batch is over: save what can be, and say how to go on."""
        return None

    def findings(self) -> dict[str, Any]:
        """What it found, as plain values by name; `config_` keeps it."""
        return {}

    def end(self, run: Run) -> None:
        """Called once, after the last epoch."""
