"""Parquet and Feather files in the process apart: read by polars, handed on as a file that polars itself wrote."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import polars as pl


def read_into(out: IO[bytes], path: Path, kind: str) -> None:
    """Write the table at `path` to `out` as an Arrow IPC file."""
    try:
        read(path, kind).write_ipc(out)
    except MemoryError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # damage can raise nearly anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ValueError(f"{path} cannot be read as {kind}: {reason}") from None


def read(path: Path, kind: str) -> Any:
    return pl.read_parquet(path) if kind == "Parquet" else pl.read_ipc(path)
