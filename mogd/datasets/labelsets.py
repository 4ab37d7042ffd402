"""Candidate sets out of the columns of a table: delimited text, JSON lists, Arrow lists, annotators, votes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mogd.candidates import Candidates, as_candidates
from mogd.compressed import repeated
from mogd.datasets.frames import need
from mogd.evidence import Evidence, Statements, read_annotators, read_votes
from mogd.labels import find_ids
from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl

DELIMITERS = ("|", ";", ",")
QUOTED_LIST = ('["', "['")  # no label begins so: where one cell does, the column holds lists
SHOWN = 60  # characters of a cell in a message
CELLS_AT_ONCE = 2**16  # of a column that are Python objects at the same time


class Sets(Sequence[list[Any]]):
    """The labels of each row: the distinct sets, and for each row the number of its own.

    A column of many rows has few distinct cells, so what is done to labels is done to the distinct sets alone. Each of
    them is the set of some row.
    """

    def __init__(self, distinct: list[list[Any]], codes: np.ndarray) -> None:
        self.distinct, self.codes = distinct, codes

    @classmethod
    def of(cls, rows: Iterable[list[Any]]) -> Sets:
        """Sets that are given row by row, which stay as many."""
        distinct = list(rows)
        return cls(distinct, np.arange(len(distinct), dtype=np.int32))

    @classmethod
    def empty(cls, n_rows: int) -> Sets:
        return cls([[]] if n_rows else [], np.zeros(n_rows, dtype=np.int32))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        """The set of one row; of several, their `Sets`."""
        codes = self.codes[rows]
        if codes.ndim == 0:
            return self.distinct[codes]
        used = np.flatnonzero(np.bincount(codes, minlength=len(self.distinct)))
        number = np.zeros(len(self.distinct), dtype=codes.dtype)
        number[used] = np.arange(len(used))
        return Sets([self.distinct[i] for i in used], number[codes])

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (list, Sets)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @property
    def counts(self) -> list[int]:
        """How many rows have each of the distinct sets."""
        return np.bincount(self.codes, minlength=len(self.distinct)).tolist()

    @property
    def labels(self) -> set[Any]:
        return {label for row in self.distinct for label in row}

    @property
    def is_empty(self) -> np.ndarray:
        """Which rows have no label."""
        return np.array([not row for row in self.distinct], dtype=bool)[self.codes]

    def changed(self, change: Callable[[list[Any]], list[Any]]) -> Sets:
        return Sets([change(row) for row in self.distinct], self.codes)

    def candidates(self, classes: Sequence[Any]) -> Candidates:
        """The sets as a matrix; an empty one is given every class."""
        rows = [set(row or classes) for row in self.distinct]
        found = as_candidates(rows, classes=classes, form="sets", unseen="keep")
        return replace(found, matrix=repeated(found.matrix, self.codes))


def column_sets(column: pl.Series, delimiter: str | None = None) -> Sets:
    """One set for each cell, in the order of its labels; an empty cell is an empty set.

    Text in brackets is a JSON list. Other text is split at `delimiter`; without one, at the first of | ; , that occurs
    in any cell of the column, so that commas in labels are safe where another delimiter is used.
    """
    import polars as pl

    cells, codes = _distinct(_plain(column, "candidates"))
    if isinstance(column.dtype, (pl.List, pl.Array)):
        return Sets([[label for label in cell or () if label is not None] for cell in cells], codes)
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return Sets([[] if cell is None else [cell] for cell in cells], codes)
    cells = [cell.strip() if cell else "" for cell in cells]
    bracketed = all(cell[:1] == "[" and cell[-1:] == "]" for cell in cells if cell)
    if delimiter is None and (bracketed or any(cell.startswith(QUOTED_LIST) for cell in cells)):
        first = np.empty(len(cells), dtype=np.int64)
        first[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal cells the first is assigned last
        named = zip(cells, first.tolist(), strict=True)
        return Sets([_json_list(cell, row, column.name) for cell, row in named], codes)
    if delimiter is None:
        delimiter = next((d for d in DELIMITERS if any(d in cell for cell in cells)), "|")
    return Sets([[Text(part.strip()) for part in cell.split(delimiter) if part.strip()] for cell in cells], codes)


def label_sets(column: pl.Series) -> Sets:
    """The one label of each cell, none where it is empty."""
    cells, codes = _distinct(_plain(column, "labels"))
    return Sets([[] if label is None else [label] for label in _stripped(column, cells)], codes)


def _distinct(column: pl.Series) -> tuple[list[Any], np.ndarray]:
    """The distinct cells, in the order of their first rows, and for each row the number of its own."""
    number: dict[Any, int] = {}
    codes = np.empty(len(column), dtype=np.int32)
    is_nested = column.dtype.is_nested()
    for first in range(0, len(column), CELLS_AT_ONCE):
        cells = column[first : first + CELLS_AT_ONCE].to_list()
        keys = (None if cell is None else tuple(cell) for cell in cells) if is_nested else cells
        codes[first : first + len(cells)] = [number.setdefault(key, len(number)) for key in keys]
    return list(number), codes


def annotator_sets(frame: pl.DataFrame, annotators: Sequence[str], abstain: Any = None) -> Sets:
    """The labels that the annotators gave to each row, as often as they were given."""
    return _by_row(read_annotators(annotator_columns(frame, annotators), annotators, abstain=abstain))


def vote_sets(votes: pl.DataFrame, ids: Sequence[Any], abstain: Any = None) -> Sets:
    """The labels that the workers gave to each row; the column task holds the row's id."""
    return _by_row(read_votes(_vote_columns(votes), ids, abstain=abstain))


