"""The folder that a saved model is: plain values in `model.json`, arrays in safetensors, a version and checksums.

The files with arrays are named after their content, and `model.json` names those that belong to it. So it is the one
file whose exchange makes a new model of an old one: at every moment there is one whole model in the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from mogd.datasets.base import atomic_file, sync
from mogd.wording import option

FORMAT, VERSION = "mogd-model", 1
MODEL = "model.json"
LIBRARIES = ("mogd", "numpy", "scikit-learn", "torch")
LARGEST_JSON = 1 << 28  # bytes
ARRAY_FILE = re.compile(r"(weights|resolved|encoder)(-[0-9a-f]{16})?\.safetensors")
PART = re.compile(rf"\.({re.escape(MODEL)}|{ARRAY_FILE.pattern})\.[0-9a-f]{{8}}\.part")
KINDS = {"f": "F", "i": "I", "u": "U", "b": "BOOL"}  # numpy's kinds of numbers in the words of safetensors
TRIES = 20  # readings of a folder that is being saved again and again
Arrays = dict[str, np.ndarray]


def check_place(path: Path, *, overwrite: bool = False) -> None:
    """Refuse a place that cannot be written, that holds something else than a saved model, or one that must stay."""
    if os.path.lexists(path):
        if not path.is_dir() or not (_is_own(path) or _holds_own_files_alone(path)):
            raise FileExistsError(f"{path} exists and is not a saved model of mogd: choose another name")
        if (path / MODEL).is_file() and not overwrite:
            raise FileExistsError(
                f"{path} holds a saved model ({saved_here(path)}): pass {option('overwrite', True)} to "
                "replace it, or choose another name"
            )
    nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise OSError(f"{path} cannot be written ({error.strerror}): choose another place") from None


def saved_here(path: Path) -> str | None:
    """In a few words, the saved model that a folder holds; None where there is none."""
    if not _is_own(path):
        return None
    described = json.loads((path / MODEL).read_text(encoding="utf-8"))
    return f"{described.get('algorithm') or 'a method of your own'}, mogd {described.get('library')}"


def write_folder(path: Path, described: dict[str, Any], files: dict[str, Arrays], *, overwrite: bool = False) -> None:
    """Write plain values and arrays as one folder. A model that was there stays whole until the new one is complete."""
    check_place(path, overwrite=overwrite)
    path.mkdir(parents=True, exist_ok=True)
    with _alone(path):
        try:
            described = {"format": FORMAT, "version": VERSION, "versions": versions(), **described, "files": {}}
            for role, arrays in files.items():
                content = _safetensors(arrays)
                hashed = hashlib.sha256()
                for piece in content:
                    hashed.update(piece)
                digest = hashed.hexdigest()
                name = f"{role}-{digest[:16]}.safetensors"
                described["files"][name] = digest
                _write(path / name, content)
            described["checksum"] = _checksum(described)
            _write(path / MODEL, [(json.dumps(described, indent=1, ensure_ascii=False) + "\n").encode()])
            sync(path.absolute().parent)
        finally:
            _sweep(path)


def read_folder(path: Path, roles: Collection[str] | None = None) -> tuple[dict[str, Any], dict[str, Arrays]]:
    """The checked content of a saved model: plain values, and the arrays of each of its files that is there.

    With `roles`, of those alone that these name.
    """
    described = read_described(path)
    for _ in range(TRIES):
        failed, found = None, {}
        try:
            present = {r: name for r, name in _present(path, described).items() if roles is None or r in roles}
            found = {role: read_arrays(path, name, described) for role, name in present.items()}
        except ValueError as error:
            failed = error
        again = read_described(path)
        if _checksum(again) == _checksum(described):
            if failed is not None:
                raise failed
            return described, found
        described = again  # it was saved anew in between
    raise ValueError(f"{path} is saved again and again while it is read: try later")


def read_described(path: Path) -> dict[str, Any]:
    """The checked content of `model.json`."""
    if not path.is_dir():
        raise FileNotFoundError(f"there is no saved model at {path}")
    if not (path / MODEL).is_file():
        raise ValueError(f"{path} is not a saved model: it has no {MODEL}")
    if (path / MODEL).stat().st_size > LARGEST_JSON:
        raise ValueError(f"{path / MODEL} is damaged: it is larger than any that mogd writes")
    try:
        described = json.loads((path / MODEL).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path / MODEL} is damaged: it is not JSON; save the model again") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise ValueError(f"{path / MODEL} was not written by mogd")
    if described.get("version") != VERSION:
        raise ValueError(
            f"{path} has format version {described.get('version')}; this mogd reads {VERSION}: use the version that "
            "wrote it"
        )
    if described.pop("checksum", None) != _checksum(described):
        raise ValueError(f"{path / MODEL} was changed after it was saved: its checksum differs; save the model again")
    if not isinstance(described.get("files"), dict):
        raise ValueError(f"{path / MODEL} is damaged: it does not say which files belong to it")
    return described


def read_arrays(path: Path, name: str, described: dict[str, Any]) -> Arrays:
    """The arrays of one file, once its content is known to be what was saved, and finite."""
    file = path / name
    try:
        if not file.is_file():  # a device or a pipe would be read without end
            raise FileNotFoundError
        with file.open("rb") as opened:
            if hashlib.file_digest(opened, "sha256").hexdigest() != described["files"][name]:
                raise ValueError(f"{file} is damaged or belongs to another model: its checksum differs")
            opened.seek(0)
            content = opened.read()
    except FileNotFoundError:
        raise ValueError(f"{path} is not complete: {name} is not there; save the model again") from None
    try:
        arrays = load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ValueError(f"{file} is damaged: {first_line(error)}") from None
    check_finite(arrays, str(file))
    return arrays


def check_finite(arrays: Arrays, what: str) -> None:
    """Refuse arrays with NaN or infinity: their predictions would be NaN, or wrong without a sign of it."""
    for name, values in arrays.items():
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ValueError(f"{what} holds NaN or infinity in {name}: the training diverged, or the file was changed")


def versions() -> dict[str, str]:
    """The versions of the libraries that a prediction depends on."""
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _present(path: Path, described: dict[str, Any]) -> dict[str, str]:
    """The files with arrays by what they hold; the weights must be there, other files may have been deleted."""
    named = {found[1]: name for name in described["files"] if (found := ARRAY_FILE.fullmatch(name))}
    if "weights" not in named:
        raise ValueError(f"{path / MODEL} is damaged: it names no file of weights")
    return {role: name for role, name in named.items() if role == "weights" or os.path.lexists(path / name)}


def _is_own(path: Path) -> bool:
    """Whether the folder's `model.json` is ours: other libraries have files of that name too."""
    try:
        if not (path / MODEL).is_file() or (path / MODEL).stat().st_size > LARGEST_JSON:
            return False
        described = json.loads((path / MODEL).read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError):
        return False
    return isinstance(described, dict) and described.get("format") == FORMAT


