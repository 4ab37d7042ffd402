"""The forms in which candidate sets come: which one `y` has, and how it is read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

from mogd.compressed import Matrix, compact, from_places
from mogd.evidence import (
    Evidence,
    Statements,
    is_score_pair,
    read_annotators,
    read_score_lists,
    read_votes,
    silent_looking,
)
from mogd.labels import check_classes, is_frame, is_missing, is_set, name_rows, narrow, plain, positions, short


def recognise(y: Any, abstain: Any = None) -> str:
    if sp.issparse(y):
        return "matrix"
    if is_frame(y):
        if {"task", "label"} <= set(y.columns):
            return "votes"
        if len(y.columns) == 1:
            return "labels"
        return "matrix" if abstain is None and _zero_one(np.asarray(y)).all() else "annotators"
    y = plain(y)
    if isinstance(y, np.ndarray) and y.ndim == 3:
        return "matrix"
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] != 1:
        text = y.dtype.kind in "USO" and not _zero_one(y).all()
        return "annotators" if text or abstain is not None else "matrix"
    if isinstance(y, np.ndarray) and y.ndim > 3:
        raise ValueError(f"y must hold labels, candidate sets or a 0/1 matrix; got an array of shape {np.shape(y)}")
    if not isinstance(y, np.ndarray) or y.dtype == object:
        if is_score_lists(y):
            return "scores"
        first = next((item for item in y if item is not None), None) if len(y) else None
        if is_set(first):
            return "labels" if isinstance(y, np.ndarray) and y.ndim == 2 else "sets"
    return "labels"


def is_score_lists(y: Any) -> bool:
    """Whether the rows are dicts, or lists of (label, score) pairs."""
    y = plain(y)
    if sp.issparse(y) or is_frame(y) or (isinstance(y, np.ndarray) and (y.ndim > 1 or y.dtype != object)):
        return False
    rows = [item for item in y if isinstance(item, (list, tuple, Mapping)) and len(item)]
    if not rows:
        return False
    return isinstance(rows[0], Mapping) or all(is_score_pair(pair) for pair in rows[0])


def refuse_joined(labels: np.ndarray) -> None:
    """Refuse text such as "a|b" where "a" or "b" is a label too: it is a set that nobody has split."""
    if labels.dtype.kind not in "UO":
        return
    whole = {label for label in labels.tolist() if isinstance(label, str)}
    joined = {}
    for label in whole:
        parts = [part.strip() for part in label.split("|") if part.strip()]
        if len(parts) > 1 and not whole.isdisjoint(parts):
            joined[label] = next(part for part in parts if part in whole)
    if joined:
        rows = [i for i, label in enumerate(labels.tolist()) if isinstance(label, str) and label in joined]
        first = labels[rows[0]]
        raise ValueError(
            f"{name_rows(rows)} {'holds' if len(rows) == 1 else 'hold'} {str(first)!r} as one label, and "
            f"{joined[first]!r} is a label too: for candidate sets pass lists, [text.split('|') for text in y], or "
            "read the file by mogd.read_table; if they are whole labels, pass mogd.as_candidates(y, form='labels')"
        )


def _zero_one(values: np.ndarray) -> np.ndarray:
    """Which rows hold nothing but 0 and 1."""
    if values.dtype.kind == "b":
        return np.ones(len(values), dtype=bool)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # comparing strings with numbers
        ok = np.asarray((values == 0) | (values == 1))
    return np.asarray(ok.all(axis=1)) if ok.ndim == 2 else np.zeros(len(values), dtype=bool)


def _zero_one_stored(matrix: Any) -> np.ndarray:
    """Which rows of a sparse matrix hold nothing but 0 and 1, where places that are stored twice count together."""
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    ok = np.ones(matrix.shape[0], dtype=bool)
    wrong = np.flatnonzero((matrix.data != 0) & (matrix.data != 1))
    ok[np.searchsorted(matrix.indptr, wrong, side="right") - 1] = False
    return ok


def without_level(y: Any) -> Any:
    """Prediction sets of one confidence level, `(n, K, 1)`, without their last axis."""
    values = plain(y)
    if not isinstance(values, np.ndarray) or values.ndim != 3:
        return y
    if values.shape[2] != 1:
        raise ValueError(
            f"y has prediction sets of {values.shape[2]} confidence levels, shape {values.shape}: pass one, y[:, :, 0]"
        )
    return values[:, :, 0]


def from_matrix(y: Any, names: np.ndarray | None) -> tuple[Matrix, np.ndarray]:
    matrix = y.tocsr() if sp.issparse(y) else np.asarray(plain(y))
    if matrix.ndim != 2:
        raise ValueError(f"a candidate matrix must have shape (n, n_classes); got {matrix.shape}")
    ok = _zero_one_stored(matrix) if sp.issparse(matrix) else _zero_one(matrix)
    if not ok.all():
        raise ValueError(
            f"a candidate matrix holds only 0 and 1; {name_rows(np.flatnonzero(~ok))} "
            "hold something else: for one column per annotator use mogd.as_candidates(y, form='annotators'), for "
            "scores form='scores'"
        )
    names = column_names(y, matrix, names)
    return compact(matrix if sp.issparse(matrix) else matrix.astype(bool)), names


def column_names(y: Any, matrix: Matrix, names: np.ndarray | None) -> np.ndarray:
    """The classes of a matrix: as given, as its columns are named, or 0, 1, …"""
    if names is None:
        names = check_classes(list(y.columns)) if is_frame(y) and not sp.issparse(y) else np.arange(matrix.shape[1])
    if len(names) != matrix.shape[1]:
        raise ValueError(f"the candidate matrix has {matrix.shape[1]} columns but classes names {len(names)}")
    return names


def read(y: Any, form: str, rows: Sequence[Any] | None, abstain: Any, names: Sequence[Any]) -> Statements:
    """Every other form as statements: a label, the row that holds it and, where known, who said so."""
    try:
        return _read(y, form, rows, abstain, names)
    except TypeError as error:  # nested lists, dicts and the like where a label or a row is expected
        raise ValueError(f"y cannot be read as {form}, whose labels are strings or numbers: {error}") from None


def _read(y: Any, form: str, rows: Sequence[Any] | None, abstain: Any, names: Sequence[Any]) -> Statements:
    if form == "labels":
        return _read_labels(plain(y))
    if form == "sets":
        return _read_sets(plain(y))
    if form == "votes":
        return _warn_silent(read_votes(y, rows, abstain=abstain, classes=names), abstain, names)
    if form == "scores":
        return read_score_lists(plain(y))
    values = np.asarray(plain(y))
    if values.ndim != 2:
        raise ValueError(f"annotators must be one column each, of shape (n, n_annotators); got {values.shape}")
    sources = [str(name) for name in y.columns] if is_frame(y) else range(values.shape[1])
    columns = [y[name] for name in y.columns] if is_frame(y) else list(values.T)
    return _warn_silent(read_annotators(columns, sources, abstain=abstain, classes=names), abstain, names)


def _warn_silent(statements: Statements, abstain: Any, names: Sequence[Any]) -> Statements:
    """Text labels such as "n/a" may be meant, so that they are only named."""
    found = silent_looking(set(statements.label.tolist()) - set(names)) if abstain is None else set()
    if found:
        shown = sorted(map(str, found))
        warnings.warn(
            f"{', '.join(map(repr, shown))} counts as a label: pass abstain={shown} if it means that nothing was said",
            stacklevel=5,
        )
    return statements


def _read_labels(y: Any) -> Statements:
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; its one column is taken.",
            DataConversionWarning,
            stacklevel=6,
        )
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"labels must have shape (n,); got {labels.shape}")
    absent = np.flatnonzero(is_missing(labels))
    if len(absent):
        raise ValueError(f"y is missing (None or NaN) in {name_rows(absent)}: give those rows a set of all classes")
    if len(labels):
        check_classification_targets(labels)
    return Statements(labels, np.arange(len(labels)), len(labels))


def _read_sets(y: Any) -> Statements:
    y = list(y)
    scalars = [i for i, item in enumerate(y) if not is_set(item)]
    if scalars:
        raise ValueError(f"{name_rows(scalars)} hold no list or set of labels but {y[scalars[0]]!r}")
    sizes = np.fromiter((len(item) for item in y), dtype=np.int64, count=len(y))
    flat = list(chain.from_iterable(item.tolist() if isinstance(item, np.ndarray) else item for item in y))
    repeated = [i for i, item in enumerate(y) if not isinstance(item, (set, frozenset)) and len(set(item)) < len(item)]
    if repeated and set(flat) <= {0, 1}:
        raise ValueError(f"{name_rows(repeated)} repeat a label: for a 0/1 matrix pass np.asarray(y)")
    labels = np.array(flat, dtype=object)
    owner = np.repeat(np.arange(len(y)), sizes)
    absent = is_missing(labels)
    if absent.any():
        raise ValueError(f"a label is missing (None or NaN) in {name_rows(np.unique(owner[absent]))}: leave it out")
    return Statements(labels, owner, len(y))


def from_statements(statements: Statements, names: np.ndarray | None) -> tuple[Matrix, np.ndarray, Evidence | None]:
    labels, row = statements.label, statements.row
    if names is None:
        try:
            names, index = np.unique(narrow(labels), return_inverse=True)
        except TypeError:
            kinds = ", ".join(sorted({type(label).__name__ for label in labels.tolist()}))
            raise ValueError(f"labels must be all strings or all numbers; got {kinds} together") from None
    else:
        index, known = positions(labels, names)
        if not known.all():
            bad = np.unique(row[~known])
            raise ValueError(
                f"unknown label {labels[~known].tolist()[0]!r} in {name_rows(bad)}; the classes are {short(names)}: "
                "correct the label or add it to classes"
            )
    matrix = from_places(row, index, (statements.n_rows, len(names)))
    return matrix, names, statements.evidence(index)
