"""Damaged models: one clear sentence for every damage, and nothing is run."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.numpy import save as safetensors_bytes
from saving_tools import NAMES, change, file_of, fitted

import mogd
from mogd.modelfolder import MODEL, read_folder, write_folder
from mogd.saving import RESOLVED, WEIGHTS, load_encoder, load_resolved, load_training_rows


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mogd.save(fitted(backbone="mlp", scale="standard"), tmp_path_factory.mktemp("saved") / "model")


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


class Bomb:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("bomb-went-off",)


def flip(path: Path) -> None:
    content = bytearray(file_of(path, WEIGHTS).read_bytes())
    content[-5] ^= 1
    file_of(path, WEIGHTS).write_bytes(bytes(content))


def put(path: Path, role: str, content: bytes) -> None:
    """Put another content in place of a file's, as one who can compute checksums does."""
    file = file_of(path, role)
    file.write_bytes(content)
    files = json.loads((path / MODEL).read_text())["files"]
    change(path, files=files | {file.name: hashlib.sha256(content).hexdigest()})


def put_arrays(path: Path, role: str, edit: Any) -> None:
    arrays = load_file(file_of(path, role))
    edit(arrays)
    put(path, role, safetensors_bytes(arrays))


def put_nan(arrays: dict[str, np.ndarray]) -> None:
    name = next(name for name, value in arrays.items() if name.startswith("module.") and value.dtype.kind == "f")
    arrays[name] = np.full_like(arrays[name], np.nan)


def replace_file(path: Path, make: Any) -> None:
    file = file_of(path, WEIGHTS)
    file.unlink()
    make(file)


