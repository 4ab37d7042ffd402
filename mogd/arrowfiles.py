"""Rows of Parquet and Arrow files that are larger than the memory: row groups, read ahead in a background thread."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mogd.rowsource import LazyRows

WINDOW_BYTES = 2**27  # of the row groups whose rows are shuffled together; as many again are read ahead
LARGE_BYTES = 2**28  # of a file, above which prediction reads it a row group at a time
ENDINGS = {".parquet": "Parquet", ".pq": "Parquet", ".arrow": "Arrow", ".feather": "Arrow", ".ipc": "Arrow"}


class Group(NamedTuple):
    """Rows that are read together: a row group of Parquet, a record batch of Arrow."""

    path: Path
    number: int
    n_rows: int


def open_rows(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, *, ignore: Sequence[str] = ()
) -> LazyRows:
    """Features in a Parquet or Arrow (Feather) file, or a folder of them in the order of their names, left on the disk.

    Pass the result as `X` to `fit` and `predict`. Files are read in this process: open only those that you trust.

    Parameters
    ----------
    columns : of numbers, or one column of lists of equal length (embeddings); by default all columns of numbers.
    ignore : columns that are no features.
    """
    return LazyRows(ArrowRows(_files(path), columns, ignore))


def read_column(path: str | os.PathLike[str], column: str) -> list[Any]:
    """One column of a file or folder, such as the candidate sets, in memory and in the order of `open_rows`."""
    return [cell for table in read_groups(path, [column]) for cell in table.column(0).to_pylist()]


def read_groups(path: str | os.PathLike[str], columns: list[str] | None = None) -> Iterator[Any]:
    """The row groups of a file or folder as Arrow tables, each read in the background while the one before is used."""
    groups = (Group(file, i, n) for file in _files(path) for i, n in enumerate(_describe(file)[1]) if n)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="mogd-rows") as reader:
        ahead: Future[Any] | None = None
        for group in groups:
            present, ahead = ahead, reader.submit(_table, group, columns)
            if present is not None:
                yield present.result()
        if ahead is not None:
            yield ahead.result()


def is_large(path: str | os.PathLike[str], limit: int | None = None) -> bool:
    """Whether a table is read a row group at a time: a folder of Parquet or Arrow files, or a large one of them."""
    found, limit = Path(path), LARGE_BYTES if limit is None else limit
    return found.is_dir() or (found.suffix in ENDINGS and found.is_file() and found.stat().st_size > limit)


def columns_of(path: str | os.PathLike[str]) -> dict[str, bool]:
    """The columns of a file or folder, and whether each holds numbers."""
    schema, _ = _describe(_files(path)[0])
    return {field.name: _is_number(field.type) for field in schema}


def _files(path: str | os.PathLike[str]) -> list[Path]:
    found = Path(path)
    if not found.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    files = sorted(f for f in found.iterdir() if f.suffix in ENDINGS) if found.is_dir() else [found]
    if not files or any(file.suffix not in ENDINGS for file in files):
        of_folder = ": name the one file of a folder that holds others" if found.is_dir() else ""
        raise ValueError(f"{path} is no Parquet or Arrow file or folder of them ({', '.join(ENDINGS)}){of_folder}")
    return files


class ArrowRows:
    """Rows of the groups of some files, as float32.

    An epoch visits the groups in a new order, and the rows of some groups at a time, a window, in a new order.
    A read takes whole groups. Those of the present window of the epoch are kept, those of the next one are read ahead.
    """

    def __init__(self, files: Sequence[Path], columns: Sequence[str] | None, ignore: Sequence[str]) -> None:
        self.files = list(files)
        schemas, self.groups = [], []
        for file in self.files:
            schema, sizes = _describe(file)
            schemas.append(schema)
            self.groups += [Group(file, number, n_rows) for number, n_rows in enumerate(sizes) if n_rows]
        self.columns = _numeric(schemas[0], files[0]) if columns is None else list(columns)
        self.columns = [name for name in self.columns if name not in ignore]
        for file, schema in zip(self.files, schemas, strict=True):
            absent = [name for name in self.columns if name not in schema.names]
            if absent or not self.columns:
                raise ValueError(f"{file} has no column {absent or 'of numbers'}; it has {', '.join(schema.names)}")
        if not self.groups:
            raise ValueError(f"{self.files[0]} has columns but no rows")
        self.starts = np.cumsum([0, *(group.n_rows for group in self.groups)])
        self.dtype = np.dtype(np.float32)
        self.in_windows = True
        width = len(self.columns)
        lists = schemas[0].field(self.columns[0]).type
        if width == 1 and hasattr(lists, "list_size"):
            width = lists.list_size
        self.shape = (int(self.starts[-1]), width)
        largest = max(group.n_rows for group in self.groups) * width * self.dtype.itemsize
        if largest > 4 * WINDOW_BYTES:
            raise ValueError(
                f"{self.files[0]} has a row group of {largest >> 20} MiB, too many to be kept beside others: write it "
                "with smaller ones (pyarrow.parquet.write_table(…, row_group_size=100_000))"
            )
        self.per_window = max(1, WINDOW_BYTES // largest)
        self.place = np.arange(len(self.groups))  # of each group in the order in which they are visited
        self.kept: dict[int, Future[np.ndarray]] = {}
        self.reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mogd-rows")

    def read(self, index: np.ndarray) -> np.ndarray:
        found = np.empty((len(index), self.shape[1]), dtype=self.dtype)
        of_row = np.searchsorted(self.starts, index, side="right") - 1
        needed = np.unique(of_row).tolist()
        keeping = self._keep(needed)
        for group in needed:
            rows = self.kept[group].result() if keeping else self._load(group)
            own = np.flatnonzero(of_row == group)
            found[own] = rows[index[own] - self.starts[group]]
        return found

    def slice(self, first: int, end: int) -> np.ndarray:
        """As a pass over all rows asks for them: a group at a time, and the next one is read ahead."""
        found = np.empty((end - first, self.shape[1]), dtype=self.dtype)
        group = int(np.searchsorted(self.starts, first, side="right")) - 1
        at = first
        while at < end:
            self._hold(range(group, min(group + 2, len(self.groups))))
            begin, until = int(self.starts[group]), min(end, int(self.starts[group + 1]))
            found[at - first : until - first] = self.kept[group].result()[at - begin : until - begin]
            at, group = until, group + 1
        return found

    def windows(self, generator: np.random.Generator) -> list[np.ndarray]:
        order = generator.permutation(len(self.groups))
        self.place[order] = np.arange(len(order))
        parts = [order[i : i + self.per_window] for i in range(0, len(order), self.per_window)]
        rows = (np.concatenate([np.arange(self.starts[g], self.starts[g + 1]) for g in part]) for part in parts)
        return [generator.permutation(part) for part in rows]

    def identity(self) -> str:
        return " ".join(f"{f.name}:{f.stat().st_size}:{f.stat().st_mtime_ns}" for f in self.files) + str(self.columns)

    def _keep(self, needed: list[int]) -> bool:
        """Keep the groups of the windows at hand and of the next, and no others; False for rows from everywhere."""
        window = self.place // self.per_window
        first, last = (window[needed].min(), window[needed].max()) if needed else (0, 0)
        if last - first > 1:
            return False
        wanted = np.flatnonzero((window >= first) & (window <= last + (last == first)))
        self._hold(wanted[np.argsort(self.place[wanted])].tolist())
        return True

    def _hold(self, groups: Sequence[int]) -> None:
        """Keep these groups, reading in this order what is not there yet, and no others."""
        for group in set(self.kept).difference(groups):
            self.kept.pop(group).cancel()
        for group in groups:
            if group not in self.kept:
                self.kept[group] = self.reader.submit(self._load, group)

    def _load(self, group: int) -> np.ndarray:
        table = _table(self.groups[group], self.columns)
        found = np.empty((table.num_rows, self.shape[1]), dtype=self.dtype)
        for k, column in enumerate(table.columns):
            if len(self.columns) < self.shape[1]:
                lists = column.combine_chunks()
                found[:] = lists.flatten().to_numpy(zero_copy_only=False).reshape(found.shape)
            else:
                found[:, k] = column.to_numpy()
        return found


def _describe(path: Path) -> tuple[Any, list[int]]:
    """The columns of a file, and how many rows each of its groups has."""
    arrow = _arrow()
    try:
        if ENDINGS[path.suffix] == "Parquet":
            file = arrow.parquet.ParquetFile(path)
            described = file.metadata
            return file.schema_arrow, [described.row_group(i).num_rows for i in range(described.num_row_groups)]
        with arrow.memory_map(str(path)) as mapped:
            batches = arrow.ipc.open_file(mapped)
            return batches.schema, [batches.get_batch(i).num_rows for i in range(batches.num_record_batches)]
    except (arrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} cannot be read as {ENDINGS[path.suffix]}: {str(error).splitlines()[0]}") from None


def _table(group: Group, columns: list[str] | None) -> Any:
    arrow = _arrow()
    if ENDINGS[group.path.suffix] == "Parquet":
        with arrow.parquet.ParquetFile(group.path) as file:
            return file.read_row_group(group.number, columns=columns, use_threads=False)
    with arrow.memory_map(str(group.path)) as mapped:
        batch = arrow.ipc.open_file(mapped).get_batch(group.number)
        table = arrow.Table.from_batches([batch])
        return table if columns is None else table.select(columns)


def _numeric(schema: Any, path: Path) -> list[str]:
    found = [field.name for field in schema if _is_number(field.type)]
    if not found:
        raise ValueError(f"{path} has no column of numbers: name the features by columns=[…]")
    return found


def _is_number(kind: Any) -> bool:
    types = _arrow().types
    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ImportError("rows of Parquet and Arrow files need pyarrow: pip install 'mogd[arrow]'") from None
    return pyarrow
