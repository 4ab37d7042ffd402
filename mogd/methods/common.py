"""Formulas that more than one paper uses."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax


def posterior(logits: Tensor, candidates: Tensor) -> Tensor:
    """The model's probabilities restricted to the candidates and normalised: `S⊙p / Σ_S p`, safe from underflow."""
    return torch.softmax(logits.masked_fill(~candidates, -torch.inf), dim=1)


def weighted_cross_entropy(logits: Tensor, confidence: Tensor) -> Tensor:
    """`−Σ_j w_j log p_j` of each row."""
    return -(confidence * log_softmax(logits, dim=1)).sum(dim=1)


def last_linear(model: nn.Module) -> nn.Linear:
    """The layer that gives the logits: the last `nn.Linear` of the module."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    if not layers:
        raise ValueError(f"{type(model).__name__} has no nn.Linear, whose input would be the features")
    return layers[-1]


def with_features(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and the features that entered the last linear layer, from one forward pass."""
    seen: list[Tensor] = []
    handle = last_linear(model).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        return model(x), seen[-1]
    finally:
        handle.remove()
