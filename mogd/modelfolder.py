"""The folder that a saved model is: plain values in `model.json`, arrays in safetensors, a version and checksums."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save_file

FORMAT, VERSION = "mogd-model", 1
MODEL = "model.json"
Arrays = dict[str, np.ndarray]


def check_place(path: Path) -> None:
    """Refuse a place that holds something else than a saved model."""
    if path.exists() and not (path / MODEL).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} exists and is no saved model: choose another name, or remove it first")


def write_folder(path: Path, described: dict[str, Any], files: dict[str, Arrays]) -> None:
    """Write plain values and arrays as one folder; it takes the place of a saved model only when complete."""
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    part.mkdir()
    try:
        described = {"format": FORMAT, "version": VERSION, **described, "files": {}}
        for name, content in files.items():
            save_file({key: np.asarray(value, order="C") for key, value in content.items()}, part / name)
            described["files"][name] = _sha256((part / name).read_bytes())
        described["checksum"] = _checksum(described)
        (part / MODEL).write_text(json.dumps(described, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        _swap(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def read_described(path: Path) -> dict[str, Any]:
    """The checked content of `model.json`."""
    if not path.is_dir():
        raise FileNotFoundError(f"there is no saved model at {path}")
    if not (path / MODEL).is_file():
        raise ValueError(f"{path} is no saved model: it has no {MODEL}")
    try:
        described = json.loads((path / MODEL).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(f"{path / MODEL} is damaged: it is no JSON; save the model again") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise ValueError(f"{path / MODEL} was not written by mogd")
    version = described.get("version")
    if version != VERSION:
        raise ValueError(
            f"{path} has format version {version}; this mogd reads {VERSION}: use the version that wrote it"
        )
    if described.pop("checksum", None) != _checksum(described):
        raise ValueError(f"{path / MODEL} was changed after it was saved: its checksum differs; save the model again")
    return described


def read_arrays(path: Path, name: str, described: dict[str, Any]) -> Arrays:
    try:
        content = (path / name).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{path} is not complete: {name} is not there; save the model again") from None
    if _sha256(content) != described["files"].get(name):
        raise ValueError(f"{path / name} is damaged or belongs to another model: its checksum differs")
    try:
        return load(content)
    except SafetensorError as error:
        raise ValueError(f"{path / name} is damaged: {first_line(error)}") from None


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


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(described: dict[str, Any]) -> str:
    return _sha256(json.dumps(described, sort_keys=True).encode())


def _swap(part: Path, path: Path) -> None:
    """Put the complete folder in its place; the one that was there goes only then."""
    old = path.with_name(f"{part.name}.old")
    if path.exists():
        os.replace(path, old)
    os.replace(part, path)
    shutil.rmtree(old, ignore_errors=True)
