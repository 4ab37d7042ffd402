"""What a candidate set is: every accepted form becomes one checked `Candidates`.

Accepted forms of `y` (see `as_candidates`): labels, a 0/1 matrix, a list of sets of labels, annotator votes in long
form (columns task, worker, label) and in wide form (one column per annotator).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

FORMS = ("auto", "labels", "matrix", "sets", "votes", "annotators")
VOTE_COLUMNS = ("task", "worker", "label")


@dataclass(frozen=True, eq=False)
class Candidates:
    """A checked 0/1 matrix, a row per example and a column per class; indexing selects rows and keeps the classes."""

    matrix: np.ndarray  # (n_rows, n_classes) bool
    classes: np.ndarray  # (n_classes,)

    @property
    def shape(self) -> tuple[int, int]:
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def sizes(self) -> np.ndarray:
        return self.matrix.sum(axis=1)

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, rows: Any) -> Candidates:
        if isinstance(rows, tuple):  # scikit-learn's splitters index with (rows, ...)
            rows = rows[0]
        return Candidates(np.atleast_2d(self.matrix[rows]), self.classes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.matrix, dtype=dtype or np.int8)

    def label_sets(self) -> list[list[Any]]:
        """The same sets as lists of class names."""
        return [self.classes[row].tolist() for row in self.matrix]

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
    unseen: str = "error",
) -> Candidates:
    """Check candidate sets of any accepted form and return them as one `Candidates`.

    Parameters
    ----------
    y : labels `(n,)`; a 0/1 matrix `(n, K)`, dense, sparse or a frame whose columns are the classes; a list or Series
        of lists or sets of labels; a frame of votes with the columns task, worker, label; or one column per annotator.
    classes : the class names, in the order of the columns; found in `y` when not given.
    form : one of "auto", "labels", "matrix", "sets", "votes", "annotators". "auto" recognises all but annotators whose
        labels are numbers in an array, or nothing but 0 and 1 in a frame: these look like a matrix.
    rows : for votes in long form, the task of each row in order; not needed when the tasks are 0, 1, … n-1.
    n_rows : the number of rows that must come out.
    unseen : "error" refuses a class that is in no set; "keep" keeps its column.
    """
    if form not in FORMS:
        raise ValueError(f"form must be one of {', '.join(FORMS)}; got {form!r}")
    if unseen not in ("error", "keep"):
        raise ValueError(f"unseen must be 'error' or 'keep'; got {unseen!r}")
    if isinstance(y, Candidates):
        _check_length(y.matrix, n_rows)
        if classes is not None and not np.array_equal(np.asarray(classes), y.classes):
            raise ValueError(
                f"y has the classes {_short(y.classes)}, but other ones were asked for: leave classes=None"
            )
        return y
    names = None if classes is None else _check_classes(classes)
    said, form = form, _recognise(y) if form == "auto" else form
    if said == "auto" and form == "labels":
        _refuse_joined(np.asarray(_plain(y)).ravel())
    if form == "matrix":
        matrix, names = _from_matrix(y, names)
    else:
        labels, owner, count = _as_pairs(y, form, rows)
        matrix, names = _from_pairs(labels, owner, count, names)
    _check_length(matrix, n_rows)
    empty = np.flatnonzero(~matrix.any(axis=1))
    if len(empty):
        columns = "; where the columns are annotators who say 0 or 1, use mogd.as_candidates(y, form='annotators')"
        raise ValueError(
            f"{name_rows(empty)} {'has' if len(empty) == 1 else 'have'} an empty candidate set: "
            "drop the row, or give it every class if nothing is known of it"
            f"{columns if (said, form) == ('auto', 'matrix') else ''}"
        )
    missing = np.flatnonzero(~matrix.any(axis=0))
    if len(missing) and unseen == "error":
        shown = ", ".join(map(repr, names[missing][:5].tolist()))
        raise ValueError(
            f"class {shown} {'never appears' if len(missing) == 1 else 'never appear'} in any candidate set: "
            "remove the column or the name from classes, or pass unseen='keep' to keep the class without rows"
        )
    return Candidates(matrix, names)


def as_labels(y: Any, classes: np.ndarray, *, name: str = "y_val") -> np.ndarray:
    """Class indices of clean labels `(n,)`; a label outside `classes` is refused by its row."""
    y = _plain(y)
    items = y if isinstance(y, (list, tuple)) or (isinstance(y, np.ndarray) and y.dtype.kind == "O") else []
    sets = [i for i, item in enumerate(items) if _is_set(item) and (isinstance(item, Set) or len(item) != 1)]
    if sets:
        raise ValueError(f"{name} must hold one label for each row; {name_rows(sets[:1])} holds {y[sets[0]]!r}")
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"{name} must hold one label for each row, of shape (n,); got shape {labels.shape}")
    index, known = _positions(labels, classes)
    if not known.all():
        bad = np.flatnonzero(~known)
        raise ValueError(
            f"{name} has label {labels.tolist()[bad[0]]!r} in {name_rows(bad)}, which is not among the classes "
            f"{_short(classes)}: correct it, or name every class by classes=[…] and unseen='keep'"
        )
    return index


def holds_sets(y: Any) -> bool:
    """Whether `y` holds candidate sets, in any form, and not one label for each row."""
    return isinstance(y, Candidates) or _recognise(y) != "labels"


def as_plain(y: Any) -> Any:
    """A pandas or polars Series, a torch tensor or another array, as what numpy understands."""
    return _plain(y)


def name_rows(index: Iterable[Any], most: int = 5) -> str:
    """`row 3`, `rows 3, 7` or `rows 1, 2, 3, 4, 5 and 12 more`: how every message names rows."""
    index = list(index)
    shown = ", ".join(str(i) for i in index[:most])
    more = f" and {len(index) - most} more" if len(index) > most else ""
    return f"row{'s' if len(index) > 1 else ''} {shown}{more}"


def _short(classes: np.ndarray, most: int = 8) -> str:
    shown = ", ".join(repr(c) for c in classes[:most].tolist())
    return f"[{shown}{', …' if len(classes) > most else ''}]"


def _plain(y: Any) -> Any:
    """A pandas or polars Series, a torch tensor or another array, as what numpy understands."""
    if hasattr(y, "detach"):
        return y.detach().cpu().numpy()
    if hasattr(y, "to_list") and not hasattr(y, "columns"):
        return y.to_list()
    if hasattr(y, "__array__") and not hasattr(y, "__len__"):
        return np.asarray(y)
    return y


def _is_frame(y: Any) -> bool:
    return hasattr(y, "columns") and hasattr(y, "shape")


def _is_set(item: Any) -> bool:
    return isinstance(item, Collection) and not isinstance(item, (str, bytes)) and getattr(item, "ndim", 1) == 1


def _recognise(y: Any) -> str:
    if sp.issparse(y):
        return "matrix"
    if _is_frame(y):
        if set(VOTE_COLUMNS) <= set(y.columns):
            return "votes"
        if len(y.columns) == 1:
            return "labels"
        return "matrix" if _zero_one(np.asarray(y)).all() else "annotators"
    y = _plain(y)
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] != 1:
        return "annotators" if y.dtype.kind in "USO" and not _zero_one(y).all() else "matrix"
    if len(np.shape(y) if isinstance(y, np.ndarray) else (1,)) > 2:
        raise ValueError(f"y must hold labels, candidate sets or a 0/1 matrix; got an array of shape {np.shape(y)}")
    if not isinstance(y, np.ndarray) or y.dtype == object:
        first = next((item for item in y if item is not None), None) if len(y) else None
        if _is_set(first):
            return "labels" if isinstance(y, np.ndarray) and y.ndim == 2 else "sets"
    return "labels"


def _refuse_joined(labels: np.ndarray) -> None:
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


def _from_matrix(y: Any, names: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    if _is_frame(y) and names is None and not sp.issparse(y):
        names = _check_classes(list(y.columns))
    dense = y.toarray() if sp.issparse(y) else np.asarray(_plain(y))
    if dense.ndim != 2:
        raise ValueError(f"a candidate matrix must have shape (n, n_classes); got {dense.shape}")
    ok = _zero_one(dense)
    if not ok.all():
        raise ValueError(
            f"a candidate matrix holds only 0 and 1; {name_rows(np.flatnonzero(~ok))} "
            "hold something else: for one column per annotator use mogd.as_candidates(y, form='annotators')"
        )
    if names is None:
        names = np.arange(dense.shape[1])
    if len(names) != dense.shape[1]:
        raise ValueError(f"the candidate matrix has {dense.shape[1]} columns but classes names {len(names)}")
    return dense.astype(bool), names


def _as_pairs(y: Any, form: str, rows: Sequence[Any] | None) -> tuple[np.ndarray, np.ndarray, int]:
    """Every other form as pairs: a label and the row that holds it."""
    if form == "labels":
        labels = np.asarray(_plain(y))
        if labels.ndim == 2 and labels.shape[1] == 1:
            warnings.warn(
                "A column-vector y was passed when a 1d array was expected; its one column is taken.",
                DataConversionWarning,
                stacklevel=4,
            )
            labels = labels[:, 0]
        if labels.ndim != 1:
            raise ValueError(f"labels must have shape (n,); got {labels.shape}")
        absent = np.flatnonzero(_is_missing(labels))
        if len(absent):
            raise ValueError(f"y is missing (None or NaN) in {name_rows(absent)}: give those rows a set of all classes")
        if len(labels):
            check_classification_targets(labels)
        return labels, np.arange(len(labels)), len(labels)
    if form == "sets":
        return _pairs_of_sets(_plain(y))
    if form == "votes":
        return _pairs_of_votes(y, rows)
    values = np.asarray(_plain(y))
    if values.ndim != 2:
        raise ValueError(f"annotators must be one column each, of shape (n, n_annotators); got {values.shape}")
    owner, column = np.nonzero(~_is_missing(values))
    return values[owner, column], owner, len(values)


def _pairs_of_sets(y: Any) -> tuple[np.ndarray, np.ndarray, int]:
    y = list(y)
    scalars = [i for i, item in enumerate(y) if not _is_set(item)]
    if scalars:
        raise ValueError(f"{name_rows(scalars)} hold no list or set of labels but {y[scalars[0]]!r}")
    sizes = np.fromiter((len(item) for item in y), dtype=np.int64, count=len(y))
    flat = list(chain.from_iterable(item.tolist() if isinstance(item, np.ndarray) else item for item in y))
    repeated = [i for i, item in enumerate(y) if not isinstance(item, (set, frozenset)) and len(set(item)) < len(item)]
    if repeated and set(flat) <= {0, 1}:
        raise ValueError(f"{name_rows(repeated)} repeat a label: for a 0/1 matrix pass np.asarray(y)")
    labels = np.array(flat, dtype=object)
    owner = np.repeat(np.arange(len(y)), sizes)
    absent = _is_missing(labels)
    if absent.any():
        raise ValueError(f"a label is missing (None or NaN) in {name_rows(np.unique(owner[absent]))}: leave it out")
    return labels, owner, len(y)


def _pairs_of_votes(votes: Any, rows: Sequence[Any] | None) -> tuple[np.ndarray, np.ndarray, int]:
    absent = [name for name in VOTE_COLUMNS if name not in votes.columns]
    if absent:
        raise ValueError(f"votes need the columns task, worker, label; missing: {', '.join(absent)}")
    tasks, labels = np.asarray(votes["task"]), np.asarray(votes["label"])
    missing = _is_missing(labels)
    tasks, labels = tasks[~missing], labels[~missing]
    order = np.unique(tasks) if rows is None else np.asarray(rows)
    if rows is None and (order.dtype.kind not in "iu" or not np.array_equal(order, np.arange(len(order)))):
        raise ValueError("the tasks of the votes are not 0, 1, … n-1: use mogd.as_candidates(votes, rows=[…])")
    index, known = _positions(tasks, order)
    if not known.all():
        raise ValueError(f"the votes name task {tasks[~known].tolist()[0]!r}, which is in no row: drop these votes")
    return labels, index, len(order)


def _from_pairs(
    labels: np.ndarray, owner: np.ndarray, count: int, names: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    if names is None:
        plain = _narrow(labels)
        try:
            names, index = np.unique(plain, return_inverse=True)
        except TypeError:
            kinds = ", ".join(sorted({type(label).__name__ for label in labels.tolist()}))
            raise ValueError(f"labels must be all strings or all numbers; got {kinds} together") from None
    else:
        index, known = _positions(labels, names)
        if not known.all():
            bad = np.unique(owner[~known])
            raise ValueError(
                f"unknown label {labels[~known].tolist()[0]!r} in {name_rows(bad)}; the classes are {_short(names)}: "
                "correct the label or add it to classes"
            )
    matrix = np.zeros((count, len(names)), dtype=bool)
    matrix[owner, index] = True
    return matrix, names


def _narrow(labels: np.ndarray) -> np.ndarray:
    """Objects as strings or numbers where they are all of one kind; whole floats (from missing cells) as integers."""
    if labels.dtype == object:
        kinds = {type(label) for label in labels.tolist()}
        if kinds and (all(issubclass(k, str) for k in kinds) or not any(issubclass(k, str) for k in kinds)):
            labels = np.array(labels.tolist())
    if labels.dtype.kind == "f" and len(labels) and np.all(labels == np.round(labels)):
        return labels.astype(np.int64)
    return labels


def _positions(labels: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each label stands in `classes`, and whether it does."""
    where = {label: i for i, label in enumerate(classes.tolist())}
    index = np.fromiter((where.get(label, -1) for label in labels.tolist()), dtype=np.int64, count=len(labels))
    return index, index >= 0


def _is_missing(values: np.ndarray) -> np.ndarray:
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype != object:
        return np.zeros(values.shape, dtype=bool)
    # NaN and pandas' NA are the only values that do not equal themselves; NA answers the comparison with itself
    flat = [v is None or type(v).__name__ in ("NAType", "NaTType") or v != v for v in values.ravel().tolist()]
    return np.array(flat, dtype=bool).reshape(values.shape)


def _check_classes(classes: Any) -> np.ndarray:
    names = np.asarray(list(classes))
    if names.ndim != 1 or len(names) == 0:
        raise ValueError("classes must be a non-empty list of class names")
    if len(set(names.tolist())) < len(names):
        raise ValueError(f"classes names a class twice: {_short(names)}")
    return names


def _check_length(matrix: np.ndarray, n_rows: int | None) -> None:
    if n_rows is not None and len(matrix) != n_rows:
        raise ValueError(f"X has {n_rows} rows but y has {len(matrix)} candidate sets: they must have the same length")
