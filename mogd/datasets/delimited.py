"""Delimited text (CSV, TSV) as a polars frame: its separator, its encoding, and the line where it is damaged."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from mogd.candidates import name_rows
from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl

Source = Path | bytes  # a file, or what came by the standard input
GZIP = b"\x1f\x8b"
HEAD = 1 << 16  # bytes in which the encoding shows itself
MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def open_source(source: Source) -> IO[bytes]:
    """The bytes of a file or of the standard input, unpacked where they are gzipped."""
    if isinstance(source, bytes):
        return io.BytesIO(gzip.decompress(source) if source.startswith(GZIP) else source)
    with source.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    return gzip.open(source) if packed else source.open("rb")  # type: ignore[return-value]


def as_utf8(source: Source, name: str, encoding: str | None) -> Source:
    """The source itself where it is UTF-8, else its text as UTF-8; bytes that only look like UTF-16 are refused."""
    if encoding is not None:
        try:
            codecs.lookup(encoding)
        except LookupError:
            raise ValueError(
                f"encoding must be one that Python knows, such as utf-8, utf-16 or latin-1; got {encoding!r}"
            ) from None
    else:
        with open_source(source) as file:
            head = file.read(HEAD)
        encoding = next((found for mark, found in MARKS.items() if head.startswith(mark)), "")
        if encoding == "utf-16":
            warnings.warn(f"{name} is UTF-16 by its first bytes and was read as such", stacklevel=2)
        elif not encoding and 0 in head:  # letters of Western text take one of two bytes each
            little = head[1::2].count(0) >= head[::2].count(0)
            guess = f"utf-16-{'le' if little else 'be'}"
            raise ValueError(f"{name} is not UTF-8: it looks like UTF-16: pass {option('encoding', guess)}")
    if not encoding or codecs.lookup(encoding).name == "utf-8":
        return source
    with open_source(source) as file:
        try:
            return codecs.decode(file.read(), encoding).removeprefix("\ufeff").encode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not {encoding}: {error.reason} at byte {error.start}") from None


def read_delimited(source: Source, name: str, missing: Sequence[str], encoding: str | None) -> pl.DataFrame:
    """A text table; the separator is the one its header uses."""
    import polars as pl

    source = as_utf8(source, name, encoding)
    separator = _separator(source, name)
    try:
        frame = pl.read_csv(source, separator=separator, null_values=list(missing), infer_schema_length=None)
    except pl.exceptions.NoDataError:
        raise ValueError(f"{name} is empty: a table has a line of column names and a line for each row") from None
    except pl.exceptions.PolarsError as error:
        _refuse_bytes(source, name)
        _refuse_long_lines(source, separator, name)
        _refuse_open_quote(source, separator, name)
        raise ValueError(f"{name} cannot be read as text in columns: {first_line(error)}") from None
    _check_header(source, separator, name, frame.columns)
    if frame.height and frame[frame.columns[-1]].null_count():
        _note_short_lines(source, separator, name, frame.width)
        blank = frame.select(pl.all_horizontal(pl.all().is_null())).to_series()
        if frame.width > 1 and blank.any():
            warnings.warn(f"{name} has {blank.sum()} lines without any cell, which are left out", stacklevel=2)
            frame = frame.filter(~blank)
    return frame


def first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def _separator(source: Source, name: str) -> str:
    with open_source(source) as file:
        header = file.readline()
    try:
        unquoted = "".join(header.decode("utf-8-sig").split('"')[::2])
    except UnicodeDecodeError:
        _refuse_bytes(source, name)
        raise
    return max("\t,;" if name.lower().removesuffix(".gz").endswith(".tsv") else ",;\t", key=unquoted.count)


def _refuse_bytes(source: Source, name: str) -> None:
    """Refuse text that is not UTF-8, by its first such line and by the encoding in which it makes sense."""
    with open_source(source) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                word = line[max(0, error.start - 8) : error.start + 8].decode("latin-1").strip()
                raise ValueError(
                    f"{name} is not UTF-8: line {number} holds byte 0x{line[error.start]:02x}; it looks like latin-1 "
                    f"(there it reads {word!r}): pass {option('encoding', 'latin-1')}"
                ) from None


def _rows(source: Source, separator: str) -> Iterator[tuple[int, int]]:
    """The line and the number of fields of every row that is not blank."""
    with open_source(source) as file, io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text:
        reader = csv.reader(text, delimiter=separator)
        csv.field_size_limit(sys.maxsize)
        begins = 1
        for row in reader:
            if row:
                yield begins, len(row)
            begins = reader.line_num + 1


def _check_header(source: Source, separator: str, name: str, columns: Sequence[str]) -> None:
    """Refuse a header without any name; of a name that stands in it twice say what the second column is called."""
    if not any(column.strip() for column in columns):
        raise ValueError(f"{name} has no column names: its first line must hold them")
    with open_source(source) as file, io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text:
        header = next(csv.reader(text, delimiter=separator), [])
    for given, column in zip(header, columns, strict=False):
        if given.strip() and header.count(given) > 1 and given != column:
            warnings.warn(f"{name} has column {given!r} more than once: here it is read as {column!r}", stacklevel=3)


def _refuse_open_quote(source: Source, separator: str, name: str) -> None:
    with open_source(source) as file, io.TextIOWrapper(file, "utf-8-sig", errors="replace", newline="") as text:
        reader = csv.reader(text, delimiter=separator, strict=True)
        begins = 1
        try:
            for _ in reader:
                begins = reader.line_num + 1
        except csv.Error:
            raise ValueError(
                f"line {begins} of {name} has a quote that is not closed where a cell ends: close it, or write a quote "
                'within a cell as ""'
            ) from None


def _refuse_long_lines(source: Source, separator: str, name: str) -> None:
    rows = _rows(source, separator)
    _, width = next(rows)
    for line, fields in rows:
        if fields > width:
            raise ValueError(
                f"line {line} of {name} has {fields} fields, the header has {width}: quote the cell that holds "
                f"{separator!r}, or take the surplus away"
            )


def _note_short_lines(source: Source, separator: str, name: str, width: int) -> None:
    short = [line for line, fields in _rows(source, separator) if fields < width]
    if short:
        lines = name_rows(short).replace("row", "line", 1)
        has = "has" if len(short) == 1 else "have"
        warnings.warn(
            f"{lines} of {name} {has} fewer fields than the header: the cells left count as missing", stacklevel=3
        )
