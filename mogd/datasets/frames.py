"""Tables on disk: CSV, TSV, Parquet and Feather to a polars frame and back, by the file's ending."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mogd.datasets.apart import MEMORY_LIMIT, read_apart
from mogd.datasets.base import atomic_file

if TYPE_CHECKING:
    import polars as pl

TEXT = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")
FEATHER = (".feather", ".arrow", ".ipc")
MISSING = ("", "NA", "NaN", "nan", "null")  # cells of a text file that hold nothing
GROWTH = 32  # a table may take this many times its compressed size
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # with which a formula may begin
Path_ = str | os.PathLike[str]


def polars() -> Any:
    """The module polars, or the way to it."""
    try:
        import polars
    except ImportError:
        raise ImportError("reading tables needs polars: pip install 'mogd[tables]'") from None
    return polars


def read_frame(path: Path_, *, missing: Sequence[str] = MISSING) -> pl.DataFrame:
    """A table as a polars frame; the separator of a text file is the one its header uses."""
    path = Path(path)
    ending = path.suffix.lower()
    check_ending(path)
    pl = polars()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: a table has a line of column names and a line for each row")
    frame = _text(pl, path, missing) if ending in TEXT else _columnar(pl, path, ending)
    if not frame.height:
        raise ValueError(f"{path} has column names but no rows")
    return frame


def _text(pl: Any, path: Path, missing: Sequence[str]) -> pl.DataFrame:
    try:
        return pl.read_csv(path, separator=_separator(path), null_values=list(missing), infer_schema_length=None)
    except (Exception, pl.exceptions.PanicException) as error:  # damage can raise nearly anything
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ValueError(f"{path} cannot be read as text in columns (UTF-8): {reason}") from None


def _columnar(pl: Any, path: Path, ending: str) -> pl.DataFrame:
    """A Parquet or Feather file, read in a process apart: a damaged one can end it by an allocation without end."""
    program = Path(__file__).with_name("columnar.py")
    kind = "Parquet" if ending in PARQUET else "Feather (Arrow IPC)"
    limit = max(MEMORY_LIMIT, GROWTH * path.stat().st_size)
    way_out = "write it as CSV if it is genuine"
    with read_apart(str(program), path, kind, what=f"{kind} file", way_out=way_out, memory_limit=limit) as answer:
        return pl.read_ipc(answer)


def write_frame(path: Path_, columns: Mapping[str, Any]) -> Path:
    """Write named columns as CSV, TSV, Parquet or Feather; the file takes its place only when complete."""
    path = Path(path)
    ending = path.suffix.lower()
    check_target(path)
    pl = polars()
    listed = {name: v.tolist() if hasattr(v, "tolist") else v for name, v in columns.items()}
    if ending in TEXT:
        listed = {defused(name): [defused(cell) for cell in cells] for name, cells in listed.items()}
    frame = pl.DataFrame(listed)
    with atomic_file(path) as temporary:
        if ending in TEXT:
            frame.write_csv(temporary, separator="\t" if ending == ".tsv" else ",")
        elif ending in PARQUET:
            frame.write_parquet(temporary)
        else:
            frame.write_ipc(temporary)
    return path


def defused(cell: Any) -> Any:
    """Text that a spreadsheet would run as a formula, with a quote before it; numbers and all else as they are."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA) or _is_number(cell):
        return cell
    return f"'{cell}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_target(path: Path) -> None:
    """Refuse a place to which no table can be written, before the time is spent to make one."""
    check_ending(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into: make it first")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise OSError(f"{path} cannot be written: it is a folder, or its folder may not be written to")


def need(frame: pl.DataFrame, name: str, what: str) -> None:
    """Refuse a table that lacks a named column."""
    if name not in frame.columns:
        raise ValueError(f"there is no column {name!r} for {what}; the table has {', '.join(frame.columns)}")


def check_ending(path: Path) -> None:
    """Refuse a name whose ending says no kind of table."""
    if path.suffix.lower() not in TEXT + PARQUET + FEATHER:
        endings = ", ".join(TEXT + PARQUET + FEATHER)
        raise ValueError(f"a table's name must end in one of {endings}; got {path.name!r}")


def _separator(path: Path) -> str:
    with path.open(encoding="utf-8-sig") as file:
        header = file.readline()
    unquoted = "".join(header.split('"')[::2])
    return max("\t,;" if path.suffix.lower() == ".tsv" else ",;\t", key=unquoted.count)
