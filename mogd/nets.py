"""Backbones: from rows to features and logits. Each is made by `backbone(name, in_shape, n_classes, **params)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """A body that gives features and a linear head that gives logits."""

    def __init__(self, body: nn.Module, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(n_features, n_classes)
        nn.init.xavier_uniform_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class Normalize(nn.Module):
    """Whole-number images as floats, less the channel's mean and over its deviation, a batch at a time."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.reshape(-1, 1, 1))
        self.register_buffer("std", std.reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(self.mean.dtype) - self.mean) / self.std


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
    for h in hidden:
        h = max(1, round(h * width))
        layers.append(nn.Linear(size, h, bias=not batch_norm))
        layers += [nn.BatchNorm1d(h)] if batch_norm else []
        layers.append(nn.ReLU())
        layers += [nn.Dropout(dropout)] if dropout else []
        size = h
    return Net(nn.Sequential(*layers), size, n_classes)


BACKBONES: dict[str, Callable[..., Net]] = {"linear": linear, "mlp": mlp}


def make_backbone(name: str, in_shape: Sequence[int], n_classes: int, **params: Any) -> Net:
    """A new backbone by its name."""
    if name not in BACKBONES:
        raise ValueError(f"backbone must be one of {', '.join(BACKBONES)} or a torch.nn.Module; got {name!r}")
    return BACKBONES[name](in_shape, n_classes, **params)


def channel_statistics(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each channel of uint8 images `(n, channels, height, width)`; 1 for a constant channel.

    Both come from the counts of the 256 values: exact, and no copy of the images as floats.
    """
    values = torch.arange(256, dtype=torch.float64)
    means, stds = [], []
    for channel in range(images.shape[1]):
        share = torch.bincount(images[:, channel].reshape(-1).cpu(), minlength=256).double()
        share /= share.sum()
        mean = (share * values).sum()
        std = (share * (values - mean) ** 2).sum().sqrt()
        means.append(mean)
        stds.append(std if std > 0 else torch.ones_like(std))
    return torch.stack(means), torch.stack(stds)