def _holds_own_files_alone(path: Path) -> bool:
    """Whether the folder is empty, or holds what a save leaves behind that was killed before its end."""
    return all(ARRAY_FILE.fullmatch(file.name) or PART.fullmatch(file.name) for file in path.iterdir())


def _safetensors(arrays: Arrays) -> list[Any]:
    """A safetensors file in pieces, so that it is written without a copy of its arrays."""
    plain = {name: np.asarray(value, order="C") for name, value in arrays.items()}
    plain = {name: value.astype(value.dtype.newbyteorder("<"), copy=False) for name, value in plain.items()}
    names = sorted(plain, key=lambda name: (-plain[name].itemsize, name))  # so that every array is aligned
    header, end = {}, 0
    for name in names:
        array, first = plain[name], end
        end += array.nbytes
        kind = KINDS[array.dtype.kind] + ("" if array.dtype.kind == "b" else str(8 * array.itemsize))
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (first, end)}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [len(text).to_bytes(8, "little"), text, *(plain[name].reshape(-1).view(np.uint8).data for name in names)]


def _write(path: Path, content: Sequence[Any]) -> None:
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        for piece in content:
            file.write(piece)


def _sweep(path: Path) -> None:
    """Delete the files with arrays that the folder's `model.json` does not name, and the folder if it is empty then."""
    with suppress(OSError, ValueError, KeyError):
        named = json.loads((path / MODEL).read_text(encoding="utf-8"))["files"] if (path / MODEL).is_file() else ()
        for file in list(path.iterdir()):
            if PART.fullmatch(file.name) or (ARRAY_FILE.fullmatch(file.name) and file.name not in named):
                file.unlink()
        if not any(path.iterdir()):
            path.rmdir()


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time writes to a folder; the others wait."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def plain_value(name: str, value: Any, optional: tuple[str, ...] = ()) -> Any:
    """A parameter as JSON has it; an `optional` one that JSON cannot hold is left out."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain_value(name, item, optional) for item in value]
    if isinstance(value, dict):
        return {str(key): plain_value(name, item, optional) for key, item in value.items()}
    if name in optional:
        return None
    raise ValueError(f"parameter {name} cannot be saved: it must be a plain value; got {type(value).__name__}")


def plain_array(classes: np.ndarray) -> dict[str, Any]:
    array = np.array(classes.tolist()) if classes.dtype == object else classes
    if array.dtype.kind not in "Ubiuf":
        raise ValueError(f"classes must be names, numbers or booleans to be saved; got {classes.tolist()[:3]!r}")
    return {"dtype": array.dtype.str, "values": array.tolist()}


def from_plain(state: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(str(state["dtype"]))
    if dtype.kind not in "Ubiuf":
        raise ValueError(f"the saved classes have dtype {dtype}, which no saved model has")
    if dtype.itemsize > 4 * max(1000, *(len(str(value)) for value in state["values"]), 0):
        raise ValueError(f"the saved classes have dtype {dtype}, far wider than their names")
    return np.array(state["values"], dtype=dtype)


def pack_names(ids: np.ndarray) -> Arrays:
    """Ids as arrays of numbers: whole numbers as they are, names as UTF-8 with the place where each ends."""
    if ids.dtype.kind in "iu":
        return {"ids": ids}
    encoded = [str(name).encode() for name in ids.tolist()]
    ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return {"id_text": np.frombuffer(b"".join(encoded), dtype=np.uint8), "id_ends": ends}


def unpack_names(arrays: Arrays) -> np.ndarray:
    if "ids" in arrays:
        return arrays["ids"]
    text, ends = arrays["id_text"].tobytes(), arrays["id_ends"].tolist()
    return np.array([text[a:b].decode() for a, b in zip([0, *ends[:-1]], ends, strict=True)])


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(":")


def _checksum(described: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
