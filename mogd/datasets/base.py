"""The checked data that everything else takes: rows, their candidate sets and, where known, their true labels."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from mogd.candidates import Candidates, name_rows
from mogd.compressed import Matrix, at_column
from mogd.evidence import Evidence

FORMAT = 1  # of the file that `save` writes
_PARTS = ("X", "matrix", "classes", "y", "ids", "feature_names")
DAMAGED = "{path} is not a data set saved by mogd, or it is damaged: save it again"
_EVIDENCE_PARTS = ("row", "label", "source", "weight", "sources", "n_rows", "kind")


@dataclass(frozen=True, eq=False)
class PartialDataset:
    """Rows with candidate sets. `y` holds class indices, −1 where the true label of a row is not known."""

    name: str
    X: np.ndarray  # (n, d) float, or images (n, channels, height, width) uint8
    candidates: Candidates
    y: np.ndarray | None = None
    ids: np.ndarray | None = None  # of the user's table
    feature_names: list[str] | None = None

    def __post_init__(self) -> None:
        n, n_classes = self.candidates.shape
        for part in ("X", "y", "ids"):
            value = getattr(self, part)
            if value is not None and len(value) != n:
                raise ValueError(f"{part} has {len(value)} rows but there are {n} candidate sets")
        if self.feature_names is not None and len(self.feature_names) != self.X.shape[1]:
            raise ValueError(f"feature_names has {len(self.feature_names)} names for {self.X.shape[1]} features")
        if self.y is not None:
            bad = np.flatnonzero((self.y < -1) | (self.y >= n_classes))
            if self.y.dtype.kind not in "iu" or len(bad):
                raise ValueError(
                    f"y must hold class indices from 0 to {n_classes - 1}, or -1 where unknown; got "
                    f"{self.y[bad[0]] if len(bad) else self.y.dtype} in {name_rows(bad) if len(bad) else 'every row'}"
                )

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def classes(self) -> np.ndarray:
        return self.candidates.classes

    @property
    def labels(self) -> np.ndarray:
        """The true labels as class names; every one must be known."""
        return self.classes[self.known_y()]

    def known_y(self) -> np.ndarray:
        """The true class indices, or an error when some are not known."""
        if self.y is None:
            raise ValueError(f"the true labels of {self.name!r} are not known: give y to use them")
        unknown = np.flatnonzero(self.y < 0)
        if len(unknown):
            raise ValueError(f"the true label of {name_rows(unknown)} of {self.name!r} is not known: drop these rows")
        return self.y

    def subset(self, index: Any) -> Self:
        """The rows `index` (positions or a mask), in that order, with all classes."""
        index = np.asarray(index)
        return replace(
            self,
            X=self.X[index],
            candidates=self.candidates[index],
            y=None if self.y is None else self.y[index],
            ids=None if self.ids is None else self.ids[index],
        )

    def describe(self) -> dict[str, Any]:
        """Rows, features, classes, statistics of the candidate sets and, where `y` is known, how often they hold it."""
        result: dict[str, Any] = {"name": self.name, "n_features": int(np.prod(self.X.shape[1:]))}
        result |= self.candidates.describe()
        if self.y is not None and (self.y >= 0).any():
            known = np.flatnonzero(self.y >= 0)
            result["true_in_candidates"] = float(at_column(self.candidates[known].matrix, self.y[known]).mean())
            result["classes_occurring"] = len(np.unique(self.y[known]))
        return result

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over everything but the name: equal data have equal fingerprints on every machine."""
        digest = hashlib.sha256()
        for part, value in self._arrays().items():
            value = np.ascontiguousarray(value)
            if value.dtype.kind in "US":  # the width of a string array depends on its history
                content = json.dumps(value.tolist()).encode()
                digest.update(f"{part}|text|{value.shape}|".encode() + content)
                continue
            value = value.astype(value.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{part}|{value.dtype.str}|{value.shape}|".encode())
            digest.update(value.reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write one `.npz` file without pickles; it replaces `path` only when complete."""
        path = Path(path)
        arrays = self._arrays() | {"name": np.array(self.name), "fingerprint": np.array(self.fingerprint)}
        with atomic_file(path) as temporary, temporary.open("wb") as file:
            np.savez(file, format=np.array(FORMAT), **arrays)  # type: ignore[arg-type]
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; a file that was cut or changed is refused."""
        found = _read_arrays(path)
        names = found.get("feature_names")
        try:
            dataset = cls(
                name=str(found["name"]),
                X=found["X"],
                candidates=Candidates(_read_matrix(found), found["classes"], _read_evidence(found)),
                y=found.get("y"),
                ids=found.get("ids"),
                feature_names=None if names is None else [str(name) for name in names],
            )
            same = dataset.fingerprint == str(found["fingerprint"])
        except Exception:  # arrays of another kind can raise nearly anything
            raise ValueError(DAMAGED.format(path=path)) from None
        if not same:
            raise ValueError(f"{path} does not hold what was saved: its fingerprint differs; save it again")
        return dataset

    def _arrays(self) -> dict[str, np.ndarray]:
        matrix = self.candidates.matrix
        compressed = sp.issparse(matrix)
        dense = None if compressed else np.asarray(matrix, dtype=bool)
        values = (self.X, dense, self.classes, self.y, self.ids, self.feature_names)
        parts: dict[str, Any] = {part: value for part, value in zip(_PARTS, values, strict=True) if value is not None}
        if compressed:
            parts |= {"matrix_columns": matrix.indices, "matrix_starts": matrix.indptr}
        if self.candidates.evidence is not None:
            parts |= {f"evidence_{part}": getattr(self.candidates.evidence, part) for part in _EVIDENCE_PARTS}
        return {part: _without_objects(part, value) for part, value in parts.items()}


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside `path` that takes its place when the block ends well, and vanishes when it does not.

    It is on the disk before it takes its place, so that a power failure leaves the old file or the new one, whole.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {key: file[key] for key in file.files}
        sets = {"matrix_columns", "matrix_starts"} if "matrix_starts" in found else {"matrix"}
        if not {"format", "name", "fingerprint", "X", "classes"} | sets <= set(found):
            raise ValueError("its parts are missing")
        if not all(isinstance(array, np.ndarray) for array in found.values()):
            raise ValueError("a part is no array")
        later = int(found["format"]) > FORMAT
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no file {path}") from None
    except Exception:  # a damaged archive can raise nearly anything
        raise ValueError(DAMAGED.format(path=path)) from None
    if later:
        raise ValueError(f"{path} was written by a later version of mogd: update the library")
    return found


def _read_matrix(found: dict[str, np.ndarray]) -> Matrix:
    if "matrix" in found:
        return found["matrix"]
    columns, starts = found["matrix_columns"], found["matrix_starts"]
    shape = (len(starts) - 1, len(found["classes"]))
    matrix = sp.csr_array((np.ones(len(columns), dtype=bool), columns, starts), shape=shape)
    matrix.check_format(full_check=True)  # a place outside the shape would be read out of bounds
    return matrix


def _read_evidence(found: dict[str, np.ndarray]) -> Evidence | None:
    if "evidence_row" not in found:
        return None
    row, label, source, weight, sources, n_rows, kind = (found[f"evidence_{part}"] for part in _EVIDENCE_PARTS)
    return Evidence(row, label, source, weight, sources, int(n_rows), str(kind))


def _without_objects(part: str, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype != object:
        return array
    array = np.array(array.tolist())
    if array.dtype == object:
        raise ValueError(f"{part} must hold numbers or strings to be saved; got {type(value[0]).__name__}")
    return array
