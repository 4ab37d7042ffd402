"""The one loop. It knows no method's name: a method says what happens in a batch, the loop does the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mogd.callbacks.base import Augment, Callback, Run
from mogd.candidates import name_rows
from mogd.methods.base import Method, TrainingData

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
        raise ValueError(f"optimizer must be 'sgd' or 'adamw'; got {self.optimizer!r}")

    def lr_at(self, epoch: float) -> float:
        """The learning rate at a (fractional) epoch: constant, cosine to zero, or × lr_gamma every lr_step epochs."""
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * epoch / self.epochs))
        if self.schedule == "step":
            return self.lr * self.lr_gamma ** math.floor(epoch / self.lr_step)
        raise ValueError(f"schedule must be 'constant', 'cosine' or 'step'; got {self.schedule!r}")


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
) -> tuple[Tensor, History]:
    """Train in place; return the confidence of every row and the history, one entry for each epoch or earlier phase."""
    run = Run(model, method, data, settings, generator, callbacks, augment, owner)
    for callback in callbacks:
        callback.start(run)
    try:
        method.start(model, data, generator)
        confidence = run.confidence = method.init_confidence(data.candidates).to(data.weight.dtype)
        for callback in callbacks:
            callback.before_training(run)
        optimizer = run.optimizer()
        for epoch in range(settings.epochs):
            _train_epoch(run, confidence, optimizer, epoch)
            if run.stop:
                break
    finally:
        for callback in callbacks:
            callback.end(run)
    return confidence, run.history


def _train_epoch(run: Run, confidence: Tensor, optimizer: torch.optim.Optimizer, epoch: int) -> None:
    """Every row once, in a new order; the rows' confidences are written in place."""
    began = time.perf_counter()
    model, method, settings, n_rows = run.model, run.method, run.settings, len(run.data.x)
    n_steps = math.ceil(n_rows / settings.batch_size)
    losses = torch.zeros(n_steps, device=run.data.weight.device, dtype=run.data.weight.dtype)
    model.train()
    order = torch.randperm(n_rows, generator=run.generator).to(run.data.x.device)
    parts = order.tensor_split(n_steps)  # equal parts: no last batch of one row
    for i, index in enumerate(parts):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr_at(epoch + i / n_steps)

        def step(loss: Tensor, i: int = i) -> None:
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses[i] = loss.detach()

        batch = run.batch(index, confidence[index], progress=epoch / settings.epochs)
        confidence[index] = method.train_batch(model, batch, step, run.callbacks)
    if not bool(losses.isfinite().all()):
        i = int((~losses.isfinite()).nonzero()[0])
        raise ValueError(
            f"training diverged in epoch {epoch + 1}, batch {i + 1} of {n_steps} ({name_rows(parts[i].tolist())}): the "
            f"loss is {float(losses[i])}; lower lr, which is {settings.lr}, or scale the features, for instance by "
            "scale='standard'"
        )
    entry = {"epoch": epoch + 1, "loss": float(losses.mean()), "lr": settings.lr_at(epoch)}
    entry |= method.epoch_end(model, epoch) or {}
    run.note(entry | {"seconds": time.perf_counter() - began})


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within the block torch draws from `seed` (weights, dropout); the caller's random state is given back after it."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed)
        yield