def annotator_columns(frame: pl.DataFrame, annotators: Sequence[str]) -> list[list[Any]]:
    """The labels of each annotator, None where there is none."""
    for name in annotators:
        need(frame, name, "an annotator")
    return [column_labels(frame[name]) for name in annotators]


def vote_evidence(votes: pl.DataFrame, ids: Sequence[Any], classes: Sequence[Any], abstain: Any = None) -> Evidence:
    """Who said what, in long form; a vote for what is no class says nothing."""
    return _of_classes(read_votes(_vote_columns(votes), ids, abstain=() if abstain is None else abstain), classes)


def _vote_columns(votes: pl.DataFrame) -> dict[str, list[Any]]:
    columns = {name: votes[name].to_list() for name in votes.columns}
    return columns | ({"label": column_labels(votes["label"])} if "label" in columns else {})


def _by_row(statements: Statements) -> Sets:
    sets: list[list[Any]] = [[] for _ in range(statements.n_rows)]
    for row, label in zip(statements.row.tolist(), statements.label.tolist(), strict=True):
        sets[row].append(label)
    return Sets.of(sets)


def _of_classes(statements: Statements, classes: Sequence[Any]) -> Evidence:
    """Statements of the table's classes, which are compared as text: its cells may hold 7 or "7", true or True."""
    where = {_text(label): i for i, label in enumerate(classes)}
    index = np.array([where.get(_text(label), -1) for label in statements.label.tolist()], dtype=np.int64)
    known = index >= 0
    parts = {name: getattr(statements, name)[known] for name in ("label", "row", "source", "weight")}
    evidence = statements._replace(**parts).evidence(index[known])
    assert evidence is not None
    return evidence


def clean_candidates(evidence: Evidence, ids: np.ndarray, clean_ids: np.ndarray, classes: np.ndarray) -> Candidates:
    """The clean rows' own votes; one that is no row of the table, or of which nobody said anything, has every label."""
    own = evidence.take(find_ids(clean_ids, ids))
    matrix = own.totals(len(classes)) > 0
    return Candidates(matrix | ~matrix.any(axis=1, keepdims=True), classes, own)


def column_labels(column: pl.Series) -> list[Any]:
    """One label for each cell, None where it is empty."""
    return _stripped(column, _plain(column, "labels").to_list())


def _stripped(column: pl.Series, cells: list[Any]) -> list[Any]:
    """The labels of cells of this column; text without the spaces around it, None where nothing is left."""
    import polars as pl

    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return [Text(cell.strip()) if cell and cell.strip() else None for cell in cells]
    return cells


class Text(str):
    """A label that came out of text: it may yet turn out to be a whole number."""


def of_one_kind(*given: Sets | list[list[Any]]) -> list[Sets]:
    """The same labels, all strings, all whole numbers or all booleans over all the sources.

    Text that is whole numbers throughout becomes numbers; where names and numbers meet, all become names.
    """
    sources = [source if isinstance(source, Sets) else Sets.of(source) for source in given]
    labels: set[Any] = set().union(*(source.labels for source in sources))
    kinds = {type(label) for label in labels}
    if kinds <= {int} or kinds <= {bool} or kinds <= {str}:
        return sources
    if kinds <= {int, Text} and all(type(label) is int or _is_whole(label) for label in labels):
        change: dict[Any, Any] = {label: int(label) for label in labels}
    else:
        change = {label: _text(label) for label in labels}
    return [source.changed(lambda row: [change[label] for label in row]) for source in sources]


def _text(label: Any) -> str:
    return str(label).lower() if isinstance(label, (bool, np.bool_)) else str(label)


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(text)) == text


def _plain(column: pl.Series, what: str) -> pl.Series:
    """Whole floats (a column of whole numbers with empty cells) as whole numbers; fractions and dates are no labels."""
    import polars as pl

    inner = column.dtype.inner if isinstance(column.dtype, (pl.List, pl.Array)) else column.dtype
    if column.dtype.is_float():
        column = column.fill_nan(None)
        if not column.drop_nulls().eq(column.drop_nulls().round()).all():
            raise ValueError(f"column {column.name!r} holds numbers with a fraction, which are no {what}")
        return column.cast(pl.Int64)
    known = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null)
    if not (inner in known or inner.is_integer()):
        raise ValueError(f"column {column.name!r} holds {column.dtype}, which is no {what}: use names or whole numbers")
    return column


def _json_list(cell: str, row: int, name: str) -> list[Any]:
    if not cell:
        return []
    try:
        labels = json.loads(cell)
    except json.JSONDecodeError as error:
        shown = cell if len(cell) <= SHOWN else f"{cell[: SHOWN - 1]}…"
        raise ValueError(
            f"column {name!r} holds no JSON list in row {row}: {error.msg}, in {shown!r}; correct the cell, or name "
            f"what stands between the labels: {option('delimiter', ',')}"
        ) from None
    if not isinstance(labels, list) or not all(isinstance(label, (str, int)) for label in labels):
        raise ValueError(f"column {name!r} must hold lists of names or whole numbers; got {cell!r} in row {row}")
    return labels
