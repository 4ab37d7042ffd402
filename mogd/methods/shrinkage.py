"""How reliable the clean set's gradient is, by how far two random halves of it agree."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from mogd.distributed import sums


class Shrinkage:
    """Running means over the candidates of a batch, and what follows from them: `rms` and `factor`."""

    def __init__(self) -> None:
        self.power = self.product = self.square = self.mass = 0.0

    def note(self, estimates: Sequence[Tensor], mean: Tensor, compared: Compared, keep: float) -> None:
        """The halves' product and their mean's square, where a row has two candidates or more to compare."""
        found = [compared.total(), compared.centre(mean).double().square().sum().item()]
        if len(estimates) > 1:
            first, second = (compared.centre(a).double() for a in estimates)
            found += [(first * second).sum().item(), ((first + second) / 2).square().sum().item()]
        count, power, *halves = sums(found)  # of the whole batch, of which this process may have a part
        if not count:
            return
        self.mass = keep * self.mass + (1 - keep)
        self.power = keep * self.power + (1 - keep) * power / count
        if halves:
            product, square = halves
            self.product = keep * self.product + (1 - keep) * product / count
            self.square = keep * self.square + (1 - keep) * square / count

    def rms(self) -> float:
        """The alignment's root mean square over candidates."""
        return max(math.sqrt(self.power / max(self.mass, 1e-12)), 1e-30)

    def factor(self) -> float:
        """s = Σ A·B / Σ ((A+B)/2)²: the best linear shrinkage of the halves' mean; 0 before two were compared."""
        return min(max(self.product / max(self.square, 1e-60), 0.0), 1.0)


class Compared:
    """The candidates of a batch that are compared with the others of their row."""

    def __init__(self, mask: Tensor) -> None:
        self.mask, self.count = mask, mask.sum(dim=1, keepdim=True)
        self.at_least_one = self.count.clamp(min=1)

    def centre(self, values: Tensor) -> Tensor:
        """Values less their row's mean over the mask; zero off it."""
        mean = (values * self.mask).sum(dim=1, keepdim=True) / self.at_least_one
        return (values - mean) * self.mask

    def total(self) -> int:
        """How many there are to compare; one alone in its row has no other, and is zero when it is centred."""
        return int((self.count * (self.count > 1)).sum())
