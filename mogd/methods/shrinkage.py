"""How reliable the clean set's gradient is, by how far two random halves of it agree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Shrinkage:
    """Running means over the candidates of a batch, and what follows from them: `rms` and `factor`."""

    def __init__(self, device: torch.device) -> None:
        zero = torch.zeros((), device=device, dtype=torch.float64)
        self.power, self.product, self.square = zero, zero, zero
        self.mass = 0.0

    def note(self, estimates: Sequence[Tensor], mean: Tensor, compared: Tensor, keep: float) -> None:
        """The halves' product and their mean's square, where a row has two candidates or more to compare."""
        compared = compared & (compared.sum(dim=1, keepdim=True) > 1)
        count = compared.sum()
        if not count:
            return
        self.mass = keep * self.mass + (1 - keep)
        self.power = keep * self.power + (1 - keep) * centre(mean, compared).double().square().sum() / count
        if len(estimates) > 1:
            first, second = (centre(a, compared).double() for a in estimates)
            mean = (first + second) / 2
            self.product = keep * self.product + (1 - keep) * (first * second).sum() / count
            self.square = keep * self.square + (1 - keep) * mean.square().sum() / count

    def rms(self) -> Tensor:
        """The alignment's root mean square over candidates."""
        return (self.power / max(self.mass, 1e-12)).sqrt().clamp(min=1e-30)

    def factor(self) -> Tensor:
        """s = Σ A·B / Σ ((A+B)/2)²: the best linear shrinkage of the halves' mean; 0 before two were compared."""
        return (self.product / self.square.clamp(min=1e-60)).clamp(0, 1)


def centre(values: Tensor, mask: Tensor) -> Tensor:
    """Values less their row's mean over the mask; zero off it."""
    mean = (values * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    return (values - mean) * mask
