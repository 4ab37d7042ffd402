"""Convolutional backbones: a small one for two cores, the 12-layer ConvNet and Wide-ResNet-28."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from mogd.nets.base import ChannelsLast, Net, image_shape, scaled_sizes


def cnn(
    in_shape: Sequence[int],
    n_classes: int,
    channels: Sequence[int] = (32, 64),
    dropout: float = 0.0,
    width: float = 1.0,
) -> Net:
    """For two-core machines: blocks of 3×3 convolution, BatchNorm, ReLU and a pool of 2, flattened."""
    size, height, long = image_shape("cnn", in_shape, least=2 ** len(channels))
    layers: list[nn.Module] = [ChannelsLast()]
    for c in scaled_sizes(channels, width):
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
    size, *_ = image_shape("convnet", in_shape, least=28)
    layers: list[nn.Module] = [ChannelsLast()]
    for stage, widths in enumerate(((128, 128, 128), (256, 256, 256), (512, 256, 128))):
        for c in scaled_sizes(widths, width):
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
    size, *_ = image_shape("wide-resnet", in_shape, least=4)
    first, *stages = scaled_sizes((16, 16 * widen, 32 * widen, 64 * widen), width)
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


class GlobalAverage(nn.Module):
    """The mean of each channel over the image."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def _conv(size: int, out: int, *, kernel: int = 3, stride: int = 1, padding: int = 1) -> nn.Conv2d:
    """A convolution without bias, for a BatchNorm follows or stands before; Kaiming-normal by fan-out."""
    layer = nn.Conv2d(size, out, kernel, stride=stride, padding=padding, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
