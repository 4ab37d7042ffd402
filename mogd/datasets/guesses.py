"""Which columns look like labels, for the message to a user who has named none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl

MOST_LABELS = 100
MOST_NEW = 0.75  # of the parts of a column of sets: labels come again, the words of free text hardly do


def guess_labels(frame: pl.DataFrame) -> str | None:
    """The option that names the labels, where the columns show it: sets in one, or the same few values in several."""
    import polars as pl

    texts = [name for name, dtype in frame.schema.items() if dtype == pl.String]
    lists = [name for name, dtype in frame.schema.items() if isinstance(dtype, (pl.List, pl.Array))]
    sets = [name for name in texts if _holds_sets(frame[name])]
    if lists or sets:
        return option("candidates", (lists + sets)[0])
    values = {name: set(frame[name].drop_nulls().unique().to_list()) for name in texts}
    few = {name: v for name, v in values.items() if 1 < len(v) <= min(MOST_LABELS, max(2, frame.height // 2))}
    groups = [[other for other, v in few.items() if len(v & mine) * 2 > len(v | mine)] for mine in few.values()]
    best = max(groups, key=len, default=[])
    return option("annotators", best) if len(best) > 1 else None


def _holds_sets(column: pl.Series) -> bool:
    if not column.str.contains(r"^\s*\[.*\]\s*$|\w\s*[|]\s*\w").any():
        return False
    parts = column.drop_nulls().str.strip_chars("[] ").str.split("|" if column.str.contains(r"[|]").any() else ",")
    parts = parts.explode().str.strip_chars("\"' ")
    return parts.n_unique() <= MOST_NEW * len(parts)
