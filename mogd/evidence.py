"""Evidence beside a candidate set: which source said which label of which row, with which weight.

The readers below are the only ones for votes, annotators and scores; arrays, frames and tables on disk go through them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from mogd.compressed import Matrix, from_places
from mogd.labels import is_frame, is_missing, name_rows, narrow, plain

WORKER_NAMES = ("worker", "annotator", "performer")  # Crowd-Kit, Label Studio and Toloka each have their own
PARTS = ("label", "source", "weight")  # of a statement, beside its row
NOTHING_SAID = {"abstain", "n/a", "na", "nan", "null", "-", "?"}  # text that is rarely a class, in lower case


@dataclass(frozen=True, eq=False)
class Evidence:
    """Statements in the order of their rows; indexing selects rows and keeps the sources.

    A source that says nothing of a row (an abstention, a missing cell) has no statement there.
    """

    row: np.ndarray  # (m,) int, ascending
    label: np.ndarray  # (m,) class indices
    source: np.ndarray  # (m,) positions in `sources`
    weight: np.ndarray  # (m,) float > 0: of a vote, or the score itself
    sources: np.ndarray  # names: annotators, or one for the scores
    n_rows: int
    kind: str = "votes"  # or "scores"

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: Any) -> Evidence:
        chosen = np.atleast_1d(np.arange(self.n_rows)[rows])
        return self.take(chosen)

    def take(self, rows: np.ndarray) -> Evidence:
        """The statements about these rows, in their order; a row of −1 has none."""
        rows = np.asarray(rows, dtype=np.int64)
        first = self.starts[rows]
        count = np.where(rows < 0, 0, self.starts[rows + 1] - first)
        before = np.cumsum(count) - count
        entry = np.repeat(first - before, count) + np.arange(count.sum())
        row = np.repeat(np.arange(len(rows)), count)
        parts = {name: getattr(self, name)[entry] for name in PARTS}
        return replace(self, row=row, n_rows=len(rows), **parts)

    def totals(self, n_classes: int) -> np.ndarray:
        """The weight behind each label of each row, `(n_rows, n_classes)`."""
        place = self.row * n_classes + self.label
        return np.bincount(place, self.weight, self.n_rows * n_classes).reshape(self.n_rows, n_classes)

    def renamed(self, sources: np.ndarray) -> Evidence:
        """The same statements over a longer list of sources, by their names."""
        where = {name: i for i, name in enumerate(sources.tolist())}
        index = np.array([where[name] for name in self.sources.tolist()], dtype=np.int64)
        return replace(self, source=index[self.source], sources=sources)

    def followed_by(self, other: Evidence) -> Evidence:
        """The statements of both, the other's rows behind these; both must have the same sources."""
        parts: dict[str, Any] = {n: np.concatenate([getattr(self, n), getattr(other, n)]) for n in PARTS}
        row = np.concatenate([self.row, other.row + self.n_rows])
        return replace(self, row=row, n_rows=self.n_rows + other.n_rows, **parts)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where the statements of each row begin, and the end of the last."""
        return np.searchsorted(self.row, np.arange(self.n_rows + 1))


def with_same_sources(first: Evidence | None, second: Evidence | None) -> tuple[Evidence | None, Evidence | None]:
    """Both over one list of sources: those of the first, then the ones that only the second has."""
    if first is None or second is None or np.array_equal(first.sources, second.sources):
        return first, second
    if first.kind != second.kind:
        raise ValueError(f"y has {first.kind} but candidates_val has {second.kind}: give both in the same form")
    names = np.array(list(dict.fromkeys([*first.sources.tolist(), *second.sources.tolist()])))
    return first.renamed(names), second.renamed(names)


class Statements(NamedTuple):
    """What was read, before the classes are known; a plain set has no source, weight or sources."""

    label: np.ndarray  # (m,)
    row: np.ndarray  # (m,) ascending
    n_rows: int
    source: np.ndarray | None = None
    weight: np.ndarray | None = None
    sources: np.ndarray | None = None
    kind: str = "votes"

    def evidence(self, index: np.ndarray) -> Evidence | None:
        """The evidence, given the class index of each statement; None for a plain set."""
        if self.source is None or self.weight is None or self.sources is None:
            return None
        return Evidence(self.row, np.asarray(index), self.source, self.weight, self.sources, self.n_rows, self.kind)


def read_annotators(
    columns: Iterable[Any], names: Sequence[Any], *, abstain: Any = None, classes: Collection[Any] = ()
) -> Statements:
    """One column of labels for each annotator; a missing or blank cell, or one of `abstain`, says nothing."""
    values = np.stack([_labels(column) for column in columns], axis=1)
    row, source = np.nonzero(_said(values, abstain, classes, names))
    label = values[row, source]
    return Statements(label, row, len(values), source, np.ones(len(row)), np.asarray(names))


def read_votes(
    votes: Any, rows: Sequence[Any] | None = None, *, abstain: Any = None, classes: Collection[Any] = ()
) -> Statements:
    """A frame or mapping with the columns task, worker (or annotator, performer), label and, where given, weight.

    `rows` names the task of each row; tasks and rows are compared as text, so that 7 and "7" are the same task. A vote
    without a label, or with a weight of 0, says nothing.
    """
    worker = vote_columns(votes)["worker"]
    task, label, source_name = (_labels(votes[name]) for name in ("task", "label", worker))
    weight = _weights(votes["weight"]) if "weight" in _columns(votes) else np.ones(len(label))
    keep = _said(label[:, None], abstain, classes, ("label",))[:, 0] & (weight > 0)
    for name, values in (("task", task), (worker, source_name)):
        absent = np.flatnonzero(keep & is_missing(values))
        if len(absent):
            raise ValueError(f"the votes have no {name} in {name_rows(absent)}: complete or drop these votes")
    order = _task_order(task[~is_missing(task)]) if rows is None else list(rows)
    where = {str(name): i for i, name in enumerate(order)}
    row = np.array([where.get(str(name), -1) for name in task.tolist()], dtype=np.int64)
    strange = dict.fromkeys(task[(row < 0) & keep].tolist())
    if strange:
        raise ValueError(
            f"the votes name task {next(iter(strange))!r}, which is in no row ({len(strange)} such tasks): drop these "
            "votes, or name the rows by rows=[…] (those of a table by its id column)"
        )
    kept = np.flatnonzero(keep)
    kept = kept[np.argsort(row[kept], kind="stable")]
    names, source = np.unique(narrow(source_name[kept]), return_inverse=True)
    return Statements(label[kept], row[kept], len(order), source, weight[kept], names)


def vote_columns(votes: Any) -> dict[str, str]:
    """The column of the votes that holds the task, the worker and the label; one that is absent is refused by name."""
    have = _columns(votes)
    worker = next((name for name in WORKER_NAMES if name in have), "worker")
    found = {"task": "task", "worker": worker, "label": "label"}
    absent = [f"{name} (or {' or '.join(WORKER_NAMES[1:])})" if name == "worker" else name for name in found]
    absent = [said for said, name in zip(absent, found.values(), strict=True) if name not in have]
    if absent:
        raise ValueError(
            f"votes need the columns task, worker, label; missing: {', '.join(absent)}; there are {', '.join(have)}"
        )
    return found


def read_score_lists(y: Iterable[Any]) -> Statements:
    """For each row a dict from label to score or a list of (label, score) pairs; a score of 0 is no candidate."""
    rows = [list(item.items() if isinstance(item, Mapping) else item) for item in y]
    bad = [i for i, row in enumerate(rows) if not all(is_score_pair(pair) for pair in row)]
    if bad:
        raise ValueError(f"{name_rows(bad)} must hold (label, score) pairs or a dict from label to score")
    label = np.empty(sum(map(len, rows)), dtype=object)
    label[:] = [pair[0] for row in rows for pair in row]
    row = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    weight = np.array([pair[1] for row in rows for pair in row], dtype=np.float64)
    keep = positive_scores(weight, row)
    return Statements(label[keep], row[keep], len(rows), *_one_source(weight[keep]), kind="scores")


def read_score_matrix(values: Any) -> tuple[Matrix, Evidence]:
    """Scores `(n, n_classes)`, dense or sparse: the 0/1 matrix of the positive ones, and the evidence."""
    if sp.issparse(values):
        sparse = values.tocsr().tocoo()  # in the order of the rows, repeated entries summed
        row, label, weight = sparse.row, sparse.col, np.asarray(sparse.data, dtype=np.float64)
        shape = values.shape
    else:
        try:
            dense = np.asarray(plain(values), dtype=np.float64)
        except TypeError as error:
            raise ValueError(f"scores must be numbers: {error}") from None
        if dense.ndim != 2:
            raise ValueError(f"scores must have shape (n, n_classes); got {dense.shape}")
        row, label = np.nonzero(dense != 0)
        weight, shape = dense[row, label], dense.shape
    keep = positive_scores(weight, row)
    row, label, weight = row[keep].astype(np.int64), label[keep].astype(np.int64), weight[keep]
    matrix = from_places(row, label, shape)
    found = Statements(label, row, shape[0], *_one_source(weight), kind="scores").evidence(label)
    assert found is not None
    return matrix, found


def is_score_pair(pair: Any) -> bool:
    """Whether this is a label with a number beside it."""
    is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
    return is_pair and isinstance(pair[1], (int, float, np.number)) and not isinstance(pair[1], bool)


def positive_scores(weight: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Which scores name a candidate; negative and infinite ones are refused, a missing one names none."""
    bad = (weight < 0) | np.isinf(weight)
    if bad.any():
        raise ValueError(
            f"scores must be finite numbers of 0 or more; {name_rows(np.unique(row[bad]))} "
            f"hold such as {weight[bad][0]:g}: for logarithms of probabilities pass np.exp(y)"
        )
    return weight > 0


