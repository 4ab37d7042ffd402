"""What another answer is worth, read off the held-out accuracies so far."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

MORE = 10  # answers whose worth is shown


def expected_gain(curve: Sequence[tuple[int, float]], more: int = MORE) -> float | None:
    """The rise in accuracy to expect of `more` answers; None while there are too few points.

    The curve is taken as a − b/√n with b ≥ 0, fitted by least squares with n as the weight of a point.
    """
    if len(curve) < 3:
        return None
    n, accuracy = np.array(curve, dtype=float).T
    weight = np.sqrt(n)
    _, b = nnls(np.column_stack([np.ones(len(n)), 1 - 1 / np.sqrt(n)]) * weight[:, None], accuracy * weight)[0]
    return float(b * (1 / np.sqrt(n[-1]) - 1 / np.sqrt(n[-1] + more)))
