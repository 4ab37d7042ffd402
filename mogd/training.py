"""The one loop. It knows no method's name: a method says what happens in a batch, the loop does the rest."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mogd import distributed
from mogd.callbacks.base import Augment, Callback, Position, Run
from mogd.guard import all_finite, divergence
from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.rows import Rows, by_rows, epoch_order, row_numbers, stored
from mogd.optim import Muon

History = list[dict[str, Any]]


@dataclass(frozen=True)
class Settings:
    """How to optimise; `schedule` is the learning rate over the run, counted in steps."""

    epochs: int
    batch_size: int
    optimizer: str
    lr: float
    momentum: float
    nesterov: bool
    weight_decay: float
    schedule: str
    lr_step: float
    lr_gamma: float

    def build(self, *parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        # a group each: the fused step wants all parameters of a group to have had a gradient, or none
        groups = [{"params": group} for group in parameters if group]
        if self.optimizer == "sgd":
            return torch.optim.SGD(
                groups, self.lr, self.momentum, 0.0, self.weight_decay, nesterov=self.nesterov, fused=True
            )
        if self.optimizer == "adamw":
            return torch.optim.AdamW(groups, lr=self.lr, weight_decay=self.weight_decay, fused=True)
        if self.optimizer == "muon":
            return Muon((p for group in parameters for p in group), self.lr, self.momentum, self.weight_decay)
        raise ValueError(f"optimizer must be 'sgd', 'adamw' or 'muon'; got {self.optimizer!r}")

    def lr_at(self, epoch: float) -> float:
        """At a (fractional) epoch: constant, along a cosine or a line to zero, or × lr_gamma every lr_step epochs."""
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))
        if self.schedule == "linear":
            return self.lr * (1 - epoch / self.epochs)
        if self.schedule == "step":
            return self.lr * self.lr_gamma ** math.floor(epoch / self.lr_step)
        raise ValueError(f"schedule must be 'constant', 'cosine', 'linear' or 'step'; got {self.schedule!r}")


def train(
    model: nn.Module,
    method: Method,
    data: TrainingData,
    settings: Settings,
    generator: torch.Generator,
    *,
    callbacks: Sequence[Callback] = (),
    augment: Augment | None = None,
    owner: Any = None,
) -> tuple[Rows, History]:
    """Train in place; return the confidence of every row and the history, one entry for each epoch or earlier phase."""
    run = Run(model, method, data, settings, generator, callbacks, augment, owner)
    for callback in sorted(callbacks, key=lambda callback: callback.starts_last):
        callback.start(run)
    try:
        with _ending_after_the_batch(run):
            _train(run)
    finally:
        for callback in callbacks:
            callback.end(run)
    return run.confidence, run.history


def _train(run: Run) -> None:
    if distributed.size() > 1:
        _check_ranks(run)
    run.method.start(run.model, run.data, run.generator)
    dtype = run.data.weight.dtype
    run.confidence = by_rows(lambda sets: run.method.init_confidence(sets).to(dtype), run.data.candidates)
    restored = [callback.restore(run) for callback in run.callbacks]
    if not any(restored):
        for callback in run.callbacks:
            callback.before_training(run)
        run.optimizer = run.new_optimizer()
        run.save_point()
    while run.at.epoch < run.settings.epochs and not run.stop:
        _train_epoch(run)
        run.save_point()
        run.interrupted = bool(distributed.sums([run.interrupted])[0])
        run.check_interrupt()


def _train_epoch(run: Run) -> None:
    """Every row once, in a new order, or the rest of an epoch that was interrupted; confidences change in place."""
    began = time.perf_counter()
    model, method, settings, optimizer, at = run.model, run.method, run.settings, run.optimizer, run.at
    assert optimizer is not None
    n_rows, device, confidence = len(run.data.x), run.data.x.device, run.confidence
    n_steps = math.ceil(n_rows / settings.batch_size)
    if at.order is None or at.losses is None:
        at.order = epoch_order(run.data.x, run.generator)
        at.losses = torch.zeros(n_steps, device=device, dtype=run.data.weight.dtype)
    losses, parts = at.losses, at.order.to(device).tensor_split(n_steps)  # equal parts: no last batch of one row
    share = _Share() if distributed.size() > 1 else None
    callbacks = run.callbacks if share is None else [*run.callbacks, share]
    waits = device.type == "cuda"  # where asking for a loss would wait for it, all are asked for together at the end
    model.train()
    for i in range(at.step, n_steps):
        index = distributed.own(parts[i])
        for group in optimizer.param_groups:
            group["lr"] = settings.lr_at(at.epoch + i / n_steps)

        def step(loss: Tensor, i: int = i) -> None:
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if share is not None:
                loss = distributed.average_gradients(_parameters(run), loss, share.weight)
            if not waits and not math.isfinite(loss.item()):
                raise _divergence(run, parts, i, loss)
            optimizer.step()
            losses[i] = loss.detach()

        batch = run.batch(index, confidence[index], progress=at.epoch / settings.epochs)
        confidence[index] = method.train_batch(model, batch, step, callbacks)
        at.step = i + 1
        if run.interrupted and share is None:  # several ranks end together, after the epoch
            at.seconds += time.perf_counter() - began
            run.check_interrupt()
    if waits and not all_finite([losses]):
        i = int((~losses.isfinite()).nonzero()[0])
        raise _divergence(run, parts, i, losses[i])
    if not all_finite(_parameters(run)):
        raise _divergence(run, parts, n_steps, losses.mean())
    for kept in [confidence, *method.row_state()] if share is not None else []:
        distributed.gather_rows(stored(kept)[-1], row_numbers(kept))
    distributed.average_buffers(model)
    entry = {"epoch": at.epoch + 1, "loss": float(losses.mean()), "lr": settings.lr_at(at.epoch)}
    entry |= method.epoch_end(model, at.epoch) or {}
    run.note(entry | {"seconds": at.seconds + time.perf_counter() - began})
    run.at = Position(at.epoch + 1)


class _Share(Callback):
    """What the rows of this rank weigh in the batch at hand, after all other callbacks."""

    observer = True

    def on_output(self, out: Output, batch: Batch) -> None:
        self.weight = float(batch.weight.sum())


def _check_ranks(run: Run) -> None:
    """Refuse what several ranks cannot train together."""
    if reason := run.method.one_process:
        raise ValueError(f"{type(run.method).__name__} cannot be trained by several processes: {reason}")
    names = ("x", "candidates", "weight", "clean_x", "clean_y")
    distributed.check_same("rows", *(part for name in names for part in stored(getattr(run.data, name))))
    distributed.check_same("weights of the network", *run.model.parameters())


def _divergence(run: Run, parts: Sequence[Tensor], i: int, loss: Tensor) -> ValueError:
    """What to raise for batch `i`. Where parameters are not finite, the step on the batch before it made them so."""
    by_step = i > 0 and not all_finite(_parameters(run))
    rows = parts[i - 1 if by_step else i]
    where = f"epoch {run.at.epoch + 1}, batch {i if by_step else i + 1} of {len(parts)}"
    what = "its gradient, or the step along it, is not finite" if by_step else f"the loss is {float(loss.detach())}"
    return divergence(where, what, rows, run.data.x[rows], run.settings.lr)


def _parameters(run: Run) -> Iterator[Tensor]:
    assert run.optimizer is not None
    return (p for group in run.optimizer.param_groups for p in group["params"])


@contextmanager
def _ending_after_the_batch(run: Run) -> Iterator[None]:
    """Within the block the first Ctrl-C is noted, and the run ends after the current batch; a second one ends it now.

    Only in the main thread, which alone may do so, and only in place of Python's own handler: a program that handles,
    or ignores, the signal goes on to.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is not signal.default_int_handler:
        yield
        return

    def note(number: int, frame: Any) -> None:
        if run.interrupted:
            signal.default_int_handler(number, frame)
        run.interrupted = True

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within the block torch draws from `seed` (weights, dropout); the caller's random state is given back after it."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed)
        yield
