"""Test-time views: the logits of an image averaged with those of its mirror image and of shifted copies."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

VIEWS = ("mirror", "mirror-shift")


class ViewAverage(nn.Module):
    """A network whose logits are the mean over views of the image.

    "mirror": the image and its mirror image. "mirror-shift" (Jordan, 2024): these with half of the weight, and the same
    for the image moved by one pixel up and left, and down and right, with a quarter each: six passes.
    """

    def __init__(self, net: nn.Module, views: str) -> None:
        super().__init__()
        if views not in VIEWS:
            raise ValueError(f"predict_views must be None or one of {', '.join(VIEWS)}; got {views!r}")
        self.net, self.views = net, views

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise ValueError(
                f"predict_views={self.views!r} needs images of shape (channels, height, width); got rows of shape "
                f"{tuple(x.shape[1:])}: pass predict_views=None"
            )
        parts = [weight * (self.net(view) + self.net(view.flip(3))) / 2 for weight, view in self._shifted(x)]
        return torch.stack(parts).sum(dim=0)

    def _shifted(self, x: Tensor) -> Iterator[tuple[float, Tensor]]:
        if self.views == "mirror":
            yield 1.0, x
            return
        height, width = x.shape[2:]
        continued = pad(x, (1, 1, 1, 1), mode="reflect")
        yield 0.5, x
        yield 0.25, continued[:, :, :height, :width]
        yield 0.25, continued[:, :, 2:, 2:]
