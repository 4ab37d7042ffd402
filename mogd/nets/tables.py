"""Backbones for rows of numbers: one affine layer, and fully connected layers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import nn

from mogd.nets.base import Net, scaled_sizes


def linear(in_shape: Sequence[int], n_classes: int) -> Net:
    """One affine layer on the flattened row, Xavier-uniform."""
    return Net(nn.Flatten(), prod(in_shape), n_classes)


def mlp(
    in_shape: Sequence[int],
    n_classes: int,
    hidden: Sequence[int] = (300, 300),
    dropout: float = 0.3,
    batch_norm: bool = True,
    width: float = 1.0,
) -> Net:
    """Fully connected layers, each with BatchNorm, ReLU and dropout; `width` scales the hidden sizes."""
    layers: list[nn.Module] = [nn.Flatten()]
    size = prod(in_shape)
    for h in scaled_sizes(hidden, width):
        layers.append(nn.Linear(size, h, bias=not batch_norm))
        layers += [nn.BatchNorm1d(h)] if batch_norm else []
        layers.append(nn.ReLU())
        layers += [nn.Dropout(dropout)] if dropout else []
        size = h
    return Net(nn.Sequential(*layers), size, n_classes)
