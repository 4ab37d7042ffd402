"""The files of a checkpoint: tensors in safetensors, everything else in JSON, which is written last and names them.

At every moment the folder holds a whole checkpoint, and nothing that is not ours is touched in it.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save

from mogd.callbacks.state import Tensors
from mogd.datasets.base import atomic_file

FORMAT, VERSION = "mogd-checkpoint", 2
KEPT = 2
NAME = re.compile(r"epoch-(\d{6})-batch-(\d{6})\.(json|safetensors)")
PART = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]{{8}}\.part")
Place = tuple[int, int]  # epochs, and batches of the next epoch, that are over


def places(folder: Path) -> list[Place]:
    """Where the checkpoints of a folder stand, the last one first."""
    found = [NAME.fullmatch(file.name) for file in folder.iterdir()] if folder.is_dir() else []
    return sorted(((int(m[1]), int(m[2])) for m in found if m and m[3] == "json"), reverse=True)


def write(folder: Path, place: Place, described: dict[str, Any], tensors: Tensors) -> None:
    """Add a checkpoint, and remove all but the last ones."""
    folder.mkdir(parents=True, exist_ok=True)
    content = save(tensors)
    described = {"format": FORMAT, "version": VERSION, "tensors": _sha256(content), **described}
    described["checksum"] = _checksum(described)
    for ending, data in (("safetensors", content), ("json", json.dumps(described, indent=1).encode())):
        with atomic_file(_file(folder, place, ending)) as temporary:
            temporary.write_bytes(data)
    kept = places(folder)[:KEPT]
    for file in folder.iterdir():
        if PART.fullmatch(file.name) or ((m := NAME.fullmatch(file.name)) and (int(m[1]), int(m[2])) not in kept):
            file.unlink(missing_ok=True)


def read_last(folder: Path) -> tuple[dict[str, Any], Tensors] | None:
    """The last whole checkpoint of a folder; None where there is none at all."""
    damaged = []
    for place in places(folder):
        try:
            found = _read(folder, place)
        except ValueError as error:
            damaged.append(str(error))
            continue
        if damaged:
            warnings.warn(f"{damaged[0]}: the run goes on from the checkpoint before it", stacklevel=2)
        return found
    if damaged:
        raise ValueError(f"{'; '.join(damaged)}: no checkpoint is left in {folder}; start again with another folder")
    return None


def _read(folder: Path, place: Place) -> tuple[dict[str, Any], Tensors]:
    try:
        if not all(_file(folder, place, ending).is_file() for ending in ("json", "safetensors")):
            raise FileNotFoundError  # a pipe or a device would be read without end
        described = json.loads(_file(folder, place, "json").read_text(encoding="utf-8"))
        content = _file(folder, place, "safetensors").read_bytes()
        checksum = described.pop("checksum")
        if checksum != _checksum(described) or described["tensors"] != _sha256(content):
            raise ValueError("its checksum differs")
        found = described, load(content)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError):
        raise ValueError(f"{_file(folder, place, 'json')} is damaged") from None
    if described.get("format") != FORMAT:
        raise ValueError(f"{_file(folder, place, 'json')} was not written by mogd")
    if described.get("version") != VERSION:
        raise ValueError(f"{_file(folder, place, 'json')} is a checkpoint of another version of mogd")
    return found


def _file(folder: Path, place: Place, ending: str) -> Path:
    return folder / f"epoch-{place[0]:06d}-batch-{place[1]:06d}.{ending}"


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(described: dict[str, Any]) -> str:
    return _sha256(json.dumps(described, sort_keys=True).encode())
