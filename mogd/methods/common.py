"""Formulas that more than one paper uses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import log_softmax, softplus

from mogd.compressed import ROWS_AT_ONCE

Buffers = dict[str, Tensor]  # by buffer name
IMAGES_AT_ONCE = 256  # in one pass: one layer of the ConvNet holds half a megabyte for each


class _KnownGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: Sequence[Tensor], *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*gradients)
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, *[g.mul_(grads[0]) for g in ctx.saved_tensors]  # a second pass would be refused by torch


def with_known_gradient(value: Tensor, inputs: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """The loss `value`, one number, whose derivatives by the inputs are known.

    For losses of small matrices, where a long chain of recorded operations costs more than the arithmetic.
    """
    return cast(Tensor, _KnownGradient.apply(value, gradients, *inputs))


def posterior(logits: Tensor, candidates: Tensor) -> Tensor:
    """The model's probabilities restricted to the candidates and normalised: `S⊙p / Σ_S p`, safe from underflow."""
    return torch.softmax(logits.masked_fill(~candidates, -torch.inf), dim=1)


def restricted(confidence: Tensor, candidates: Tensor) -> Tensor:
    """The confidence on the candidates, normalised; equal shares where nothing of it is left."""
    kept = confidence * candidates
    total = kept.sum(dim=1, keepdim=True)
    equal = candidates.to(confidence.dtype)
    return torch.where(total > 0, kept / total, equal / equal.sum(dim=1, keepdim=True))


def weighted_cross_entropy(logits: Tensor, confidence: Tensor) -> Tensor:
    """`−Σ_j w_j log p_j` of each row."""
    return -(confidence * log_softmax(logits, dim=1)).sum(dim=1)


def squared_error(logits: Tensor, confidence: Tensor) -> Tensor:
    """`Σ_k (p_k − w_k)²` of each row: rows that the model cannot fit count for less than in the cross entropy."""
    return (torch.softmax(logits, dim=1) - confidence).square().sum(dim=1)


def one_vs_all(logits: Tensor, confidence: Tensor) -> Tensor:
    """`Σ_k log(1 + e^{z_k}) − Σ_j w_j z_j` of each row: a logistic regression for every class by itself."""
    return (softplus(logits) - confidence * logits).sum(dim=1)


def complementary(candidates: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """`s`, the number of labels that each row rules out, and `1/s`; zero for a row that rules out none."""
    ruled_out = (~candidates).sum(dim=1).to(dtype)
    return ruled_out, torch.where(ruled_out > 0, 1 / ruled_out.clamp(min=1), 0.0)


@torch.no_grad()
def fresh_logits(model: nn.Module, x: Tensor) -> Tensor:
    """A second pass in the model's mode that moves no running statistic: the batch has moved them once already."""
    if not any(m.training and getattr(m, "track_running_stats", False) for m in model.modules()):
        return model(x)
    with frozen_buffers(model) as buffers:
        return functional_call(model, buffers, (x,))


@contextmanager
def frozen_buffers(model: nn.Module, *, single: bool = False) -> Iterator[Buffers]:
    """Copies of the buffers for a pass that must not move BatchNorm's statistics.

    A single row has no batch statistics: for it the running ones are used.
    """
    training = [m for m in model.modules() if m.training]
    if single:
        model.eval()
    try:
        yield {name: b.clone() for name, b in model.named_buffers()}
    finally:
        for module in training:
            module.training = True


@torch.no_grad()
def forward_in_chunks(model: nn.Module, x: Tensor, rows: int | None = None) -> Tensor:
    """Logits in evaluation mode; the module is given its mode back."""
    return torch.cat([logits for _, logits in forward_in_parts(model, x, rows)])


@torch.no_grad()
def forward_in_parts(model: nn.Module, x: Tensor, rows: int | None = None) -> Iterator[tuple[slice, Tensor]]:
    """The same, a part of the rows after the other, for work that must not hold the logits of all."""
    rows = rows or (ROWS_AT_ONCE if x.ndim == 2 else IMAGES_AT_ONCE)
    training = model.training
    model.eval()
    try:
        for first in range(0, max(len(x), 1), rows):
            part = slice(first, min(first + rows, len(x)))
            yield part, model(x[part])
    finally:
        model.train(training)


def is_closed_form(model: nn.Module) -> bool:
    """Whether the last linear layer holds every parameter, so that its closed form is the whole gradient."""
    heads = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return bool(heads) and {id(p) for p in model.parameters()} == {id(p) for p in heads[-1].parameters()}


@torch.no_grad()
def ends_in_linear(model: nn.Module, x: Tensor) -> bool:
    """Whether the logits are what the last linear layer makes of one vector for each row."""
    try:
        with frozen_buffers(model, single=True) as buffers:
            logits, features = with_features(model, x[:1], buffers)
    except (IndexError, ValueError):  # that layer is not used, or there is none
        return False
    return features.ndim == 2 and torch.equal(last_linear(model)(features), logits)


def last_linear(model: nn.Module) -> nn.Linear:
    """The layer that gives the logits: the last `nn.Linear` of the module."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no nn.Linear, whose input would be the features")
    return layers[-1]


def with_features(model: nn.Module, x: Tensor, buffers: Buffers | None = None) -> tuple[Tensor, Tensor]:
    """Logits, and the features that entered the last linear layer, from one forward pass (on `buffers` where given)."""
    seen: list[Tensor] = []
    handle = last_linear(model).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        return functional_call(model, buffers, (x,)) if buffers else model(x), seen[-1]
    finally:
        handle.remove()
