"""Candidate sets out of the columns of a table: delimited text, JSON lists, Arrow lists, annotators, votes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from mogd.candidates import Candidates
from mogd.datasets.frames import need
from mogd.evidence import Evidence, Statements, read_annotators, read_votes

if TYPE_CHECKING:
    import polars as pl

DELIMITERS = ("|", ";", ",")
Sets = list[list[Any]]


def column_sets(column: pl.Series, delimiter: str | None = None) -> Sets:
    """One set for each cell, in the order of its labels; an empty cell is an empty set.

    Text in brackets is a JSON list. Other text is split at `delimiter`; without one, at the first of | ; , that occurs
    in any cell of the column, so that commas in labels are safe where another delimiter is used.
    """
    import polars as pl

    cells = _plain(column, "candidates").to_list()
    if isinstance(column.dtype, (pl.List, pl.Array)):
        return [[label for label in cell or [] if label is not None] for cell in cells]
    if column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        return [[] if cell is None else [cell] for cell in cells]
    cells = [cell.strip() if cell else "" for cell in cells]
    if delimiter is None and all(cell[:1] == "[" and cell[-1:] == "]" for cell in cells if cell):
        return [_json_list(cell, row, column.name) for row, cell in enumerate(cells)]
    if delimiter is None:
        delimiter = next((d for d in DELIMITERS if any(d in cell for cell in cells)), "|")
    sets = {cell: [Text(part.strip()) for part in cell.split(delimiter) if part.strip()] for cell in set(cells)}
    return [sets[cell] for cell in cells]


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
    sets: Sets = [[] for _ in range(statements.n_rows)]
    for row, label in zip(statements.row.tolist(), statements.label.tolist(), strict=True):
        sets[row].append(label)
    return sets


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
    where = {str(name): row for row, name in enumerate(ids.tolist())}
    own = evidence.take(np.array([where.get(str(name), -1) for name in clean_ids.tolist()], dtype=np.int64))
    matrix = own.totals(len(classes)) > 0
    return Candidates(matrix | ~matrix.any(axis=1, keepdims=True), classes, own)


def column_labels(column: pl.Series) -> list[Any]:
    """One label for each cell, None where it is empty."""
    import polars as pl

    cells = _plain(column, "labels").to_list()
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return [Text(cell.strip()) if cell and cell.strip() else None for cell in cells]
    return cells


class Text(str):
    """A label that came out of text: it may yet turn out to be a whole number."""


def of_one_kind(*sources: Sets) -> list[Sets]:
    """The same labels, all strings, all whole numbers or all booleans over all the sources.

    Text that is whole numbers throughout becomes numbers; where names and numbers meet, all become names.
    """
    labels = set(chain.from_iterable(chain.from_iterable(sources)))
    kinds = {type(label) for label in labels}
    if kinds <= {int} or kinds <= {bool} or kinds <= {str}:
        return [list(source) for source in sources]
    if kinds <= {int, Text} and all(type(label) is int or _is_whole(label) for label in labels):
        change: dict[Any, Any] = {label: int(label) for label in labels}
    else:
        change = {label: _text(label) for label in labels}
    return [[[change[label] for label in row] for row in source] for source in sources]


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
        raise ValueError(f"column {name!r} holds no JSON list in row {row}: {error.msg}, in {cell!r}") from None
    if not all(isinstance(label, (str, int)) for label in labels):
        raise ValueError(f"column {name!r} must hold lists of names or whole numbers; got {cell!r} in row {row}")
    return labels