def _one_source(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros(len(weight), dtype=np.int64), weight, np.array(["score"])


def _columns(votes: Any) -> list[str]:
    return [str(name) for name in (votes.columns if is_frame(votes) else votes)]


def _labels(column: Any) -> np.ndarray:
    """Cells as objects: text without blanks at its ends, blank text as None, whole floats as whole numbers."""
    values = plain(column)
    values = np.array(values, dtype=object) if isinstance(values, (list, tuple)) else np.asarray(values)
    if values.ndim != 1:
        raise ValueError(f"a column must have shape (n,); got {values.shape}")
    missing = is_missing(values)
    cells = np.empty(len(values), dtype=object)
    cells[~missing] = narrow(values[~missing]).tolist() if values.dtype != object else values[~missing]
    if values.dtype.kind in "OU":
        cells[:] = [_bare(cell) for cell in cells]
    return cells


def _bare(cell: Any) -> Any:
    if isinstance(cell, str):
        return cell if cell and cell == cell.strip() else cell.strip() or None  # untouched, it keeps its own type
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _said(values: np.ndarray, abstain: Any, classes: Collection[Any], names: Sequence[Any]) -> np.ndarray:
    """Which cells `(n, columns)` hold a statement; among numbers, what looks like an abstention must be named."""
    said = ~is_missing(values)
    if any(isinstance(label, float) for label in set(values[said].tolist())):
        raise ValueError(
            f"{', '.join(map(str, names))} hold numbers with a fraction, which are no labels: for scores use "
            "mogd.as_candidates(y, form='scores')"
        )
    if abstain is not None:
        several = isinstance(abstain, Collection) and not isinstance(abstain, (str, bytes))
        silent = {str(_bare(value)) for value in (abstain if several else [abstain])}
        return said & ~_among(values, {cell for cell in set(values[said].tolist()) if str(cell) in silent})
    labels = set(values[said].tolist()) - set(classes)
    suspect = silent_looking(labels) if any(_is_number(label) for label in labels) else set()
    if suspect:
        rows, columns = np.nonzero(_among(values, suspect) & said)
        first = values[rows[0], columns[0]]
        shown = first if isinstance(first, (int, np.integer)) else repr(str(first))
        where = dict.fromkeys(str(names[column]) for column in columns.tolist())
        raise ValueError(
            f"{shown} stands in {len(rows)} cell{'s' * (len(rows) > 1)} of {', '.join(where)} "
            f"({name_rows(np.unique(rows))}): pass "
            f"abstain={shown} (--abstain {first}) if it means that nothing was said, or abstain=() if it is a label"
        )
    return said


def _among(values: np.ndarray, labels: set[Any]) -> np.ndarray:
    return np.array([cell in labels for cell in values.ravel().tolist()], dtype=bool).reshape(values.shape)


def silent_looking(labels: Collection[Any]) -> set[Any]:
    """The labels that are negative numbers, or text that means that nothing was said."""
    return {
        label
        for label in labels
        if (str(label)[:1] == "-" and _is_number(label)) or (isinstance(label, str) and label.lower() in NOTHING_SAID)
    }


def _is_number(label: Any) -> bool:
    if isinstance(label, str):
        return label.removeprefix("-").isdecimal()
    return isinstance(label, (int, np.integer)) and not isinstance(label, bool)


def _weights(column: Any) -> np.ndarray:
    weight = np.asarray(plain(column), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(weight) | (weight < 0))
    if len(bad):
        raise ValueError(f"the weight of a vote must be a number of 0 or more; {name_rows(bad)} holds {weight[bad[0]]}")
    return weight


def _task_order(task: np.ndarray) -> list[Any]:
    order = sorted(set(task.tolist()), key=str)
    if set(order) != set(range(len(order))):
        raise ValueError("the tasks of the votes are not 0, 1, … n-1: use mogd.as_candidates(votes, rows=[…])")
    return list(range(len(order)))
