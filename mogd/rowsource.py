"""Features that stay on the disk, in a memory-mapped array or in Parquet and Arrow files, and are read when needed.

A `LazyRows` is indexed like an array and gives arrays. A fit gathers the rows of each batch; checks, scaling and
prediction read all rows once, a block at a time.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from sklearn.preprocessing import StandardScaler

from mogd.labels import name_rows

MAPPED_BYTES = 2**28  # a memory-mapped array of more than this stays on the disk
BLOCK_CELLS = 2**23  # read at once in a pass over all rows: 32 MiB of float32
RESIDENT_ROWS = 1024  # gathered from a mapped array before its pages are given back: each may have brought 64 KiB


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
    """Rows of a memory-mapped array. The pages that were read are given back, so that they do not fill the memory."""

    in_windows = False

    def __init__(self, array: np.memmap) -> None:
        self.array, self.shape, self.dtype = array, (array.shape[0], array.shape[1]), array.dtype
        base: Any = array
        while isinstance(base, np.ndarray):
            base = base.base
        # pages of a private copy hold what the caller wrote: these alone cannot be read again
        self.map = base if isinstance(base, mmap.mmap) and array.mode != "c" else None
        self.gathered = 0

    def read(self, index: np.ndarray) -> np.ndarray:
        order = np.argsort(index)  # neighbours on the disk one after the other
        found = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        found[order] = self.array[index[order]]
        self._give_back(len(index))
        return found

    def slice(self, first: int, end: int) -> np.ndarray:
        found = np.array(self.array[first:end])
        self._give_back(RESIDENT_ROWS)
        return found

    def windows(self, generator: np.random.Generator) -> list[np.ndarray]:
        return [generator.permutation(self.shape[0])]

    def identity(self) -> str:
        return f"{self.array.filename} {self.shape} {self.dtype}"

    def _give_back(self, n_rows: int) -> None:
        self.gathered += n_rows
        if self.map is not None and self.gathered >= RESIDENT_ROWS and hasattr(mmap, "MADV_DONTNEED"):
            self.map.madvise(mmap.MADV_DONTNEED)
            self.gathered = 0


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
                raise ValueError(
                    f"X contains NaN or infinity in {name_rows(first + bad)}: fill these cells in the file"
                )
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
