"""The real-world sets: MATLAB files of either schema, any orientation, dense or sparse, version 5 or 7.3."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.io import loadmat
from scipy.io.matlab import MatReadError

from mogd.candidates import as_candidates, name_rows
from mogd.datasets.base import PartialDataset
from mogd.datasets.sources import Source, find, source, where_to_put

# features, true labels, candidates; whether the two label matrices have a column per row
SCHEMAS = ((("data", "target", "partial_target"), True), (("features", "logitlabels", "p_labels"), False))
_KEYS = tuple(key for keys, _ in SCHEMAS for key in keys)
_DAMAGED = (ValueError, TypeError, KeyError, IndexError, EOFError, OSError, MemoryError, zlib.error, MatReadError)


def load(name: str) -> PartialDataset:
    """A real-world data set of the paper by name: lost, msrcv2, birdsong, soccer-player or yahoo-news."""
    wanted = source(name)
    if wanted.is_image:
        raise ValueError(f"{wanted.name} has images and no candidate sets of its own: use load_images({wanted.name!r})")
    path = find(wanted.name)
    if path is None:
        raise FileNotFoundError(
            f"{wanted.title} is not on this machine: `mogd datasets fetch {wanted.name}`, or {where_to_put(wanted)}"
        )
    return load_file(path, wanted)


def load_file(path: str | os.PathLike[str], wanted: Source) -> PartialDataset:
    """The file of a data set whose characteristics are known; a file that differs from them is refused."""
    dataset = read_mat(path, name=wanted.name)
    measured = dataset.describe()
    pairs = {
        "rows": (measured["n_rows"], wanted.n),
        "features": (measured["n_features"], wanted.n_features),
        "classes": (measured["n_classes"], wanted.n_classes),
        "candidates on average": (round(measured["average_candidates"], 2), wanted.average_candidates),
    }
    differing = [f"{got} {what} where {must} are expected" for what, (got, must) in pairs.items() if got != must]
    if differing:
        raise ValueError(f"{path} is not {wanted.title}: it has {'; '.join(differing)}")
    return dataset


def read_mat(path: str | os.PathLike[str], *, name: str | None = None) -> PartialDataset:
    """Any MATLAB file with `data`, `target`, `partial_target`, or with `features`, `logitlabels`, `p_labels`.

    The classes are numbered from 0. True labels may be missing from the file.
    """
    found = _variables(Path(path))
    fitting = [schema for schema in SCHEMAS if schema[0][0] in found and schema[0][2] in found]
    if not fitting:
        wanted = " or ".join(", ".join(keys) for keys, _ in SCHEMAS)
        raise ValueError(f"{path} must hold {wanted}; got {', '.join(sorted(found)) or 'none of them'}")
    keys, transposed = fitting[0]
    X, true, partial = (found.get(key) for key in keys)
    X = _features(X, path)
    matrix = _by_row(partial, len(X), transposed, keys[2], path)
    y = None
    if true is not None:
        truth = _by_row(true, len(X), transposed, keys[1], path)
        bad = np.flatnonzero(truth.sum(axis=1) != 1)
        if truth.shape != matrix.shape or len(bad):
            shown = name_rows(bad) if len(bad) else f"shape {truth.shape}"
            raise ValueError(f"{path}: {keys[1]} must name one class for each row, as {keys[2]} does; see {shown}")
        y = truth.argmax(axis=1)
    try:
        candidates = as_candidates(matrix, unseen="keep")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return PartialDataset(name or Path(path).stem, X, candidates, y)


def _variables(path: Path) -> dict[str, Any]:
    try:
        return dict(_variables_5(path))
    except NotImplementedError:  # how scipy says that the file is of version 7.3
        return _variables_73(path)
    except FileNotFoundError:
        raise
    except _DAMAGED as error:
        raise ValueError(f"{path} is no readable MATLAB file: it is cut, damaged or something else ({error})") from None


def _variables_5(path: Path) -> dict[str, Any]:
    return {key: value for key, value in loadmat(path, variable_names=list(_KEYS)).items() if key in _KEYS}


def _variables_73(path: Path) -> dict[str, Any]:
    try:
        import h5py
    except ImportError:
        raise ImportError(f"{path} is a MATLAB 7.3 file, which needs h5py: pip install 'mogd[mat73]'") from None
    try:
        with h5py.File(path, "r") as file:
            return {key: _matlab_73(file[key]) for key in _KEYS if key in file}
    except _DAMAGED as error:
        raise ValueError(f"{path} is no readable MATLAB 7.3 file: it is cut or damaged ({error})") from None


def _matlab_73(item: Any) -> Any:
    """HDF5 holds MATLAB's columns as rows; a sparse matrix is a group with its number of rows as an attribute."""
    if "MATLAB_sparse" not in item.attrs:
        return np.asarray(item).T
    pointers = np.asarray(item["jc"], dtype=np.int64)
    shape = int(item.attrs["MATLAB_sparse"]), len(pointers) - 1
    if "data" not in item:  # MATLAB leaves the values out when there are none
        return sp.csc_matrix(shape)
    return sp.csc_matrix((np.asarray(item["data"], dtype=float), np.asarray(item["ir"]), pointers), shape=shape)


def _dense(value: Any) -> np.ndarray:
    return value.toarray() if sp.issparse(value) else np.asarray(value)


def _features(value: Any, path: Any) -> np.ndarray:
    X = _dense(value)
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise ValueError(f"{path}: the features must be a matrix of numbers; got {X.dtype} of shape {X.shape}")
    X = np.ascontiguousarray(X, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise ValueError(f"{path}: the features contain NaN or infinity in {name_rows(bad)}")
    return X


def _by_row(value: Any, n: int, transposed: bool, key: str, path: Any) -> np.ndarray:
    """The 0/1 matrix with one row per row of features: the schema's orientation first, then the only one that fits."""
    matrix = _dense(value)
    if matrix.ndim != 2 or n not in matrix.shape:
        raise ValueError(f"{path}: {key} must have {n} rows or columns, as the features have rows; got {matrix.shape}")
    if matrix.shape[1 if transposed else 0] != n:
        transposed = not transposed
    matrix = np.ascontiguousarray(matrix.T if transposed else matrix)
    bad = np.flatnonzero(~((matrix == 0) | (matrix == 1)).all(axis=1))
    if len(bad):
        raise ValueError(f"{path}: {key} must hold only 0 and 1; {name_rows(bad)} hold something else")
    return matrix.astype(bool)
