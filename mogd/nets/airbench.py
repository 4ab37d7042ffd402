"""The network of airbench (Jordan, 2024, arXiv 2404.00498): small, and trained to 94 % on CIFAR-10 in a few epochs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, unfold

from mogd.nets.base import ChannelsLast, Net, image_shape, scaled_sizes

PATCH = 2  # pixels a side of the whitening convolution
WHITENING_EPS = 5e-4  # added to the patches' eigenvalues, so that the faintest directions are not blown up to noise
HEAD_SCALE = 1 / 9
BN_MOMENTUM = 0.4  # the runs are short: in 8 epochs the running statistics must follow


def airbench(in_shape: Sequence[int], n_classes: int, width: float = 1.0) -> AirbenchNet:
    """Whitening convolution, three groups of 64, 256 and 256 channels, max-pool, head without bias."""
    channels, *_ = image_shape("airbench", in_shape, least=9)
    return AirbenchNet(channels, n_classes, scaled_sizes((64, 256, 256), width))


class AirbenchNet(Net):
    """Convolutions with identity initialisation behind a frozen whitening of 2×2 patches, which `prepare` learns.

    The scale of the logits stands before the head instead of behind it, so that the head's output is the logits.
    """

    def __init__(self, channels: int, n_classes: int, widths: Sequence[int]) -> None:
        layers: list[nn.Module] = [ChannelsLast(), Whitening(channels), nn.GELU()]
        size = 2 * channels * PATCH**2
        for width in widths:
            layers += [DiracConv(size, width), nn.MaxPool2d(2), BiasBatchNorm(width), nn.GELU()]
            layers += [DiracConv(width, width), BiasBatchNorm(width), nn.GELU()]
            size = width
        layers += [nn.AdaptiveMaxPool2d(1), nn.Flatten(), Scale(HEAD_SCALE)]
        super().__init__(nn.Sequential(*layers), size, n_classes, bias=False)

    def prepare(self, x: Tensor, candidates: Tensor, generator: torch.Generator) -> None:
        """Learn the whitening from training images, normalised as the network will see them."""
        for layer in self.body.modules():
            if isinstance(layer, Whitening):
                layer.learn(x)


class Whitening(nn.Module):
    """The principal directions of an image's patches, each over its deviation and with both signs.

    The weight is a buffer: saved, and not trained. The bias is trained.
    """

    weight: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        size = channels * PATCH**2
        directions = torch.eye(size).reshape(size, channels, PATCH, PATCH)
        self.register_buffer("weight", torch.cat([directions, -directions]))
        self.bias = nn.Parameter(torch.zeros(2 * size))

    def forward(self, x: Tensor) -> Tensor:
        return conv2d(x, self.weight, self.bias)

    def learn(self, x: Tensor) -> None:
        size = self.weight[0].numel()
        products = torch.zeros(size, size, dtype=torch.float64)
        count = 0
        for part in x.detach().split(512):
            patches = unfold(part.float(), PATCH).transpose(1, 2).reshape(-1, size)
            products += (patches.T @ patches).cpu().double()
            count += len(patches)
        values, vectors = torch.linalg.eigh(products / count)
        directions = (vectors / (values + WHITENING_EPS).sqrt()).T.flip(0).reshape(self.weight[:size].shape)
        self.weight.copy_(torch.cat([directions, -directions]))


class DiracConv(nn.Conv2d):
    """A 3×3 convolution without bias that begins by handing its input on, as far as there are channels for it."""

    def __init__(self, size: int, out: int) -> None:
        super().__init__(size, out, 3, padding=1, bias=False)
        with torch.no_grad():
            nn.init.dirac_(self.weight[: min(size, out)])


class BiasBatchNorm(nn.BatchNorm2d):
    """BatchNorm whose scale stays 1: the next convolution has one of its own."""

    def __init__(self, size: int) -> None:
        super().__init__(size, momentum=BN_MOMENTUM)
        del self.weight
        self.register_buffer("weight", torch.ones(size))


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor
