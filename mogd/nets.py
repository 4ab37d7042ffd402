"""Backbones: from rows to features and logits. Each is made by `backbone(name, in_shape, n_classes, **params)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
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
    for h in _scaled(hidden, width):
        layers.append(nn.Linear(size, h, bias=not batch_norm))
        layers += [nn.BatchNorm1d(h)] if batch_norm else []
        layers.append(nn.ReLU())
        layers += [nn.Dropout(dropout)] if dropout else []
        size = h
    return Net(nn.Sequential(*layers), size, n_classes)


def cnn(
    in_shape: Sequence[int],
    n_classes: int,
    channels: Sequence[int] = (32, 64),
    dropout: float = 0.0,
    width: float = 1.0,
) -> Net:
    """For two-core machines: blocks of 3×3 convolution, BatchNorm, ReLU and a pool of 2, flattened."""
    size, height, long = _image_shape("cnn", in_shape, least=2 ** len(channels))
    layers: list[nn.Module] = [ChannelsLast()]
    for c in _scaled(channels, width):
        layers += [_conv(size, c), nn.BatchNorm2d(c), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(dropout)]
        size, height, long = c, height // 2, long // 2
    return Net(nn.Sequential(*layers, nn.Flatten()), size * height * long, n_classes)


def convnet(
    in_shape: Sequence[int],
    n_classes: int,
    dropout: float = 0.25,
    slope: float = 0.01,
    width: float = 1.0,
) -> Net:
    """The "12-layer ConvNet" as PRODEN and LWS use it, after Laine and Aila (2017): 9 convolutions, 2 pools, 1 head.

    Laine and Aila's own has slope 0.1 and dropout 0.5. Unlike the code it comes from, dropout is off at test time, and
    the convolutions have no bias, which the BatchNorm behind each would remove.
    """
    size, *_ = _image_shape("convnet", in_shape, least=28)
    layers: list[nn.Module] = [ChannelsLast()]
    for stage, widths in enumerate(((128, 128, 128), (256, 256, 256), (512, 256, 128))):
        for c in _scaled(widths, width):
            layers += [_conv(size, c, padding=1 if stage < 2 else 0), nn.BatchNorm2d(c), nn.LeakyReLU(slope)]
            size = c
        if stage < 2:
            layers += [nn.MaxPool2d(2), nn.Dropout2d(dropout)]
    return Net(nn.Sequential(*layers, GlobalAverage()), size, n_classes)


def wide_resnet(
    in_shape: Sequence[int],
    n_classes: int,
    depth: int = 28,
    widen: int = 2,
    bn_momentum: float = 0.1,
    dropout: float = 0.0,
    width: float = 1.0,
) -> Net:
    """Wide-ResNet (Zagoruyko and Komodakis, 2016) in FixMatch's form: pre-activation, LeakyReLU 0.1, no dropout.

    FixMatch has `widen=2` for CIFAR-10, 8 for CIFAR-100, and `bn_momentum=0.001`, which needs thousands of steps before
    the running statistics are of use: the default is torch's.
    """
    if depth < 10 or (depth - 4) % 6:
        raise ValueError(f"depth must be 6n + 4 with n of at least 1 (10, 16, 22, 28, …); got {depth}")
    size, *_ = _image_shape("wide-resnet", in_shape, least=4)
    first, *stages = _scaled((16, 16 * widen, 32 * widen, 64 * widen), width)
    layers: list[nn.Module] = [ChannelsLast(), _conv(size, first)]
    size = first
    for stage, c in enumerate(stages):
        for block in range((depth - 4) // 6):
            stride = 2 if stage and not block else 1
            layers.append(WideBlock(size, c, stride, bn_momentum, dropout, activate_first=not stage and not block))
            size = c
    layers += [nn.BatchNorm2d(size, momentum=bn_momentum), nn.LeakyReLU(0.1), GlobalAverage()]
    return Net(nn.Sequential(*layers), size, n_classes)


class WideBlock(nn.Module):
    """Two BatchNorm–LeakyReLU–convolution steps beside a shortcut.

    `activate_first`: the shortcut, too, starts from the activated input.
    """

    def __init__(
        self, size: int, out: int, stride: int, bn_momentum: float, dropout: float, *, activate_first: bool
    ) -> None:
        super().__init__()
        self.activate_first = activate_first
        self.enter = nn.Sequential(nn.BatchNorm2d(size, momentum=bn_momentum), nn.LeakyReLU(0.1))
        self.residual = nn.Sequential(
            _conv(size, out, stride=stride),
            nn.BatchNorm2d(out, momentum=bn_momentum),
            nn.LeakyReLU(0.1),
            nn.Dropout2d(dropout),
            _conv(out, out),
        )
        same = size == out and stride == 1
        self.shortcut = nn.Identity() if same else _conv(size, out, kernel=1, stride=stride, padding=0)

    def forward(self, x: Tensor) -> Tensor:
        entered = self.enter(x)
        return self.shortcut(entered if self.activate_first else x) + self.residual(entered)


class ChannelsLast(nn.Module):
    """The layout in memory in which a processor's convolutions are quickest; no value changes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last)


class GlobalAverage(nn.Module):
    """The mean of each channel over the image."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def _conv(size: int, out: int, *, kernel: int = 3, stride: int = 1, padding: int = 1) -> nn.Conv2d:
    """A convolution without bias, for a BatchNorm follows or stands before; Kaiming-normal by fan-out."""
    layer = nn.Conv2d(size, out, kernel, stride=stride, padding=padding, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _scaled(sizes: Sequence[int], width: float) -> list[int]:
    return [max(1, round(size * width)) for size in sizes]


def _image_shape(name: str, in_shape: Sequence[int], least: int) -> tuple[int, int, int]:
    """Channels, height and width, where the rows are images of at least `least` pixels a side."""
    if len(in_shape) != 3:
        raise ValueError(
            f"backbone {name!r} needs rows of shape (channels, height, width); got {tuple(in_shape)}: reshape X to "
            "(n, channels, height, width), or take 'linear' or 'mlp'"
        )
    channels, height, long = in_shape
    if min(height, long) < least:
        last = " (channels come first)" if channels > long else ": take 'cnn', 'mlp' or larger images"
        raise ValueError(
            f"backbone {name!r} needs images of at least {least}×{least} pixels; got {tuple(in_shape)}{last}"
        )
    return channels, height, long


BACKBONES: dict[str, Callable[..., Net]] = {
    "linear": linear,
    "mlp": mlp,
    "cnn": cnn,
    "convnet": convnet,
    "wide-resnet": wide_resnet,
}


def make_backbone(name: str, in_shape: Sequence[int], n_classes: int, **params: Any) -> Net:
    """A new backbone by its name."""
    if name not in BACKBONES:
        raise ValueError(f"backbone must be one of {', '.join(BACKBONES)} or a torch.nn.Module; got {name!r}")
    known = list(signature(BACKBONES[name]).parameters)[2:]  # behind the shape and the number of classes
    unknown = [key for key in params if key not in known]
    if unknown:
        may = f"may hold {', '.join(known)}" if known else "must be empty"
        raise ValueError(f"backbone {name!r} has no parameter {', '.join(unknown)}; backbone_params {may}")
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
