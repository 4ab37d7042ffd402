"""Features that stay on the disk, in a memory-mapped array or in Parquet and Arrow files, and are read when needed.

A `LazyRows` is indexed like an array and gives arrays. A fit gathers the rows of each batch; checks, scaling and
prediction read all rows once, a block at a time.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from sklearn.preprocessing import StandardScaler

from mogd.labels import name_rows

MAPPED_BYTES = 2**28  # a memory-mapped array of more than this stays on the disk
BLOCK_CELLS = 2**23  # read at once in a pass over all rows: 32 MiB of float32


class Source(Protocol):
    """Where rows `(n, d)` come from."""

    shape: tuple[int, int]
    dtype: np.dtype
    in_windows: bool  # whether an epoch must visit the rows a part after the other; else any order is as quick

    def read(self, index: np.ndarray) -> np.ndarray:
        """These rows, in this order."""
        ...

    def slice(self, first: int, end: int) -> np.ndarray:
        """The rows from `first` to before `end`."""
        ...

    def windows(self, generator: np.random.Generator) -> list[np.ndarray]:
        """The rows in the parts in which an epoch visits them, each in a new order."""
        ...

    def identity(self) -> str:
        """What identifies these rows."""
        ...


class MappedRows:
    """Rows of a memory-mapped array, read from its file.

    A page that is touched through the map counts as memory of the process, and a row may bring a megabyte around it.
    Where rows are not one piece of a file each, or were changed in memory alone, they are read through the map.
    """

    in_windows = False

    def __init__(self, array: np.memmap) -> None:
        self.array, self.shape, self.dtype = array, (array.shape[0], array.shape[1]), array.dtype
        self.file, self.start = _file_of(array)

    def read(self, index: np.ndarray) -> np.ndarray:
        found = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        if self.file is None:
            found[:] = self.array[index]
            return found
        into, size = found.reshape(-1).view(np.uint8).data, found.strides[0]
        order = np.argsort(index)  # neighbours on the disk one after the other
        offsets = self.start + index[order].astype(np.int64) * self.array.strides[0]
        for place, offset in zip((order * size).tolist(), offsets.tolist(), strict=True):
            self._fill(into[place : place + size], offset)
        return found

    def slice(self, first: int, end: int) -> np.ndarray:
        if self.file is None or self.array.strides[0] != self.shape[1] * self.dtype.itemsize:
            return self.read(np.arange(first, end))
        found = np.empty((end - first, self.shape[1]), dtype=self.dtype)
        self._fill(found.reshape(-1).view(np.uint8).data, self.start + first * self.array.strides[0])
        return found

    def windows(self, generator: np.random.Generator) -> list[np.ndarray]:
        return [generator.permutation(self.shape[0])]

    def identity(self) -> str:
        return f"{self.array.filename} {self.shape} {self.dtype}"

    def _fill(self, into: memoryview, offset: int) -> None:
        assert self.file is not None
        while into:  # the system may read less than it was asked for
            n_read = os.preadv(self.file.fileno(), [into], offset)
            if not n_read:
                raise OSError(f"{self.array.filename} ends before its last row: it was shortened while it was read")
            into, offset = into[n_read:], offset + n_read


def _file_of(array: np.memmap) -> tuple[Any, int]:
    """The file of a mapped array and where in it the array begins; None where it must be read through the map."""
    whole: Any = array
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    own = array.strides[1] == array.dtype.itemsize and array.strides[0] > 0  # each row in one piece
    if not (own and len(array) and isinstance(whole, np.memmap) and whole.filename and whole.mode != "c"):
        return None, 0
    if not hasattr(os, "preadv"):
        return None, 0
    start = whole.offset + array.ctypes.data - whole.ctypes.data
    try:
        file = open(whole.filename, "rb", buffering=0)  # noqa: SIM115
    except OSError:  # it was removed, and lives on in the map
        return None, 0
    for row in (0, len(array) - 1):  # or another took its name
        expected = np.ascontiguousarray(array[row]).tobytes()
        if os.pread(file.fileno(), len(expected), start + row * array.strides[0]) != expected:
            file.close()
            return None, 0
    return file, start


class ChosenRows:
    """Some rows of a source."""

    def __init__(self, source: Source, rows: np.ndarray) -> None:
        self.source = source
        self.rows = rows.astype(
            np.min_scalar_type(-1 - source.shape[0]), copy=False
        )  # few bytes each: there may be millions
        self.shape, self.dtype, self.in_windows = (len(rows), source.shape[1]), source.dtype, source.in_windows

    def read(self, index: np.ndarray) -> np.ndarray:
        return self.source.read(self.rows[index].astype(np.int64))

    def slice(self, first: int, end: int) -> np.ndarray:
        return self.source.read(self.rows[first:end].astype(np.int64))

    def windows(self, generator: np.random.Generator) -> list[np.ndarray]:
        place = np.full(self.source.shape[0], -1, dtype=self.rows.dtype)
        place[self.rows] = np.arange(len(self.rows), dtype=place.dtype)
        found = (place[window] for window in self.source.windows(generator))
        return [window[window >= 0] for window in found]

    def identity(self) -> str:
        return f"{self.source.identity()} {hashlib.sha256(np.ascontiguousarray(self.rows).data).hexdigest()}"


@dataclass(frozen=True, eq=False)
class LazyRows:
    """Rows of a source, scaled when they are read, and perhaps rows in memory behind them."""

    source: Source
    scaler: Any = None
    tail: np.ndarray | None = None  # rows behind those of the source, scaled already

    @property
    def shape(self) -> tuple[int, int]:
        n_rows, n_features = self.source.shape
        return n_rows + (0 if self.tail is None else len(self.tail)), n_features

    @property
    def dtype(self) -> np.dtype:
        return self.source.dtype

    @property
    def ndim(self) -> int:
        return 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice):
            first, end, step = rows.indices(len(self))
            if step == 1 and end <= self.source.shape[0]:
                return self._scaled(self.source.slice(first, max(first, end)))
            rows = np.arange(first, end, step)
        rows = np.asarray(rows)
        index = np.flatnonzero(rows) if rows.dtype == bool else rows.astype(np.int64)
        inside = index < self.source.shape[0]
        if self.tail is None or inside.all():
            return self._scaled(self.source.read(index))
        found = np.empty((len(index), self.shape[1]), dtype=self.tail.dtype)
        found[inside] = self._scaled(self.source.read(index[inside]))
        found[~inside] = self.tail[index[~inside] - self.source.shape[0]]
        return found

    def scaled(self, scaler: Any) -> LazyRows:
        """The same rows through a fitted scaler, if there is one."""
        return self if scaler is None else replace(self, scaler=scaler)

    def chosen(self, rows: np.ndarray) -> LazyRows:
        """These of the rows, by their numbers."""
        assert self.tail is None, "rows are chosen before others stand behind them"
        return replace(self, source=ChosenRows(self.source, rows))

    def followed_by(self, rows: np.ndarray) -> LazyRows:
        """The same rows with these behind them."""
        return replace(self, tail=rows if self.tail is None else np.concatenate([self.tail, rows]))

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """All rows in their order, a block after the other, each with the number of its first row."""
        size = max(1, BLOCK_CELLS // self.shape[1])
        for first in range(0, len(self), size):
            yield first, self[first : first + size]

    def windows(self, generator: np.random.Generator) -> list[np.ndarray]:
        """As of the source, with the rows behind it spread over the parts."""
        found = self.source.windows(generator)
        if self.tail is None:
            return found
        behind = generator.permutation(np.arange(self.source.shape[0], len(self)))
        parts = np.array_split(behind, len(found))
        return [generator.permutation(np.concatenate(pair)) for pair in zip(found, parts, strict=True)]

    @cached_property
    def moments(self) -> StandardScaler:
        """Mean and variance of every column, by one pass; rows that are not finite are refused by their number."""
        found = StandardScaler()
        for first, block in self.blocks():
            if not np.isfinite(block.sum(dtype=np.float64)) and len(bad := bad_rows(block)):
                bad = first + bad
                bad = self.source.rows[bad] if isinstance(self.source, ChosenRows) else bad
                raise ValueError(f"X contains NaN or infinity in {name_rows(bad)}: fill these cells in the file")
            found.partial_fit(block)
        return found

    def identity(self) -> str:
        """What identifies these rows, for a run that goes on."""
        behind = "" if self.tail is None else hashlib.sha256(np.ascontiguousarray(self.tail).data).hexdigest()
        return f"{self.source.identity()} {behind}"

    def _scaled(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.scaler is None or not len(rows) else self.scaler.transform(rows)


def bad_rows(rows: np.ndarray) -> np.ndarray:
    """The rows that hold NaN or infinity."""
    return np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))


def on_disk(X: Any) -> LazyRows | None:
    """The rows as `LazyRows` where they stay on the disk; None where they are an array like any other."""
    if isinstance(X, LazyRows):
        return X
    if isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "fiub" and X.nbytes > MAPPED_BYTES:
        return LazyRows(MappedRows(X))
    return None
