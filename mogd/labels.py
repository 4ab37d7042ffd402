"""What a label is: where it stands among the classes, when it is missing, and how messages name rows and classes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from typing import Any

import numpy as np


def as_labels(y: Any, classes: np.ndarray, *, name: str = "y_val") -> np.ndarray:
    """Class indices of clean labels `(n,)`; a label outside `classes` is refused by its row."""
    y = plain(y)
    items = y if isinstance(y, (list, tuple)) or (isinstance(y, np.ndarray) and y.dtype.kind == "O") else []
    sets = [i for i, item in enumerate(items) if is_set(item) and (isinstance(item, Set) or len(item) != 1)]
    if sets:
        raise ValueError(f"{name} must hold one label for each row; {name_rows(sets[:1])} holds {y[sets[0]]!r}")
    labels = np.asarray(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise ValueError(f"{name} must hold one label for each row, of shape (n,); got shape {labels.shape}")
    index, known = positions(labels, classes)
    if not known.all():
        bad = np.flatnonzero(~known)
        raise ValueError(
            f"{name} has label {labels.tolist()[bad[0]]!r} in {name_rows(bad)}, which is not among the classes "
            f"{short(classes)}: correct it, or name every class by classes=[…] and unseen='keep'"
        )
    return index


def name_rows(index: Iterable[Any], most: int = 5) -> str:
    """`row 3`, `rows 3, 7` or `rows 1, 2, 3, 4, 5 and 12 more`: how every message names rows."""
    index = list(index)
    shown = ", ".join(str(i) for i in index[:most])
    more = f" and {len(index) - most} more" if len(index) > most else ""
    return f"row{'s' if len(index) > 1 else ''} {shown}{more}"


def short(classes: np.ndarray, most: int = 8) -> str:
    """The first classes of a list, for a message."""
    shown = ", ".join(repr(c) for c in classes[:most].tolist())
    return f"[{shown}{', …' if len(classes) > most else ''}]"


def check_classes(classes: Any) -> np.ndarray:
    """Class names as an array, each of them once."""
    names = np.asarray(list(classes))
    if names.ndim != 1 or len(names) == 0:
        raise ValueError("classes must be a non-empty list of class names")
    if len(set(names.tolist())) < len(names):
        raise ValueError(f"classes names a class twice: {short(names)}")
    return names


def positions(labels: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each label stands in `classes`, and whether it does."""
    where = {label: i for i, label in enumerate(classes.tolist())}
    index = np.fromiter((where.get(label, -1) for label in labels.tolist()), dtype=np.int64, count=len(labels))
    return index, index >= 0


def find_ids(names: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The row of each name among the ids, −1 where it is none; as text, unless both are whole numbers."""
    if names.dtype.kind != ids.dtype.kind or ids.dtype.kind not in "iu":
        names, ids = names.astype(str), ids.astype(str)
    if not len(ids):
        return np.full(len(names), -1, dtype=np.int64)
    order = None if (ids[1:] >= ids[:-1]).all() else np.argsort(ids, kind="stable")
    place = np.searchsorted(ids, names, sorter=order)
    np.minimum(place, len(ids) - 1, out=place)
    found = place if order is None else order[place]
    found[ids[found] != names] = -1
    return found


def narrow(labels: np.ndarray) -> np.ndarray:
    """Objects as strings or numbers where they are all of one kind; whole floats (from missing cells) as integers."""
    if labels.dtype == object:
        kinds = {type(label) for label in labels.tolist()}
        if kinds and (all(issubclass(k, str) for k in kinds) or not any(issubclass(k, str) for k in kinds)):
            labels = np.array(labels.tolist())
    if labels.dtype.kind == "f" and len(labels) and np.all(labels == np.round(labels)):
        return labels.astype(np.int64)
    return labels


def is_missing(values: np.ndarray) -> np.ndarray:
    """Which values are None, NaN or pandas' NA."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype != object:
        return np.zeros(values.shape, dtype=bool)
    # NaN and pandas' NA are the only values that do not equal themselves; NA answers the comparison with itself
    flat = [v is None or type(v).__name__ in ("NAType", "NaTType") or v != v for v in values.ravel().tolist()]
    return np.array(flat, dtype=bool).reshape(values.shape)


def plain(y: Any) -> Any:
    """A pandas or polars Series, a torch tensor or another array, as what numpy understands."""
    if hasattr(y, "detach"):
        return y.detach().cpu().numpy()
    if hasattr(y, "to_list") and not hasattr(y, "columns"):
        return y.to_list()
    if hasattr(y, "__array__") and not hasattr(y, "__len__"):
        return np.asarray(y)
    return y


def n_rows_of(X: Any) -> int:
    """How many rows there are in an array, a frame, a sparse matrix or a list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def is_frame(y: Any) -> bool:
    """Whether `y` is a table with named columns."""
    return hasattr(y, "columns") and hasattr(y, "shape")


def is_set(item: Any) -> bool:
    """Whether one row's entry holds several labels rather than one."""
    return isinstance(item, Collection) and not isinstance(item, (str, bytes)) and getattr(item, "ndim", 1) == 1
