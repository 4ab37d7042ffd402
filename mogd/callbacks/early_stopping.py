"""EarlyStopping: held-out clean rows decide when to stop, and which epoch to keep."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mogd.callbacks.base import Callback, Entry, Run
from mogd.methods.base import Method, TrainingData
from mogd.methods.common import forward_in_chunks

LEAST = 5  # held-out rows: the loss of fewer is noise


class EarlyStopping(Callback):
    """Stop when the loss of held-out clean rows has not fallen for `patience` epochs; keep the best epoch's weights.

    Parameters
    ----------
    patience : epochs without a lower loss before the run ends.
    holdout : the part of the clean rows, drawn at random, that neither trains nor guides: its loss decides.
    """

    def __init__(self, patience: int = 10, holdout: float = 0.2) -> None:
        self.patience = patience
        self.holdout = holdout

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        n_held = round(self.holdout * len(data.clean_y))
        if n_held >= LEAST and n_held < len(data.clean_y):
            return None
        return (
            f"it needs at least {LEAST} clean rows to hold out; {self.holdout:.0%} of {len(data.clean_y)} are {n_held}"
        )

    def start(self, run: Run) -> None:
        self.held_x, self.held_y = run.hold_out(round(self.holdout * len(run.data.clean_y)))
        self.best_, self.waited_ = float("inf"), 0
        self.state_: dict[str, torch.Tensor] | None = None

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        if "phase" in entry:
            return
        logits = forward_in_chunks(run.model, self.held_x)
        entry["held_out_loss"] = loss = float(cross_entropy(logits, self.held_y))
        entry["held_out_accuracy"] = float((logits.argmax(dim=1) == self.held_y).double().mean())
        self.waited_ += 1
        if loss < self.best_:
            self.best_, self.waited_, self.state_ = loss, 0, copy.deepcopy(run.model.state_dict())
        run.stop = run.stop or self.waited_ >= self.patience

    def end(self, run: Run) -> None:
        if self.state_ is not None:
            run.model.load_state_dict(self.state_)
        self.state_ = None
