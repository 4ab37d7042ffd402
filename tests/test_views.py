"""Test-time views against the six passes written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from mogd.views import ViewAverage


def test_the_views_are_their_passes() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(2 * 5 * 6, 3), nn.Tanh()).double()
    x = torch.randint(0, 256, (4, 2, 5, 6), dtype=torch.uint8)

    def logits(images: np.ndarray) -> torch.Tensor:
        mirror = images[:, :, :, ::-1].copy()
        return (net(torch.from_numpy(images).double()) + net(torch.from_numpy(mirror).double())) / 2

    class Double(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return net(images.double())

    plain = x.numpy()
    continued = np.pad(plain, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
    shifted = logits(continued[:, :, :-2, :-2].copy()), logits(continued[:, :, 2:, 2:].copy())
    torch.testing.assert_close(ViewAverage(Double(), "mirror")(x), logits(plain))
    torch.testing.assert_close(
        ViewAverage(Double(), "mirror-shift")(x), logits(plain) / 2 + shifted[0] / 4 + shifted[1] / 4
    )


def test_refusals_name_the_way_out() -> None:
    with pytest.raises(ValueError, match="predict_views must be None or one of mirror, mirror-shift; got 'six'"):
        ViewAverage(nn.Flatten(), "six")
    with pytest.raises(ValueError, match=r"got rows of shape \(7,\): pass predict_views=None"):
        ViewAverage(nn.Flatten(), "mirror")(torch.zeros(2, 7))
