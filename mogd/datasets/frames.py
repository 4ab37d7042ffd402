"""Tables on disk: text, JSON, Excel, Parquet and Feather to a polars frame and back, by the file's ending.

`-` is the standard input, whose kind is found in its first bytes, and the standard output, which gets CSV.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mogd.datasets.apart import MEMORY_LIMIT, read_apart
from mogd.datasets.base import atomic_file
from mogd.datasets.delimited import Source, as_utf8, first_line, open_source, read_delimited

if TYPE_CHECKING:
    import polars as pl

ENDINGS = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "text in columns"),
    **dict.fromkeys((".jsonl", ".ndjson"), "JSON lines"),
    ".json": "JSON",
    ".xlsx": "Excel",
    **dict.fromkeys((".parquet", ".pq"), "Parquet"),
    **dict.fromkeys((".feather", ".arrow", ".ipc"), "Feather (Arrow IPC)"),
}
PACKED = ("text in columns", "JSON lines", "JSON")  # kinds that may be gzipped
FIRST_BYTES = {b"PAR1": "Parquet", b"ARROW1": "Feather (Arrow IPC)", b"PK\x03\x04": "Excel"}
MISSING = ("", "NA", "NaN", "nan", "null")  # cells of a text file that hold nothing
UNREADABLE = (OSError, EOFError, zlib.error, UnicodeDecodeError, json.JSONDecodeError, RecursionError)
STANDARD = "-"  # the standard input or output
GROWTH = 32  # a table may take this many times its compressed size
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")  # with which a formula may begin
Path_ = str | os.PathLike[str]


def read_frame(path: Path_, *, missing: Sequence[str] = MISSING, encoding: str | None = None) -> pl.DataFrame:
    """A table as a polars frame."""
    found = read_rows(path, missing=missing, encoding=encoding)
    return frame_of(found) if isinstance(found, list) else found


def read_rows(
    path: Path_, *, missing: Sequence[str] = MISSING, encoding: str | None = None
) -> pl.DataFrame | list[dict[str, Any]]:
    """A table as it is written: JSON as its objects, everything else as a frame."""
    import polars as pl

    source, kind, name = _source(path)
    if encoding is not None and kind not in PACKED:
        raise ValueError(f"encoding is for text and JSON; {name} is {kind}")
    found: pl.DataFrame | list[dict[str, Any]]
    try:
        if kind == "text in columns":
            found = read_delimited(source, name, missing, encoding)
        elif kind in PACKED:
            found = _read_json(as_utf8(source, name, encoding), kind)
        elif kind == "Excel":
            found = _read_excel(source)
        else:
            found = _read_columnar(source, kind)
    except (pl.exceptions.PanicException, *UNREADABLE, pl.exceptions.PolarsError) as error:
        raise ValueError(f"{name} cannot be read as {kind}: {first_line(error)}") from None
    if not len(found):
        raise ValueError(f"{name} has column names but no rows")
    return found


def _read_columnar(source: Source, kind: str) -> pl.DataFrame:
    """A Parquet or Feather file, read in a process apart: a damaged one can end it by an allocation without end."""
    import polars as pl

    if isinstance(source, bytes):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "standard-input")
            path.write_bytes(source)
            return _read_columnar(path, kind)
    program = Path(__file__).with_name("columnar.py")
    limit = max(MEMORY_LIMIT, GROWTH * source.stat().st_size)
    way_out = "write it as CSV if it is genuine"
    with read_apart(str(program), source, kind, what=f"{kind} file", way_out=way_out, memory_limit=limit) as answer:
        return pl.read_ipc(answer)


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Objects as a frame; a key that an object lacks is a missing cell."""
    import polars as pl

    names = dict.fromkeys(name for row in rows for name in row)
    try:
        return pl.DataFrame([_column(name, [row.get(name) for row in rows]) for name in names])
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise ValueError(f"the objects do not make a table: {first_line(error)}") from None


def _column(name: str, cells: list[Any]) -> pl.Series:
    """Cells as one kind; as text where they have none that numpy knows: nothing in common, or too large numbers."""
    import polars as pl

    try:
        found = pl.Series(name, cells, strict=False)
        if str(found.dtype) not in ("Object", "Int128"):  # by their names: the least polars knows only the first
            return found
    except OverflowError:  # the least polars' word for whole numbers that are too large
        pass
    return pl.Series(name, [None if cell is None else str(cell) for cell in cells])


def as_frame(columns: Mapping[str, Any]) -> pl.DataFrame:
    """Named columns, arrays or lists, as a frame."""
    import polars as pl

    return pl.DataFrame({name: v.tolist() if hasattr(v, "tolist") else v for name, v in columns.items()})


def write_frame(path: Path_, columns: Mapping[str, Any] | pl.DataFrame) -> Path:
    """Write named columns as the ending says; the file takes its place only when complete."""
    import polars as pl

    kind = check_target(path)
    if not isinstance(columns, pl.DataFrame):
        columns = as_frame(columns)
    if kind == "text in columns":
        columns = pl.DataFrame([_defused_column(column) for column in columns])
    with writing(path) as file:
        if kind == "text in columns":
            columns.write_csv(file, separator="\t" if ".tsv" in Path(path).suffixes else ",")
        elif kind == "JSON lines":
            columns.write_ndjson(file)
        elif kind == "JSON":
            file.write(columns.write_json().encode())
        elif kind == "Excel":
            _write_excel(columns, file)
        elif kind == "Parquet":
            columns.write_parquet(file)
        else:
            columns.write_ipc(file)
    return Path(path)


