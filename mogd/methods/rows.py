"""Matrices of which each row stores few places: indexing gives dense rows, so that methods see dense batches alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from mogd.compressed import ROWS_AT_ONCE, part_size

CELLS_AT_ONCE = 2**22  # of the dense rows made in one pass over all of them


class CompressedRows:
    """A matrix `(n, K)` in compressed sparse rows on a device.

    `matrix[index]` is a dense tensor of these rows. `matrix[index] = rows` keeps what the dense rows hold at the stored
    places. Matrices made by `like` share their places.
    """

    def __init__(self, starts: Tensor, columns: Tensor, values: Tensor, n_columns: int) -> None:
        self.starts, self.columns, self.values = starts, columns, values
        self.shape = torch.Size([len(starts) - 1, n_columns])

    @classmethod
    def of(cls, matrix: sp.csr_array, device: torch.device, dtype: torch.dtype | None = None) -> CompressedRows:
        """From SciPy's; columns of less than 2³¹ take four bytes each."""
        starts, columns = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32, copy=False)
        parts = [torch.from_numpy(part).to(device) for part in (starts, columns, matrix.data)]
        return cls(parts[0], parts[1], parts[2].to(dtype or parts[2].dtype), matrix.shape[1])

    def to_scipy(self) -> sp.csr_array:
        columns, starts = self.columns.cpu().numpy(), self.starts.cpu().numpy()
        if len(columns) <= np.iinfo(columns.dtype).max:
            starts = starts.astype(columns.dtype)  # SciPy would make both the larger type
        parts = (self.values.cpu().numpy(), columns, starts)
        return sp.csr_array(parts, shape=tuple(self.shape))

    def like(self, values: Tensor) -> CompressedRows:
        """Other values at the same places."""
        return CompressedRows(self.starts, self.columns, values, self.shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def device(self) -> torch.device:
        return self.values.device

    @property
    def dtype(self) -> torch.dtype:
        return self.values.dtype

    @property
    def ndim(self) -> int:
        return 2

    @property
    def is_cuda(self) -> bool:
        return self.values.is_cuda

    def numel(self) -> int:
        return self.shape.numel()

    def to(self, dtype: torch.dtype) -> CompressedRows:
        return self.like(self.values.to(dtype))

    def sum(self, dim: int) -> Tensor:
        """How many ones each row of a 0/1 matrix has."""
        assert dim == 1, "columns are not summed"
        return torch.cat([self._counted(part) for part in parts_of(self)])

    def _counted(self, part: slice) -> Tensor:
        starts = self.starts[part.start : part.stop + 1]
        values = self.values[int(starts[0]) : int(starts[-1])].long()
        return torch.nn.functional.pad(values.cumsum(0), (1, 0))[starts - starts[0]].diff()

    def __getitem__(self, index: Any) -> Tensor:
        n_rows, row, place = self._places(index)
        dense = self.values.new_zeros((n_rows, self.shape[1]))
        dense[row, self.columns[place].long()] = self.values[place]
        return dense

    def __setitem__(self, index: Any, rows: Tensor) -> None:
        _, row, place = self._places(index)
        self.values[place] = rows[row, self.columns[place].long()].to(self.values.dtype)

    def _places(self, index: Any) -> tuple[int, Tensor, Any]:
        """How many rows these are, and of each stored place its row among them and where it is stored."""
        if isinstance(index, slice):
            begin, end, step = index.indices(len(self))
            assert step == 1, "rows are taken in their order"
            starts = self.starts[begin : max(begin, end) + 1]
            row = torch.arange(len(starts) - 1, device=self.device).repeat_interleave(starts.diff())
            return len(starts) - 1, row, slice(int(starts[0]), int(starts[-1]))
        index = index.nonzero().flatten() if index.dtype == torch.bool else index
        first, count = self.starts[index], self.starts[index + 1] - self.starts[index]
        row = torch.arange(len(index), device=self.device).repeat_interleave(count)
        before = count.cumsum(0) - count
        return len(index), row, (first - before)[row] + torch.arange(len(row), device=self.device)


class StreamedRows:
    """Features that are gathered when they are asked for: indexing a `LazyRows` gives tensors on a device."""

    def __init__(self, rows: Any, dtype: torch.dtype, device: torch.device) -> None:
        self.rows, self.dtype, self.device = rows, dtype, device
        self.shape = torch.Size(rows.shape)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def __getitem__(self, index: Any) -> Tensor:
        found = self.rows[index if isinstance(index, slice) else index.cpu().numpy()]
        return torch.from_numpy(np.ascontiguousarray(found)).to(device=self.device, dtype=self.dtype)


def epoch_order(x: Any, generator: torch.Generator) -> Tensor:
    """All rows in a new order: at random, or as random as the files allow that they are read from."""
    if isinstance(x, StreamedRows) and x.rows.source.in_windows:
        seed = int(torch.randint(2**31 - 1, (1,), generator=generator))
        return torch.from_numpy(np.concatenate(x.rows.windows(np.random.default_rng(seed)), dtype=np.int64))
    return torch.randperm(len(x), generator=generator)


Rows = Tensor | CompressedRows


def parts_of(first: Any, *others: Any) -> Iterator[slice]:
    """All rows in parts whose dense form is small; of tensors one part. Of the others a part fills a network's pass."""
    sizes = [] if isinstance(first, Tensor) else [part_size(first.shape[1], CELLS_AT_ONCE)]
    lazy = [matrix for matrix in others if not isinstance(matrix, Tensor)]
    sizes += [max(part_size(matrix.shape[1], CELLS_AT_ONCE), ROWS_AT_ONCE) for matrix in lazy]
    size = min(sizes, default=max(len(first), 1))
    for begin in range(0, max(len(first), 1), size):
        yield slice(begin, min(begin + size, len(first)))


def by_rows(function: Callable[..., Tensor], first: Any, *others: Any) -> Any:
    """The matrix that `function` makes of dense rows of these, which treats every row by itself.

    Where any of them are compressed or on the disk, a part after the other; the result is kept at the places of the
    first.
    """
    if all(isinstance(matrix, Tensor) for matrix in (first, *others)):
        return function(first, *others)
    found: Any = None
    for part in parts_of(first, *others):
        rows = function(first[part], *(other[part] for other in others))
        if found is None and isinstance(first, Tensor):
            found = rows.new_empty((len(first), *rows.shape[1:]))
        elif found is None:
            found = first.like(torch.empty(len(first.columns), dtype=rows.dtype, device=first.device))
        found[part] = rows
    return found


def for_rows(function: Callable[..., Tensor], first: Any, *others: Any) -> Tensor:
    """What `function` makes of dense rows of these, one value or vector for each row."""
    return torch.cat([function(first[part], *(other[part] for other in others)) for part in parts_of(first)])


def stored(rows: Rows | StreamedRows) -> list[Tensor]:
    """The tensors in which rows are kept, their values last; of rows on the disk what identifies them."""
    if isinstance(rows, StreamedRows):
        return [torch.tensor([*rows.rows.identity().encode()], dtype=torch.uint8)]
    return [rows] if isinstance(rows, Tensor) else [rows.starts, rows.columns, rows.values]


def row_numbers(rows: Rows) -> Tensor:
    """The row of each stored value; a dense row is one."""
    numbers = torch.arange(len(rows), device=rows.device)
    return numbers if isinstance(rows, Tensor) else numbers.repeat_interleave(rows.starts.diff())
