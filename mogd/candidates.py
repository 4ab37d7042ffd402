"""What a candidate set is: every accepted form becomes one checked `Candidates`.

Accepted forms of `y` (see `as_candidates`): labels, a 0/1 matrix, a list of sets of labels, votes in long form (columns
task, worker, label), annotators in wide form (one column each), and scores. The last three keep their evidence.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from mogd.compressed import Matrix, dense_or_refuse, filled, seen_classes, sizes, take_rows
from mogd.evidence import Evidence, read_score_matrix
from mogd.forms import (
    column_names,
    from_matrix,
    from_statements,
    is_score_lists,
    read,
    recognise,
    refuse_joined,
    without_level,
)
from mogd.labels import as_labels, check_classes, name_rows, plain, short
from mogd.labels import plain as as_plain

FORMS = ("auto", "labels", "matrix", "sets", "votes", "annotators", "scores")


class UnseenClassWarning(UserWarning):
    """A class stands in no candidate set: it is kept, but nothing is learned of it."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """A checked 0/1 matrix, a row per example and a column per class; indexing selects rows and keeps the classes.

    The matrix is dense up to `mogd.compressed.DENSE_CELLS` cells, and SciPy's `csr_array` above.
    """

    matrix: Matrix  # (n_rows, n_classes) bool
    classes: np.ndarray  # (n_classes,)
    evidence: Evidence | None = None  # who said it, of votes, annotators and scores

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def sizes(self) -> np.ndarray:
        return sizes(self.matrix)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def __getitem__(self, rows: Any) -> Candidates:
        if isinstance(rows, tuple):  # scikit-learn's splitters index with (rows, ...)
            rows = rows[0]
        evidence = None if self.evidence is None else self.evidence[rows]
        return Candidates(take_rows(self.matrix, rows), self.classes, evidence)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(dense_or_refuse(self.matrix, "np.asarray(candidates)"), dtype=dtype or np.int8)

    def label_sets(self) -> list[list[Any]]:
        """The same sets as lists of class names."""
        if isinstance(self.matrix, np.ndarray):
            return [self.classes[row].tolist() for row in self.matrix]
        names, ends = self.classes[self.matrix.indices].tolist(), self.matrix.indptr.tolist()
        return [names[first:end] for first, end in pairwise(ends)]

    def describe(self) -> dict[str, float]:
        """Size, average number of candidates, and the shares of rows with one candidate and with all."""
        sizes = self.sizes
        return {
            "n_rows": len(self),
            "n_classes": self.shape[1],
            "average_candidates": float(sizes.mean()),
            "single_share": float((sizes == 1).mean()),
            "full_share": float((sizes == self.shape[1]).mean()),
        }


def as_candidates(
    y: Any,
    *,
    classes: Sequence[Any] | np.ndarray | None = None,
    form: str = "auto",
    rows: Sequence[Any] | None = None,
    n_rows: int | None = None,
    unseen: str = "warn",
    abstain: Any = None,
    empty: str = "error",
) -> Candidates:
    """Check candidate sets of any accepted form and return them as one `Candidates`.

    Parameters
    ----------
    y : labels `(n,)`; a 0/1 matrix `(n, K)`, dense, sparse (of a large one no dense copy is made) or a frame whose
        columns are the classes (also MAPIE's prediction sets `(n, K, 1)`); a list or Series of lists or sets of labels;
        a frame of votes with the columns task, worker (or annotator, performer), label and perhaps weight; one column
        per annotator; or scores of 0 or more: a matrix `(n, K)`, or for each row a dict {label: score} or a list of
        (label, score) pairs.
    classes : the class names, in the order of the columns; found in `y` when not given.
    form : one of "auto", "labels", "matrix", "sets", "votes", "annotators", "scores". "auto" recognises all but a
        matrix of scores, and annotators whose labels are numbers in an array, or nothing but 0 and 1 in a frame: these
        look like a matrix.
    rows : for votes in long form, the task of each row in order; not needed when the tasks are 0, 1, … n-1.
    n_rows : the number of rows that must come out.
    unseen : a class that is in no set is kept with a warning ("warn"), kept silently ("keep") or refused ("error").
    abstain : of votes and annotators, the value or values that mean that nothing was said, such as Snorkel's -1; () if
        there is none and a negative number is a label. Missing cells never say anything.
    empty : a row without any candidate is refused ("error") or given "all" classes.
    """
    for name, value, known in (
        ("form", form, FORMS),
        ("unseen", unseen, ("warn", "keep", "error")),
        ("empty", empty, ("error", "all")),
    ):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")
    if isinstance(y, Candidates):
        _check_length(y.matrix, n_rows)
        if classes is not None and not np.array_equal(np.asarray(classes), y.classes):
            raise ValueError(f"y has the classes {short(y.classes)}, but other ones were asked for: leave classes=None")
        return y
    names = None if classes is None else check_classes(classes)
    said, form = form, recognise(y, abstain) if form == "auto" else form
    if abstain is not None and form not in ("votes", "annotators"):
        raise ValueError(f"abstain is for votes and annotators, but y was read as {form}: pass form='annotators'")
    if said == "auto" and form == "labels":
        refuse_joined(np.asarray(plain(y)).ravel())
    evidence = None
    if form == "matrix":
        matrix, names = from_matrix(without_level(y), names)
    elif form == "scores" and not is_score_lists(y):
        matrix, evidence = read_score_matrix(y)
        names = column_names(y, matrix, names)
    else:
        statements = read(y, form, rows, abstain, () if names is None else names.tolist())
        matrix, names, evidence = from_statements(statements, names)
    _check_length(matrix, n_rows)
    bare = np.flatnonzero(sizes(matrix) == 0)
    if len(bare) and empty == "all":
        matrix = filled(matrix, bare)
    elif len(bare):
        raise ValueError(
            f"{name_rows(bare)} {'has' if len(bare) == 1 else 'have'} an empty candidate set: drop the row, or give it "
            f"every class if nothing is known of it (mogd.as_candidates(y, empty='all')){_annotators_hint(said, form)}"
        )
    missing = np.flatnonzero(~seen_classes(matrix))
    if len(missing) and unseen != "keep":
        _report_unseen(names[missing].tolist(), refuse=unseen == "error")
    return Candidates(matrix, names, evidence)


def holds_sets(y: Any) -> bool:
    """Whether `y` holds candidate sets, in any form, and not one label for each row."""
    return isinstance(y, Candidates) or recognise(y) != "labels"


def _annotators_hint(said: str, form: str) -> str:
    if (said, form) != ("auto", "matrix"):
        return ""
    return "; where the columns are annotators who say 0 or 1, use mogd.as_candidates(y, form='annotators')"


def _report_unseen(names: list[Any], *, refuse: bool) -> None:
    shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    found = f"class {shown} {'never appears' if len(names) == 1 else 'never appear'} in any candidate set: "
    way = "remove the column or the name from classes, or pass unseen='keep' to keep the class without rows"
    if refuse:
        raise ValueError(found + way)
    warnings.warn(f"{found}it is kept without rows; {way} silently", UnseenClassWarning, stacklevel=3)


def _check_length(matrix: Matrix, n_rows: int | None) -> None:
    found = matrix.shape[0]
    if n_rows is not None and found != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {found} candidate sets: they must have the same length")


__all__ = [
    "FORMS",
    "Candidates",
    "UnseenClassWarning",
    "as_candidates",
    "as_labels",
    "as_plain",
    "holds_sets",
    "name_rows",
]
