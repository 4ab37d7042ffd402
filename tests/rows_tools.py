"""A small problem for the tests of rows in other forms: compressed, sparse, on the disk."""

from __future__ import annotations

import numpy as np


def clusters(seed: int, n: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of `d` features, their labels, and sets of the true label and each other one with a chance of 0.3."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, n)
    x = (rng.normal(size=(k, d))[y] + rng.normal(size=(n, d))).astype(np.float32)
    sets = rng.random((n, k)) < 0.3
    sets[np.arange(n), y] = True
    return x, y, sets
