"""Number columns: decimal commas and thousands separators in text, and the cell that is no number or infinite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mogd.candidates import name_rows
from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl

MARKS = (",", ".")


def decimal_mark(column: pl.Series, decimal: str | None) -> str | None:
    """The decimal mark of a text column that holds numbers throughout, None where it does not.

    Without `decimal` the column itself decides: in 1,5 the comma is the mark, in 1,234.5 it groups thousands. A column
    of nothing but numbers like 1,234 can be both and is refused.
    """
    marks = [mark for mark in MARKS if _all_match(column, mark)]
    if decimal is not None or len(marks) < 2:
        return decimal if decimal in marks else marks[0] if decimal is None and marks else None
    shown = column.filter(column.str.contains(r"[.,]"))[0]
    raise ValueError(
        f"column {column.name!r} holds numbers such as {shown!r}, in which the mark may be that of decimals or of "
        f"thousands: pass {option('decimal', ',')} or {option('decimal', '.')}"
    )


def numbers(frame: pl.DataFrame, names: Sequence[str], marks: Mapping[str, str]) -> np.ndarray:
    """Columns as float64, NaN where a cell is missing; a cell that is no number, or infinite, is refused by its row."""
    import polars as pl

    result = np.empty((frame.height, len(names)))
    for i, name in enumerate(names):
        column = frame[name]
        if name in marks and column.dtype == pl.String:
            column = _plain(column, marks[name])
        try:
            values = column.cast(pl.Float64, strict=False)
        except pl.exceptions.PolarsError:
            raise ValueError(f"column {name!r} must hold numbers, as in training; it holds {column.dtype}") from None
        bad = np.flatnonzero((values.is_null() & column.is_not_null()).to_numpy())
        if len(bad):
            raise ValueError(
                f"column {name!r} must hold numbers, as in training; it holds {frame[name][int(bad[0])]!r} in "
                f"{name_rows(bad)}"
            )
        result[:, i] = values.fill_null(float("nan")).to_numpy()
        infinite = np.flatnonzero(np.isinf(result[:, i]))
        if len(infinite):
            raise ValueError(
                f"column {name!r} holds an infinite value in {name_rows(infinite)}: correct the cell, empty it, or "
                f"leave the column out by {option('ignore', [name])}"
            )
    return result


def stray_cells(column: pl.Series) -> np.ndarray:
    """Which cells of a text column are no numbers, or infinite ones, where most of them are numbers."""
    import polars as pl

    given = column.is_not_null().to_numpy()
    values = column.str.strip_chars().cast(pl.Float64, strict=False).fill_null(float("nan")).to_numpy()
    stray = given & ~np.isfinite(values)
    return np.flatnonzero(stray) if 2 * stray.sum() < given.sum() else np.empty(0, dtype=np.int64)


def _all_match(column: pl.Series, mark: str) -> bool:
    """Whether every cell is a number with this decimal mark, and one at least shows it or groups thousands."""
    group = "." if mark == "," else ","
    whole = rf"(\d+|[1-9]\d{{0,2}}(\{group}\d{{3}})+)"
    cells = column.drop_nulls().str.strip_chars()
    return (
        bool(len(cells))
        and cells.str.contains(rf"^[+-]?{whole}(\{mark}\d+)?([eE][+-]?\d+)?$").all()
        and cells.str.contains(r"[.,]").any()
    )


def _plain(column: pl.Series, mark: str) -> pl.Series:
    group = "." if mark == "," else ","
    return column.str.strip_chars().str.replace_all(group, "", literal=True).str.replace(mark, ".", literal=True)
