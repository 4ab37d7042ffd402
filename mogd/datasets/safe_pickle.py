"""A pickle reader that admits numpy arrays and plain containers only: a file can fill arrays, never run code."""

from __future__ import annotations

import pickle
from typing import IO, Any

import numpy as np

PIECE = 1 << 20  # bytes


def load_plain(file: IO[bytes], where: str) -> Any:
    """The content of a pickle made by Python 2 or 3; strings of Python 2 come as bytes."""
    try:
        return _Plain(_Pieces(file), encoding="bytes").load()
    except Refused as error:
        raise ValueError(
            f"{where} asks for {error}, which data never need: it is refused, and nothing of it was run"
        ) from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise ValueError(f"{where} is no readable pickle: it is cut or damaged ({type(error).__name__})") from None


class _Pieces:
    """A file that answers a large read piece by piece: inside an archive it would otherwise be held twice."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.readline = file, file.readline

    def read(self, size: int) -> Any:
        if size <= PIECE:
            return self.file.read(size)
        buffer = np.empty(size, dtype=np.uint8).data  # untouched until filled: a false length costs nothing
        return buffer[: self.readinto(buffer)]

    def readinto(self, buffer: Any) -> int:
        filled = 0
        while piece := self.file.read(min(PIECE, len(buffer) - filled)):
            buffer[filled : filled + len(piece)] = piece
            filled += len(piece)
        return filled


class Refused(pickle.UnpicklingError):
    """The pickle named something other than an array."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        stand_in = _ADMITTED.get((module.replace("numpy._core", "numpy.core"), name))
        if stand_in is None:
            raise Refused(f"{module}.{name}")
        return stand_in

    def persistent_load(self, pid: Any) -> Any:
        raise Refused("an outside object")


def _array(kind: Any, shape: Any, typecode: Any) -> np.ndarray:
    """An empty array, which the pickle then fills."""
    if kind is not np.ndarray:
        raise Refused(f"an array of {kind!r}")
    return np.ndarray.__new__(np.ndarray, (0,), "u1")


def _dtype(name: Any, *flags: Any) -> np.dtype[Any]:
    name = name.decode("latin-1") if isinstance(name, bytes) else name
    if not isinstance(name, str) or name.lstrip("<>|=")[:1] not in ("u", "i", "f", "b"):
        raise Refused(f"the array type {name!r}")
    return np.dtype(name)


def _bytes(text: str, encoding: str = "latin1") -> bytes:
    """How Python 3 writes bytes for Python 2."""
    if encoding not in ("latin1", b"latin1"):
        raise Refused(f"the encoding {encoding!r}")
    return text.encode("latin1")


_ADMITTED = {
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _bytes,
}
