"""The one loop. It knows no method's name: a method says what happens in a batch, the loop does the rest."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mogd.methods.base import Batch, Method, TrainingData
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
    augment: Callable[[Tensor, Tensor], Tensor] | None = None,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[Tensor, History]:
    """Train in place; return the confidence of every row and one history entry for each epoch."""
    method.start(model, data, generator)
    confidence = method.init_confidence(data.candidates).to(data.weight.dtype)
    optimizer = settings.build([*model.parameters()], [*method.parameters()])
    n_rows = len(data.x)
    n_steps = math.ceil(n_rows / settings.batch_size)
    losses = torch.zeros(n_steps, device=data.weight.device, dtype=data.weight.dtype)
    history: History = []
    for epoch in range(settings.epochs):
        began = time.perf_counter()
        model.train()
        order = torch.randperm(n_rows, generator=generator).to(data.x.device)
        for i, index in enumerate(order.tensor_split(n_steps)):  # equal parts: no last batch of one row
            for group in optimizer.param_groups:
                group["lr"] = settings.lr_at(epoch + i / n_steps)

            def step(loss: Tensor, i: int = i) -> None:
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                losses[i] = loss.detach()

            x = data.x[index] if augment is None else augment(data.x[index], index)
            batch = Batch(index, x, data.candidates[index], confidence[index], data.weight[index])
            confidence[index] = method.train_batch(model, batch, step)
        entry = {"epoch": epoch + 1, "loss": float(losses.mean()), "lr": settings.lr_at(epoch)}
        if not math.isfinite(entry["loss"]):
            raise ValueError(
                f"training diverged in epoch {epoch + 1} (the loss is {entry['loss']}): lower lr, which is "
                f"{settings.lr}, or scale the features, for instance by scale='standard'"
            )
        entry |= method.epoch_end(model, epoch) or {}
        entry["seconds"] = time.perf_counter() - began
        if on_epoch is not None:
            on_epoch(entry)
        history.append(entry)
    return confidence, history


@torch.no_grad()
def forward_in_chunks(model: nn.Module, x: Tensor, rows: int | None = None) -> Tensor:
    """Logits in evaluation mode; the module is given its mode back.

    Images go 256 at a time: one layer of the ConvNet holds half a megabyte for each.
    """
    rows = rows or (4096 if x.ndim == 2 else 256)
    training = model.training
    model.eval()
    try:
        return torch.cat([model(part) for part in x.split(rows)])
    finally:
        model.train(training)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Within the block torch draws from `seed` (weights, dropout); the caller's random state is given back after it."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.random.manual_seed(seed)
        yield
