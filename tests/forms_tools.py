"""Candidates of a hand-made training set in the form that a fit would give them."""

from __future__ import annotations

import scipy.sparse as sp
from torch import Tensor

from mogd import compressed
from mogd.methods.rows import CompressedRows, Rows


def sets_of(candidates: Tensor) -> Rows:
    """Dense, or compressed where the test has lowered the size above which they are."""
    if candidates.numel() <= compressed.DENSE_CELLS:
        return candidates
    return CompressedRows.of(sp.csr_array(candidates.numpy()), candidates.device)