def other_name(path: Path) -> None:
    """A model that asks for a file outside of its folder."""
    (path.parent / "weights.safetensors").write_bytes(file_of(path, WEIGHTS).read_bytes())
    files = json.loads((path / MODEL).read_text())["files"]
    change(path, files={f"../{name.partition('-')[0]}.safetensors": digest for name, digest in files.items()})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: shutil.rmtree(p), "there is no saved model at"),
        (lambda p: os.remove(p / MODEL), "is not a saved model: it has no model.json"),
        (lambda p: os.remove(file_of(p, WEIGHTS)), "is not complete: weights-[0-9a-f]*.safetensors is not there"),
        (lambda p: cut(p / MODEL), "is damaged: it is not JSON"),
        (lambda p: cut(file_of(p, WEIGHTS)), "is damaged or belongs to another model"),
        (lambda p: cut(file_of(p, RESOLVED)), "is damaged or belongs to another model"),
        (flip, "its checksum differs"),
        (lambda p: (p / MODEL).write_text("[]"), "was not written by mogd"),
        (lambda p: (p / MODEL).write_text('{"format": "other"}'), "was not written by mogd"),
        (lambda p: change(p, version=99), "has format version 99; this mogd reads 1"),
        (lambda p: change(p, sign=False, algorithm="pce"), "was changed after it was saved"),
        (lambda p: change(p, algorithm="os"), "'os' is not in this library"),
        (lambda p: change(p, params={"evil": 1}), "cannot be made into a model again"),
        (lambda p: change(p, classes={"dtype": "O", "values": [1]}), "dtype object"),
        (lambda p: change(p, classes={"dtype": "<i8", "values": [1, 2]}), "cannot be made into a model again"),
        (lambda p: change(p, classes={"dtype": "<i8", "values": [1, 2, 2]}), "names one twice"),
        (lambda p: change(p, classes={"dtype": "<U200000000", "values": ["a", "b", "c"]}), "far wider"),
        (lambda p: change(p, params={"backbone": "os.system"}), "backbone must be one of"),
        (lambda p: change(p, files=[]), "does not say which files belong to it"),
        (lambda p: change(p, files={}), "names no file of weights"),
        (lambda p: change(p, n_features_in=3), "it takes 4 features but names 3"),
        (lambda p: put(p, WEIGHTS, pickle.dumps(Bomb())), "is damaged"),
        (lambda p: put_arrays(p, WEIGHTS, put_nan), "holds NaN or infinity in module"),
        (lambda p: put_arrays(p, RESOLVED, lambda a: a.update(confidence=a["confidence"][:, :2])), "for 3 classes"),
        (lambda p: replace_file(p, os.mkfifo), "is not complete"),
        (lambda p: replace_file(p, lambda file: file.symlink_to("/dev/zero")), "is not complete"),
        (other_name, "names no file of weights"),
    ],
)
def test_damage_gets_one_sentence(saved: Path, tmp_path: Path, damage: Any, said: str) -> None:
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    damage(path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises((ValueError, FileNotFoundError), match=said) as error:
        mogd.load(path)
    assert "\n" not in str(error.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("bomb-went-off").exists()


def test_a_model_of_arrays_reads_no_table(saved: Path) -> None:
    with pytest.raises(ValueError, match="was not fitted on a table"):
        load_encoder(saved)


def test_a_classical_model_with_another_class_list_is_refused(tmp_path: Path) -> None:
    path = mogd.save(fitted("clpl", kernel="linear"), tmp_path / "m")
    change(path, classes={"dtype": "<i8", "values": [1, 2, 3, 4]})
    with pytest.raises(ValueError, match="it predicts 3 classes but names 4"):
        mogd.load(path)


def test_a_model_that_diverged_is_not_saved(tmp_path: Path) -> None:
    model = fitted("pce")
    with torch.no_grad():
        next(model.module_.parameters()).fill_(float("nan"))
    with pytest.raises(ValueError, match="the model holds NaN or infinity in module"):
        mogd.save(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("encoder", [{}, {"kind": "columns"}, {"kind": "columns", "numeric": 5}, 7, [1]])
def test_a_damaged_encoding_is_one_sentence(saved: Path, tmp_path: Path, encoder: Any) -> None:
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    change(path, encoder=encoder)
    with pytest.raises(ValueError, match="cannot say how a table becomes features"):
        load_encoder(path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: put_arrays(p, RESOLVED, lambda a: a.pop("clean")), "'clean'"),
        (lambda p: put_arrays(p, RESOLVED, lambda a: a.update(held_out=np.ones((7, 3)))), r"shape \(7, 3\) for"),
        (lambda p: change(p, classes={"dtype": "O", "values": [1]}), "dtype object"),
        (lambda p: put_arrays(p, RESOLVED, lambda a: a.update(compressed_rows(a, 0))), "a training row has no conf"),
    ],
)
def test_damaged_training_rows_are_one_sentence(saved: Path, tmp_path: Path, damage: Any, said: str) -> None:
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    damage(path)
    for read in (load_resolved, load_training_rows):
        with pytest.raises(ValueError, match=f"model holds no readable labels of its training rows: .*{said}"):
            read(path)


def compressed_rows(arrays: dict[str, np.ndarray], of_first: int) -> dict[str, np.ndarray]:
    """The same rows as compressed ones with a class each, the first with so many as are given."""
    n = len(arrays["confidence"])
    counts = np.array([of_first, *[1] * (n - 1)])
    values = np.ones(counts.sum(), dtype=np.float32)
    starts = np.concatenate([[0], counts.cumsum()])
    return {"confidence": values, "confidence_columns": np.zeros(len(values), np.int64), "confidence_starts": starts}


def test_compressed_training_rows_are_read(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    put_arrays(path, RESOLVED, lambda arrays: arrays.update(compressed_rows(arrays, 1)))
    assert set(load_resolved(path)["label"].tolist()) == {str(NAMES[0])}


def test_a_model_of_pictures_asks_for_their_folder(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    change(path, encoder={"kind": "images", "column": "file", "size": None, "shape": [3, 8, 6]})
    with pytest.raises(
        ValueError, match=r"was fitted on pictures: name their folder \(images=…, in the shell --images"
    ):
        load_encoder(path)
    encoder = load_encoder(path, images=tmp_path)
    assert (encoder.folder, encoder.column, encoder.shape_) == (tmp_path, "file", (3, 8, 6))


def test_a_description_larger_than_any_is_not_read(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    shutil.copytree(saved, path)
    monkeypatch.setattr("mogd.modelfolder.LARGEST_JSON", 100)
    with pytest.raises(ValueError, match=r"model\.json is damaged: it is larger than any that mogd writes"):
        read_folder(path)
    with pytest.raises(FileExistsError, match="exists and is not a saved model of mogd"):
        write_folder(path, {}, {}, overwrite=True)
