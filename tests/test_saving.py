"""Saved models: the same bits after a round trip, no training rows, no code, and one clear error for every damage."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import mogd
from mogd.algorithms import ALGORITHMS
from mogd.candidates import as_candidates
from mogd.datasets.base import PartialDataset
from mogd.methods.base import Batch, Method
from mogd.modelfolder import MODEL, _checksum
from mogd.saving import RESOLVED, WEIGHTS, load_encoder, load_resolved

NAMES = np.array(["rose", "tulip, red", "百合"])


def flowers(classes: np.ndarray = NAMES) -> tuple[np.ndarray, Any, np.ndarray, np.ndarray]:
    """Iris with one wrong candidate in half of the rows: 120 partial rows and 30 clean ones."""
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))
    X, y = X[order], y[order]
    matrix = np.eye(3, dtype=bool)[y]
    wrong = rng.random(len(X)) < 0.5
    matrix[wrong, (y[wrong] + rng.integers(1, 3, wrong.sum())) % 3] = True
    matrix = matrix[:, : len(classes)]
    candidates = as_candidates(matrix[:120][matrix[:120].any(axis=1)], classes=classes)
    return X[:120][matrix[:120].any(axis=1)], candidates, X[120:], classes[np.minimum(y[120:], len(classes) - 1)]


def fitted(name: str = "mogd", classes: np.ndarray = NAMES, **params: Any) -> Any:
    X, candidates, X_val, y_val = flowers(classes)
    if ALGORITHMS[name].kind == "deep":
        params = {"epochs": 2, "random_state": 0, **params}
    return mogd.make(name, **params).fit(X, candidates, X_val=X_val, y_val=y_val)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mogd.save(fitted(backbone="mlp", scale="standard"), tmp_path_factory.mktemp("saved") / "model")


@pytest.mark.parametrize("name", list(ALGORITHMS))
@pytest.mark.filterwarnings("ignore:Supervised learns nothing")
def test_every_algorithm_predicts_the_same_bits(tmp_path: Path, name: str) -> None:
    model = fitted(name, scale="minmax")
    mogd.save(model, tmp_path / "m", allow_rows=True)
    again = mogd.load(tmp_path / "m")
    X = load_iris().data
    assert type(again) is type(model)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.disambiguate().label.tolist() == model.disambiguate().label.tolist()
    assert np.array_equal(again.confidence_, model.confidence_)


def test_parameters_survive_and_random_state_is_untouched(saved: Path) -> None:
    model = fitted(backbone="mlp", scale="standard", strength=0.5, backbone_params={"hidden": (8, 4), "dropout": 0.0})
    path = mogd.save(model, saved.parent / "other")
    before = torch.random.get_rng_state()
    again = mogd.load(path)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert again.method.strength == 0.5
    assert again.backbone_params == {"hidden": [8, 4], "dropout": 0.0}
    assert (again.epochs, again.random_state, again.history_) == (2, 0, model.history_)
    X, candidates, X_val, y_val = flowers()
    refit = again.fit(X, candidates, X_val=X_val, y_val=y_val)
    assert np.array_equal(refit.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("classes", [NAMES, np.array([-3, 5, 70]), np.array([0.5, 1.5, 2.0]), np.array([False, True])])
def test_classes_survive_exactly(tmp_path: Path, classes: np.ndarray) -> None:
    again = mogd.load(mogd.save(fitted(classes=classes), tmp_path / "m"))
    assert again.classes_.dtype == classes.dtype
    assert again.classes_.tolist() == classes.tolist()


def test_images_and_double_precision(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.integers(0, 256, (40, 3, 4, 4), dtype=np.uint8)
    model = mogd.make("pce", epochs=1, dtype="float64", backbone="mlp", random_state=0).fit(X, rng.integers(3, size=40))
    again = mogd.load(mogd.save(model, tmp_path / "m"))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


class Doubled(Method):
    def __init__(self, weight: float = 2.0) -> None:
        self.weight = weight

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return -self.weight * (logits.log_softmax(1) * batch.confidence).sum(1)


def test_own_backbone_and_method_are_passed_again(tmp_path: Path) -> None:
    X, candidates, *_ = flowers()
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    model = mogd.PartialLabelClassifier(Doubled(), net, epochs=1, random_state=0).fit(X, candidates)
    mogd.save(model, tmp_path / "m")
    with pytest.raises(ValueError, match="a backbone of its own making: pass the same one"):
        mogd.load(tmp_path / "m", method=Doubled())
    with pytest.raises(ValueError, match="a method of its own making"):
        mogd.load(tmp_path / "m", backbone=net)
    again = mogd.load(tmp_path / "m", backbone=net, method=Doubled())
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="cannot be made into a model again"):
        mogd.load(tmp_path / "m", backbone=nn.Linear(4, 3), method=Doubled())


def test_no_training_row_is_in_the_folder(tmp_path: Path) -> None:
    X, candidates, X_val, y_val = flowers()
    rng = np.random.default_rng(5)
    X, X_val = (rng.normal(size=part.shape) for part in (X, X_val))
    model = mogd.make("mogd", epochs=1, dtype="float64").fit(X, candidates, X_val=X_val, y_val=y_val)
    mogd.save(model, tmp_path / "m")
    content = b"".join(file.read_bytes() for file in (tmp_path / "m").iterdir())
    for row in np.concatenate([X, X_val]):
        assert row.tobytes() not in content
        assert row[:2].astype(np.float32).tobytes() not in content
    for name in (a.name for a in ALGORITHMS.values() if a.kind == "classical"):
        model = mogd.make(name).fit(X, candidates)
        if model.holds_rows:
            with pytest.raises(ValueError, match="predicts from its training rows"):
                mogd.save(model, tmp_path / name)
            assert not (tmp_path / name).exists()
        else:
            content = (mogd.save(model, tmp_path / name) / WEIGHTS).read_bytes()
            assert not any(row.tobytes() in content for row in X)


@pytest.mark.parametrize("ids", [np.arange(500, 620), np.array([f"rów-{i}" for i in range(120)])])
def test_resolved_labels_by_id(tmp_path: Path, ids: np.ndarray) -> None:
    X, candidates, X_val, y_val = flowers()
    model = mogd.make("mogd", epochs=2, random_state=0).fit(X, candidates, X_val=X_val, y_val=y_val)
    path = mogd.save(model, tmp_path / "m", data=PartialDataset("flowers", X, candidates, ids=ids))
    table = load_resolved(path)
    label, confidence = model.disambiguate()
    assert table["id"].tolist() == ids.tolist()
    assert table["label"].tolist() == label.tolist()
    assert np.array_equal(table["confidence"], confidence)
    for i, row in enumerate(candidates.matrix):
        ranked = sorted(((model.confidence_[i, k], k) for k in np.flatnonzero(row)), reverse=True)
        expected = str(NAMES[ranked[1][1]]) if len(ranked) > 1 and ranked[1][0] > 0 else None
        assert table["runner_up"][i] == expected
    os.remove(path / RESOLVED)
    again = mogd.load(path)
    assert np.array_equal(again.predict(X), model.predict(X))
    with pytest.raises(NotFittedError, match="confidences"):
        again.disambiguate()
    with pytest.raises(FileNotFoundError, match="saved without the labels of its training rows"):
        load_resolved(path)


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes a model of this library"):
        mogd.save(LogisticRegression(), tmp_path / "m")
    with pytest.raises(NotFittedError):
        mogd.save(mogd.make("pce"), tmp_path / "m")
    X, candidates, *_ = flowers()
    model = mogd.make("pce", epochs=1).fit(X, candidates)
    with pytest.raises(ValueError, match="data has 10 rows but the model was fitted on 120"):
        mogd.save(model, tmp_path / "m", data=PartialDataset("f", X[:10], candidates[:10]))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("Mum")
    with pytest.raises(FileExistsError, match="exists and is no saved model"):
        mogd.save(model, tmp_path / "letters")
    assert sorted(os.listdir(tmp_path)) == ["letters"]
    assert mogd.load(mogd.save(mogd.load(mogd.save(model, tmp_path / "m")), tmp_path / "m")).epochs == 1
    assert sorted(os.listdir(tmp_path)) == ["letters", "m"]


def cut(path: Path, name: str) -> None:
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[: len(content) // 2])


def change(path: Path, sign: bool = True, **values: Any) -> None:
    """Change plain values of a model; when signed, as one who can compute checksums does."""
    described = json.loads((path / MODEL).read_text()) | values
    if sign:
        described.pop("checksum")
        described["checksum"] = _checksum(described)
    (path / MODEL).write_text(json.dumps(described))


class Bomb:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("bomb-went-off",)


def flip(path: Path) -> None:
    content = bytearray((path / WEIGHTS).read_bytes())
    content[-5] ^= 1
    (path / WEIGHTS).write_bytes(bytes(content))


def bomb(path: Path) -> None:
    import hashlib

    (path / WEIGHTS).write_bytes(pickle.dumps(Bomb()))
    files = json.loads((path / MODEL).read_text())["files"]
    change(path, files=files | {WEIGHTS: hashlib.sha256((path / WEIGHTS).read_bytes()).hexdigest()})


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda p: shutil.rmtree(p), "there is no saved model at"),
        (lambda p: os.remove(p / MODEL), "is no saved model: it has no model.json"),
        (lambda p: os.remove(p / WEIGHTS), "is not complete: weights.safetensors is not there"),
        (lambda p: cut(p, MODEL), "is damaged: it is no JSON"),
        (lambda p: cut(p, WEIGHTS), "is damaged or belongs to another model"),
        (lambda p: cut(p, RESOLVED), "is damaged or belongs to another model"),
        (flip, "its checksum differs"),
        (lambda p: (p / MODEL).write_text("[]"), "was not written by mogd"),
        (lambda p: (p / MODEL).write_text('{"format": "other"}'), "was not written by mogd"),
        (lambda p: change(p, version=99), "has format version 99; this mogd reads 1"),
        (lambda p: change(p, sign=False, algorithm="pce"), "was changed after it was saved"),
        (lambda p: change(p, algorithm="os"), "'os' is not in this library"),
        (lambda p: change(p, params={"evil": 1}), "cannot be made into a model again"),
        (lambda p: change(p, classes={"dtype": "O", "values": [1]}), "dtype object"),
        (lambda p: change(p, classes={"dtype": "<i8", "values": [1, 2]}), "cannot be made into a model again"),
        (lambda p: change(p, params={"backbone": "os.system"}), "backbone must be one of"),
        (bomb, "is damaged"),
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
