"""Matrices of numbers out of MATLAB files, dense or sparse, of version 5 or 7.3."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from scipy.io import loadmat

Matrices = dict[str, np.ndarray]


def read_into(out: IO[bytes], path: Path, *keys: str) -> None:
    """Write what `read_matrices` gives to `out` as an npz file: what the process apart does."""
    np.savez(out, **read_matrices(path, keys))  # type: ignore[arg-type]


def read_matrices(path: Path, keys: tuple[str, ...]) -> Matrices:
    """Those of the named variables that the file holds, each a dense matrix of numbers."""
    try:
        found = _version_5(path, keys)
    except NotImplementedError:  # how scipy says that the file is of version 7.3
        found = _version_73(path, keys)
    except MemoryError:
        raise
    except Exception as error:  # a damaged file can raise nearly anything
        raise ValueError(
            f"{path} is no readable MATLAB file: it is cut, damaged or something else ({_first_line(error)})"
        ) from None
    return {key: _dense(value, key, path) for key, value in found.items()}


def _version_5(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in loadmat(path, variable_names=list(keys)).items() if key in keys}


def _version_73(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        import h5py
    except ImportError:
        raise ImportError(f"{path} is a MATLAB 7.3 file, which needs h5py: pip install 'mogd[mat73]'") from None
    try:
        with h5py.File(path, "r") as file:
            outside = [key for key in keys if key in file and not _is_inside(file, key)]
            if not outside:
                return {key: _matlab_73(file[key]) for key in keys if key in file}
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path} is no readable MATLAB 7.3 file: it is cut or damaged ({_first_line(error)})"
        ) from None
    raise ValueError(f"{path}: {outside[0]} points to another file, which is refused: store the matrix itself")


def _is_inside(file: Any, key: str) -> bool:
    """Whether a variable is in the file itself: HDF5 can also point to any other file of the machine."""
    import h5py

    if not isinstance(file.get(key, getlink=True), h5py.HardLink):
        return False
    item = file[key]
    parts = [item] if isinstance(item, h5py.Dataset) else []
    if isinstance(item, h5py.Group):
        if not all(isinstance(item.get(name, getlink=True), h5py.HardLink) for name in item):
            return False
        parts = [part for part in item.values() if isinstance(part, h5py.Dataset)]
    return not any(part.external or part.is_virtual for part in parts)


def _matlab_73(item: Any) -> Any:
    """HDF5 holds MATLAB's columns as rows; a sparse matrix is a group with its number of rows as an attribute."""
    if "MATLAB_sparse" not in item.attrs:
        return np.asarray(item).T
    pointers = np.asarray(item["jc"], dtype=np.int64)
    shape = int(item.attrs["MATLAB_sparse"]), len(pointers) - 1
    if "data" not in item:  # MATLAB leaves the values out when there are none
        return sp.csc_matrix(shape)
    rows = np.asarray(item["ir"], dtype=np.int64)
    return sp.csc_matrix((np.asarray(item["data"], dtype=float), rows, pointers), shape=shape)


def _dense(value: Any, key: str, path: Path) -> np.ndarray:
    """A matrix of numbers; the indices of a sparse one are checked, since they say where in memory is written."""
    if sp.issparse(value):
        try:
            value.check_format(full_check=True)
        except ValueError as error:
            raise ValueError(f"{path}: {key} is a damaged sparse matrix ({_first_line(error)})") from None
        value = value.toarray()
    value = np.asarray(value)
    if value.ndim != 2 or value.dtype.kind not in "fiub":
        raise ValueError(f"{path}: {key} must be a matrix of numbers; got {value.dtype} of shape {value.shape}")
    return value


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
