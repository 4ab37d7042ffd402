"""What every backbone is, and what several of them use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad


class Net(nn.Module):
    """A body that gives features and a linear head that gives logits.

    A subclass may have `prepare(x, candidates, generator)`, which learns from training rows and their candidate sets
    what gradients do not train: it is called once before training, and what it learns is kept in buffers, which are
    saved.
    """

    has_fixed_features = False  # whether the body has nothing to train, so that features may be computed once
    in_bfloat16 = False  # whether the body computes in bfloat16; its weights stay float32, and the head computes in it

    def __init__(self, body: nn.Module, n_features: int, n_classes: int, *, bias: bool = True) -> None:
        super().__init__()
        self.body = body
        self.head = nn.Linear(n_features, n_classes, bias=bias)
        nn.init.xavier_uniform_(self.head.weight)
        if bias:
            nn.init.zeros_(self.head.bias)

    def features(self, x: Tensor) -> Tensor:
        # torch cannot carry tangents through a convolution under autocast: along a gradient it is float32
        if not self.in_bfloat16 or forward_ad.unpack_dual(self.head.weight).tangent is not None:
            return self.body(x)
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return self.body(x).to(self.head.weight.dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class ChannelsLast(nn.Module):
    """The layout in memory in which a processor's convolutions are quickest; no value changes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last)


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


def scaled_sizes(sizes: Sequence[int], width: float) -> list[int]:
    return [max(1, round(size * width)) for size in sizes]


def image_shape(name: str, in_shape: Sequence[int], least: int) -> tuple[int, int, int]:
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