@contextmanager
def writing(path: Path_) -> Iterator[IO[bytes]]:
    """A file to write into that takes its place when complete, gzipped where its name says so; `-` prints."""
    if str(path) == STANDARD:
        content = io.BytesIO()
        yield content
        sys.stdout.buffer.write(content.getvalue())
        sys.stdout.flush()
        return
    path = Path(path)
    check_target(path)
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        if path.suffix.lower() == ".gz":
            with gzip.GzipFile(path.stem, "wb", fileobj=file, mtime=0) as packed:
                yield packed  # type: ignore[misc]
        else:
            yield file


def check_target(path: Path_) -> str:
    """Refuse a place to which no table can be written, before the time is spent to make one; the kind of the table."""
    kind, path = kind_of(path), Path(path)
    if str(path) != STANDARD and not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} to write {path.name} into: make it first")
    if str(path) != STANDARD and (path.is_dir() or not os.access(path.parent, os.W_OK)):
        raise OSError(f"{path} cannot be written: it is a folder, or its folder may not be written to")
    return kind


def defused(cell: Any) -> Any:
    """Text that a spreadsheet would run as a formula, with a quote before it; numbers and all else as they are."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA) or _is_number(cell):
        return cell
    return f"'{cell}"


def _defused_column(column: pl.Series) -> pl.Series:
    import polars as pl

    column = column.alias(defused(column.name))
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return column
    column = column.cast(pl.String)
    suspect = column.filter(column.str.slice(0, 1).is_in(FORMULA)).unique().to_list()
    return column.replace({cell: defused(cell) for cell in suspect}) if suspect else column


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def need(frame: pl.DataFrame, name: str, what: str) -> None:
    """Refuse a table that lacks a named column."""
    if name not in frame.columns:
        raise ValueError(f"there is no column {name!r} for {what}; the table has {', '.join(frame.columns)}")


def kind_of(path: Path_) -> str:
    """What a name says of the table; a name that says nothing is refused."""
    path = Path(path)
    if str(path) == STANDARD:
        return "text in columns"
    packed = path.suffix.lower() == ".gz"
    kind = ENDINGS.get(Path(path.stem).suffix.lower() if packed else path.suffix.lower())
    if kind is None or (packed and kind not in PACKED):
        raise ValueError(
            f"a table's name must end in one of {', '.join(ENDINGS)} (text and JSON also with .gz); got {path.name!r}"
        )
    return kind


def _source(path: Path_) -> tuple[Source, str, str]:
    """Where the bytes are, their kind, and the name that messages give them."""
    if str(path) == STANDARD:
        content = sys.stdin.buffer.read()
        if not content:
            raise ValueError("the standard input is empty: a table has a line of column names and a line for each row")
        return content, _sniff(content), "the standard input"
    path = Path(path)
    kind = kind_of(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    if not path.stat().st_size:
        raise ValueError(f"{path} is empty: a table has a line of column names and a line for each row")
    return path, kind, str(path)


def _sniff(content: bytes) -> str:
    with open_source(content) as file:
        content = file.read(1 << 10)
    for first, kind in FIRST_BYTES.items():
        if content.startswith(first):
            return kind
    start = content.lstrip()[:1]
    return "JSON" if start == b"[" else "JSON lines" if start == b"{" else "text in columns"


def _read_json(source: Source, kind: str) -> list[dict[str, Any]]:
    """Objects, one for each row: in one list, or one a line."""
    with open_source(source) as file:
        content = file.read().removeprefix(codecs.BOM_UTF8)
    if kind == "JSON lines":
        return [_object(line, number) for number, line in enumerate(content.splitlines(), 1) if line.strip()]
    rows = json.loads(content)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise json.JSONDecodeError("a table is a list of objects, one for each row", "", 0)
    return rows


def _object(line: bytes, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise json.JSONDecodeError(f"line {number}: {error.msg}", error.doc, error.pos) from None
    if not isinstance(row, dict):
        raise json.JSONDecodeError(f"line {number} is no object", line.decode(errors="replace"), 0)
    return row


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ImportError:
        raise ImportError("Excel files need openpyxl: pip install 'mogd[excel]'") from None
    return openpyxl


def _read_excel(source: Source) -> pl.DataFrame:
    """The first sheet; its first row names the columns."""
    import polars as pl

    openpyxl = _openpyxl()
    try:
        book = openpyxl.load_workbook(
            io.BytesIO(source) if isinstance(source, bytes) else source, read_only=True, data_only=True
        )
        header, *rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)] or [[]]
    except Exception as error:  # openpyxl lets errors of zip and XML through as they come
        raise pl.exceptions.ComputeError(first_line(error)) from None
    rows = [row for row in rows if any(cell is not None for cell in row)]
    named = [(i, str(name)) for i, name in enumerate(header) if name is not None]
    cells = {i: [row[i] if i < len(row) else None for row in rows] for i, _ in named}  # a row ends at its last cell
    return pl.DataFrame([_column(name, cells[i]) for i, name in named])


def _write_excel(frame: pl.DataFrame, file: IO[bytes]) -> None:
    openpyxl = _openpyxl()
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("mogd")
    sheet.append(frame.columns)
    for row in frame.iter_rows():
        cells = [openpyxl.cell.WriteOnlyCell(sheet, value) for value in row]
        for cell in cells:
            cell.data_type = "s" if cell.data_type == "f" else cell.data_type  # text that begins with = is no formula
        sheet.append(cells)
    book.save(file)
