"""The real-world sets: MATLAB files of either schema, any orientation, dense or sparse, version 5 or 7.3."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from mogd.candidates import as_candidates, name_rows
from mogd.datasets import matlab
from mogd.datasets.apart import MEMORY_LIMIT, read_apart
from mogd.datasets.base import PartialDataset
from mogd.datasets.sources import SOURCES, Source, find, source, where_to_put

# features, true labels, candidates; whether the two label matrices have a column per row
SCHEMAS = ((("data", "target", "partial_target"), True), (("features", "logitlabels", "p_labels"), False))
_KEYS = tuple(key for keys, _ in SCHEMAS for key in keys)


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


def read_mat(
    path: str | os.PathLike[str], *, name: str | None = None, memory_limit: int = MEMORY_LIMIT
) -> PartialDataset:
    """Any MATLAB file with `data`, `target`, `partial_target`, or with `features`, `logitlabels`, `p_labels`.

    The classes are numbered from 0. True labels may be missing from the file. It is read in a process of its own that
    may take `memory_limit` bytes, unless it is, by its SHA-256, one of the genuine files that the library knows.
    """
    found = _variables(Path(path), memory_limit)
    fitting = [schema for schema in SCHEMAS if schema[0][0] in found and schema[0][2] in found]
    if not fitting:
        wanted = " or ".join(", ".join(keys) for keys, _ in SCHEMAS)
        raise ValueError(f"{path} must hold {wanted}; got {', '.join(sorted(found)) or 'none of them'}")
    keys, transposed = fitting[0]
    X, true = _features(found[keys[0]], path), found.get(keys[1])
    matrix = _by_row(found[keys[2]], len(X), transposed, keys[2], path)
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


def _variables(path: Path, memory_limit: int) -> matlab.Matrices:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with path.open("rb") as file:
        genuine = hashlib.file_digest(file, "sha256").hexdigest() in {known.sha256 for known in SOURCES.values()}
    if genuine:
        return matlab.read_matrices(path, _KEYS)
    way_out = "pass read_mat(…, memory_limit=…) in bytes if it is genuine"
    with (
        read_apart(
            matlab.__file__, path, *_KEYS, what="MATLAB file", way_out=way_out, memory_limit=memory_limit
        ) as answer,
        np.load(answer, allow_pickle=False) as found,
    ):
        return {key: found[key] for key in found.files}


def _features(value: np.ndarray, path: Any) -> np.ndarray:
    X = np.ascontiguousarray(value, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if len(bad):
        raise ValueError(f"{path}: the features contain NaN or infinity in {name_rows(bad)}")
    return X


def _by_row(matrix: np.ndarray, n: int, transposed: bool, key: str, path: Any) -> np.ndarray:
    """The 0/1 matrix with one row per row of features: the schema's orientation first, then the only one that fits."""
    if n not in matrix.shape:
        raise ValueError(f"{path}: {key} must have {n} rows or columns, as the features have rows; got {matrix.shape}")
    if matrix.shape[1 if transposed else 0] != n:
        transposed = not transposed
    matrix = np.ascontiguousarray(matrix.T if transposed else matrix)
    bad = np.flatnonzero(~((matrix == 0) | (matrix == 1)).all(axis=1))
    if len(bad):
        raise ValueError(f"{path}: {key} must hold only 0 and 1; {name_rows(bad)} hold something else")
    return matrix.astype(bool)
