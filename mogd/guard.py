"""The numerical guard: what is said of a run whose loss or parameters are no longer finite."""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor

from mogd.candidates import name_rows
from mogd.wording import option

LARGE = 1e3  # features beyond this are the likely cause: standardised ones stay below ten


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """By the sum, which is quick; value by value where finite numbers may have overflowed in it."""
    return all(math.isfinite(t.detach().sum().item()) or bool(t.isfinite().all()) for t in tensors)


def divergence(where: str, what: str, rows: Tensor, x: Tensor, lr: float) -> ValueError:
    """The error that stops a run: where it diverged, by which rows (of the features `x`), and the likely cause."""
    mend = f"lower lr, which is {lr}, or scale the features, for instance by {option('scale', 'power')}"
    largest = x.flatten(1).double().abs().amax(dim=1) if x.is_floating_point() else x.new_zeros(len(x)).double()
    if len(largest) and float(largest.max()) > LARGE:
        i = int(largest.argmax())
        mend = f"the features of {name_rows([int(rows[i])])} reach {float(largest[i]):.2g}, the likely cause: {mend}"
    return ValueError(f"training diverged in {where} ({name_rows(rows.tolist())}): {what}; {mend}")
