"""Exports of labelling tools: Label Studio, Argilla and Prodigy, read as a table with votes and written back.

One module per tool, each with four functions: `recognises(record)`, `rows(records)`, `read(records, question)` and
`write(records, resolved, question)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from mogd.datasets.delimited import first_line
from mogd.datasets.exports import argilla, label_studio, prodigy
from mogd.datasets.exports.common import CLEAN, Record, Resolved
from mogd.datasets.frames import frame_of

if TYPE_CHECKING:
    import polars as pl

FORMATS: dict[str, ModuleType] = {"label-studio": label_studio, "argilla": argilla, "prodigy": prodigy}


class Export(NamedTuple):
    """What a tool exported: a row for each task, who said what of it, and the column of the sure labels, if any."""

    format: str
    frame: pl.DataFrame
    votes: pl.DataFrame  # task, worker, label
    clean: str | None


def read_export(found: pl.DataFrame | Sequence[Record], question: str | None = None) -> Export | None:
    """The export that was found in a file; None for a table of any other kind."""
    import polars as pl

    name = recognise(found)
    if name is None:
        return None
    with _damage_named(name):
        annotated = FORMATS[name].read(as_records(found), question)
        sure = [annotated.clean.get(row["id"]) for row in annotated.rows] if annotated.clean else []
    frame = frame_of(annotated.rows)
    if annotated.clean:
        frame = frame.with_columns(pl.Series(CLEAN, sure, strict=False))
    columns = list(zip(*annotated.votes, strict=True)) or [(), (), ()]
    votes = {
        name: pl.Series(values, strict=False) for name, values in zip(("task", "worker", "label"), columns, strict=True)
    }
    return Export(name, frame, pl.DataFrame(votes), CLEAN if annotated.clean else None)


def table_of(found: pl.DataFrame | Sequence[Record]) -> pl.DataFrame:
    """The rows alone, of an export or of any other table."""
    name = recognise(found)
    if name is not None:
        with _damage_named(name):
            return frame_of(FORMATS[name].rows(as_records(found)))
    return frame_of(found) if isinstance(found, list) else found  # type: ignore[return-value]


def write_export(
    name: str, found: pl.DataFrame | Sequence[Record], resolved: Mapping[str, Resolved], question: str | None = None
) -> list[Record]:
    """The same records with the resolved labels in them, as the tool imports them."""
    if name not in FORMATS:
        raise ValueError(f"format must be one of {', '.join(FORMATS)}; got {name!r}")
    if recognise(found) != name:
        raise ValueError(f"the file is no export of {name}: it is {recognise(found) or 'a table of another kind'}")
    with _damage_named(name):
        return FORMATS[name].write(as_records(found), resolved, question)


@contextmanager
def _damage_named(name: str) -> Iterator[None]:
    """A record that lacks what the format demands, or holds something else there, is one sentence."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"a record is not as {name} writes it: {type(error).__name__} {first_line(error)}") from None


def recognise(found: pl.DataFrame | Sequence[Record]) -> str | None:
    """The name of the format, by the keys of the first record."""
    first = found[0] if isinstance(found, list) else dict.fromkeys(found.columns)  # type: ignore[union-attr]
    return next((name for name, module in FORMATS.items() if module.recognises(first)), None)


def as_records(found: pl.DataFrame | Sequence[Record]) -> list[dict[str, Any]]:
    return list(found) if isinstance(found, list) else found.to_dicts()  # type: ignore[union-attr]
