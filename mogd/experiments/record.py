"""The records of a run: JSON lines, one for each finished cell, each written whole or not at all.

A line holds the cell's definition, its `key`, its `work` (equal for cells that compute the same), and: `selected`
(parameters chosen on training rows), `data_fingerprint`, `metrics` (accuracy and calibration on the test rows, each
looked at once, `accuracy_views` with test-time views, disambiguation and covering on the training rows), `curve`,
`confidence_histogram`, `seconds`, `started`, `host`, `versions`, `commit`, `dirty`, `code` and `error`. Where later
code has given a sample of such records again, its hash is `confirmed`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

Record = dict[str, Any]
IN_TABLE = ("recipe", "scale", "panel", "dataset", "setting", "label", "repetition", "fold")
VOLATILE = ("seconds", "started", "host", "versions", "commit", "dirty")  # what may differ between equal runs


def read_records(paths: Iterable[str | os.PathLike[str]]) -> list[Record]:
    """All whole lines of the files, in order; of several records for one place in a table the last counts."""
    found: dict[str, Record] = {}
    for path in paths:
        for number, line in enumerate(_whole_lines(Path(path)), start=1):
            try:
                record = json.loads(line)
                place = json.dumps([record[name] for name in IN_TABLE], sort_keys=True)
            except (ValueError, KeyError, TypeError):
                raise ValueError(f"{path} holds no record in line {number}: mend or delete that line") from None
            found.pop(place, None)
            found[place] = record
    return list(found.values())


def count_records(path: Path) -> int:
    """How many whole lines a file has."""
    return len(_whole_lines(path)) if path.exists() else 0


def keys_after(path: Path, count: int) -> set[str]:
    """The keys of the records behind the first `count`, but those that failed."""
    added = (json.loads(line) for line in _whole_lines(path)[count:])
    return {record["key"] for record in added if record["error"] is None}


class RecordFile:
    """A file of records that one process at a time may append to; a torn last line is cut off when it is opened."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        _lock(self._file, self.path)
        content = self.path.read_bytes()
        if not content.endswith(b"\n"):
            os.ftruncate(self._file, content.rfind(b"\n") + 1)
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)

    def append(self, record: Record) -> None:
        """One write of one whole line, on the disk when this returns."""
        line = (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n").encode()
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(
                f"only {written} of {len(line)} bytes of a record could be written to {self.path}: disk full?"
            )
        os.fsync(self._file)


def _whole_lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n") and line.strip()]


def _lock(file: int, path: Path) -> None:
    """Keep a second run from appending to the same file; the lock goes with the process, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise RuntimeError(f"another run is writing to {path}: wait for it, or choose another --out") from None
