"""CleanPretraining: steps on the clean rows alone before all others, so that the first confidences are theirs."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mogd.callbacks.base import Callback, Run
from mogd.guard import all_finite, divergence
from mogd.methods.base import Method, Output, TrainingData
from mogd.methods.common import with_features

PHASE = "clean-pretraining"


class CleanPretraining(Callback):
    """A first phase on the clean rows, with entries of its own in the history (`phase`).

    Where other callbacks have a task of their own (a candidate-set head), as many partial rows are shown beside the
    clean ones and train that task alone.

    Parameters
    ----------
    fraction : of the steps of all epochs that this phase takes.
    lr : its learning rate, which does not decay; None takes the run's.
    augment : whether to show the rows as the run's augmentation changes them.
    """

    def __init__(self, fraction: float = 0.5, lr: float | None = None, augment: bool = True) -> None:
        self.fraction = fraction
        self.lr = lr
        self.augment = augment

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if not method.train_on_clean:
            return "its clean rows only guide, and do not train"
        return None if len(data.clean_y) > 1 else "it needs at least two clean rows"

    def before_training(self, run: Run) -> None:
        n_rows = min(run.settings.batch_size, len(run.data.x))
        epoch_steps = math.ceil(len(run.data.x) / run.settings.batch_size)
        left = round(self.fraction * run.settings.epochs * len(run.data.x) / n_rows)
        optimizer = run.new_optimizer()
        for group in optimizer.param_groups:
            group["lr"] = lr = run.settings.lr if self.lr is None else self.lr
        run.model.train()
        while left > 0:
            began, count = time.perf_counter(), min(left, epoch_steps)
            loss = sum(self._step(run, optimizer, n_rows) for _ in range(count)) / count
            left -= count
            if not all_finite(run.model.parameters()):
                raise self._divergence(run, "its gradient, or the step along it, is not finite", lr)
            entry = {"phase": PHASE, "epoch": 0, "steps": count, "loss": loss, "lr": lr}
            run.note(entry | {"seconds": time.perf_counter() - began})

    def _step(self, run: Run, optimizer: torch.optim.Optimizer, n_rows: int) -> float:
        data, draws = run.data, run.generator
        self.rows = rows = torch.randperm(len(data.clean_y), generator=draws)[:n_rows].to(data.clean_y.device)
        x, y = data.clean_x[rows], data.clean_y[rows]
        if run.augment is not None and self.augment:
            x = run.augment(x, data.clean_rows[rows])
        others = self._others(run, n_rows)
        if not len(others):
            loss = cross_entropy(run.model(x), y)
        else:
            batch = run.batch(others, data.candidates[others].to(data.weight.dtype), progress=0.0)
            batch = batch if self.augment else replace(batch, x=data.x[others])
            logits, features = with_features(run.model, torch.cat([x, batch.x]))
            loss = cross_entropy(logits[: len(x)], y)
            out = Output(logits[len(x) :], features[len(x) :])
            for callback in self._with_tasks(run):
                callback.on_output(out, batch)
            loss = loss if out.losses is None else loss + out.losses.mean()
        value = float(loss.detach())
        if not math.isfinite(value):
            raise self._divergence(run, f"the loss is {value}", optimizer.param_groups[0]["lr"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        run.check_interrupt()
        return value

    def _divergence(self, run: Run, what: str, lr: float) -> ValueError:
        return divergence(f"{PHASE}, at the clean", what, self.rows, run.data.clean_x[self.rows], lr)

    @staticmethod
    def _with_tasks(run: Run) -> list[Callback]:
        return [callback for callback in run.callbacks if callback.has_task]

    def _others(self, run: Run, n_rows: int) -> torch.Tensor:
        """Partial rows for the tasks of other callbacks; none where there is no such task."""
        partial = (~run.data.is_clean).nonzero().flatten()
        if not len(partial) or not self._with_tasks(run):
            return partial[:0]
        return partial[torch.randint(len(partial), (n_rows,), generator=run.generator).to(partial.device)]
