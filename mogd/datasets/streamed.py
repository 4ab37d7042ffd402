"""Tables that are larger than the memory: their labels are read whole, their features stay on the disk.

A frame of such a table has all its columns, so that labels, ids and clean rows are found in it as in any other; only
those that were named hold anything. Features are its columns of numbers, read by row groups (`mogd.open_rows`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mogd.arrowfiles import columns_of, is_large, open_rows, read_groups
from mogd.datasets.encoder import TableEncoder
from mogd.datasets.frames import Path_
from mogd.labels import find_ids
from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl

    from mogd.datasets.rows import LabelledRows

STREAMED_BYTES = 2**30  # of a Parquet or Arrow file, above which its features are not held in memory when it is learned


def is_streamed(path: Path_) -> bool:
    """Whether features of a table stay on the disk: of a folder of Parquet or Arrow files, or of a large one."""
    return is_large(path, STREAMED_BYTES)


def check_options(path: Path_, **given: Any) -> None:
    """Refuse options of reading that need all features at once."""
    for name, value in given.items():
        if value:
            raise ValueError(
                f"{path} is too large to be held in memory, so that its columns of numbers alone are learned from, as "
                f"they are: leave out {option(name, str(value))}"
            )


def label_frame(path: Path_, labels: Sequence[str | None], id: str) -> pl.DataFrame:
    """The table with its columns of labels, text in them as categories, and of ids; all others are empty."""
    import polars as pl

    names = list(columns_of(path))
    wanted = [name for name in names if name in labels or name == id]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        cache = pl.StringCache()  # the least polars needs it, for parts to have the same categories
    with cache:
        tables: Iterator[Any] = map(pl.from_arrow, read_groups(path, wanted or names[:1]))
        frame = pl.concat([_categories(part, labels) for part in tables], how="vertical_relaxed")
    return frame.select(pl.col(name) if name in wanted else pl.lit(None).alias(name) for name in names)


def _categories(part: pl.DataFrame, labels: Sequence[str | None]) -> pl.DataFrame:
    """Columns of labels with a number in the place of each text: of a list of three, 20 bytes a row instead of 60."""
    import polars as pl

    kinds = {pl.String: pl.Categorical, pl.List(pl.String): pl.List(pl.Categorical)}
    cast = {name: kinds[dtype] for name, dtype in part.schema.items() if name in labels and dtype in kinds}
    return part.cast(cast)  # type: ignore[arg-type]


def features(rows: LabelledRows, kept: np.ndarray) -> tuple[TableEncoder, Any, np.ndarray]:
    """The encoder of the columns of numbers, the rows that are kept, on the disk, and the clean rows in memory."""
    import polars as pl

    names = [name for name in columns_of(rows.path) if name not in rows.skip]
    if others := [name for name in names if not columns_of(rows.path)[name]]:
        raise ValueError(
            f"{rows.path} is too large to be held in memory, so that columns of numbers alone are learned from, and "
            f"{', '.join(map(repr, others[:5]))} {'is' if len(others) == 1 else 'are'} none: leave out by "
            f"{option('ignore', others)}"
        )
    first: Any = pl.from_arrow(next(read_groups(rows.path)))
    encoder = TableEncoder(rows.skip).fit(first)
    X = open_rows(rows.path, names)
    if not rows.clean_sets:
        clean_X = np.empty((0, len(names)), dtype=X.dtype)
    elif all(rows.clean_frame[name].dtype == pl.Null for name in names):  # rows of this very table
        clean_X = X[find_ids(rows.clean_ids, rows.ids)]
    else:
        clean_X = encoder.transform(rows.clean_frame)
    return encoder, X if len(kept) == len(X) else X.chosen(kept), clean_X
