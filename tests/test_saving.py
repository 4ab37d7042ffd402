"""Saved models: the same bits after a round trip, no training rows, no code; what is replaced, and when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from saving_tools import NAMES, change, file_of, fitted, flowers
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import mogd
from mogd.algorithms import ALGORITHMS
from mogd.datasets.base import PartialDataset
from mogd.methods.base import Batch, Method
from mogd.modelfolder import MODEL, read_folder, write_folder
from mogd.saving import RESOLVED, WEIGHTS, VersionWarning, load_resolved, load_training_rows
from mogd.wording import in_shell

LETTERS = {"format": "xgboost", "trees": 3}


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
            content = file_of(mogd.save(model, tmp_path / name), WEIGHTS).read_bytes()
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
    os.remove(file_of(path, RESOLVED))
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
    with pytest.raises(FileExistsError, match="exists and is not a saved model of mogd"):
        mogd.save(model, tmp_path / "letters")
    assert sorted(os.listdir(tmp_path)) == ["letters"]
    mogd.save(model, tmp_path / "m")
    assert mogd.load(mogd.save(mogd.load(tmp_path / "m"), tmp_path / "m", overwrite=True)).epochs == 1
    assert sorted(os.listdir(tmp_path)) == ["letters", "m"]


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_never_touched(tmp_path: Path, overwrite: bool) -> None:
    model = fitted("pce")
    for name, files in {
        "xgboost": {"model.json": json.dumps(LETTERS), "trees.bin": "x"},
        "half a json": {"model.json": '{"format": "mogd-mo'},
        "letters": {"dear.txt": "Mum"},
        "much alike": {"weights.safetensors.txt": "mine"},
    }.items():
        (tmp_path / name).mkdir()
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "hanging").symlink_to(tmp_path / "nowhere")
    before = content_of(tmp_path)
    for name in ("xgboost", "half a json", "letters", "much alike", "file", "hanging"):
        with pytest.raises(FileExistsError, match="exists and is not a saved model of mogd"):
            mogd.save(model, tmp_path / name, overwrite=overwrite)
    assert content_of(tmp_path) == before


def test_a_model_is_replaced_only_when_asked_and_own_files_stay(tmp_path: Path) -> None:
    path = mogd.save(fitted("pce"), tmp_path / "m")
    (path / "notes.txt").write_text("my notes")
    (path / "weights.safetensors.bak").write_text("mine too")
    before = content_of(path)
    with pytest.raises(FileExistsError, match=r"holds a saved model \(pce, mogd .*: pass overwrite=True to replace"):
        mogd.save(fitted("proden"), path)
    with pytest.raises(FileExistsError, match="pass --force to replace"), in_shell():
        mogd.save(fitted("proden"), path)
    assert content_of(path) == before
    mogd.save(fitted("proden"), path, overwrite=True)
    assert mogd.load(path).method.__class__.__name__ == "PRODEN"
    assert (path / "notes.txt").read_text() == "my notes"
    assert sorted(file.name.partition("-")[0] for file in path.iterdir()) == [
        "model.json", "notes.txt", "resolved", "weights", "weights.safetensors.bak",
    ]  # fmt: skip


def test_the_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = mogd.save(fitted("pce"), tmp_path / "m")
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in path.iterdir()} == {"0o640"}


def test_a_failed_save_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mogd.modelfolder as folder

    path = mogd.save(fitted("pce"), tmp_path / "m")
    before, write = content_of(tmp_path), folder._write

    def full(file: Path, content: bytes) -> None:
        if file.name == MODEL:
            raise OSError(28, "No space left on device")
        write(file, content)

    monkeypatch.setattr(folder, "_write", full)
    for place in (path, tmp_path / "new"):
        with pytest.raises(OSError, match="No space left"):
            mogd.save(fitted("proden"), place, overwrite=True)
    assert content_of(tmp_path) == before
    assert os.listdir(tmp_path) == ["m"]


KILLED = """
import os, sys, numpy as np
from pathlib import Path
import mogd.modelfolder as folder
real, count = os.replace, 0
def replace(*names):
    global count
    if count == int(sys.argv[2]): os.kill(os.getpid(), 9)
    count += 1
    real(*names)
os.replace = replace
described = {"library": "0", "algorithm": "b"}
folder.write_folder(Path(sys.argv[1]), described, {"weights": {"x": np.full(9, 2.0)}}, overwrite=True)
"""


@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_save_that_is_killed_leaves_one_whole_model(tmp_path: Path, moment: int, fresh: bool) -> None:
    path = tmp_path / "m"
    if not fresh:
        write_folder(path, {"library": "0", "algorithm": "a"}, {"weights": {"x": np.full(9, 1.0)}})
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(moment)], timeout=60)
    assert done.returncode == (-signal.SIGKILL if moment < 2 else 0)
    if fresh and moment < 2:
        with pytest.raises(ValueError, match=r"it has no model.json"):
            read_folder(path)
    else:
        described, files = read_folder(path)
        assert (described["algorithm"], files["weights"]["x"][0]) == (("b", 2.0) if moment == 2 else ("a", 1.0))
    write_folder(path, {"library": "0", "algorithm": "c"}, {"weights": {"x": np.full(9, 3.0)}}, overwrite=True)
    assert read_folder(path)[1]["weights"]["x"][0] == 3.0
    assert len(os.listdir(path)) == 2


def test_a_reader_beside_a_writer_sees_one_whole_model(tmp_path: Path) -> None:
    path, stop, failures, read = tmp_path / "m", threading.Event(), [], 0

    def save(value: float) -> None:
        files = {"weights": {"x": np.full(2000, value)}, "resolved": {"x": np.full(9, value)}}
        write_folder(path, {"library": "0", "algorithm": value}, files, overwrite=True)

    def writer() -> None:
        value = 1.0
        while not stop.is_set():
            save(value)
            value += 1

    save(0.0)
    thread = threading.Thread(target=writer)
    thread.start()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        described, files = read_folder(path)
        read += 1
        if {float(files[role]["x"][0]) for role in ("weights", "resolved")} != {described["algorithm"]}:
            failures.append(described["algorithm"])
    stop.set()
    thread.join()
    assert not failures
    assert read > 5


def test_a_folder_of_the_first_layout_is_read(tmp_path: Path) -> None:
    """Before the files were named after their content they were called weights.safetensors and resolved.safetensors."""
    model = fitted("pce")
    path = mogd.save(model, tmp_path / "m")
    files = json.loads((path / MODEL).read_text())["files"]
    change(path, files={f"{name.partition('-')[0]}.safetensors": digest for name, digest in files.items()})
    for name in files:
        (path / name).rename(path / f"{name.partition('-')[0]}.safetensors")
    assert np.array_equal(mogd.load(path).confidence_, model.confidence_)


def test_other_library_versions_are_warned_of(tmp_path: Path) -> None:
    path = mogd.save(fitted("pce"), tmp_path / "m")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mogd.load(path)
    known = json.loads((path / MODEL).read_text())["versions"]
    assert set(known) == {"mogd", "numpy", "scikit-learn", "torch"}
    change(path, versions=known | {"torch": "1.0.3", "gone": "1.0"})
    with pytest.warns(VersionWarning, match=r"was saved with torch 1\.0\.3 \(here 2"):
        mogd.load(path)


def test_what_a_fit_chose_survives(tmp_path: Path) -> None:
    model = fitted(backbone="mlp", callbacks="auto")
    again = mogd.load(mogd.save(model, tmp_path / "m"))
    assert again.config_
    assert again.config_ == json.loads(json.dumps(model.config_))


def test_the_advice_on_the_clean_set_survives(tmp_path: Path) -> None:
    model = fitted("mogd")
    advice = model.clean_set_advice()
    assert advice is not None
    assert mogd.load(mogd.save(model, tmp_path / "m")).clean_set_advice() == advice


def test_a_model_may_be_saved_without_its_training_rows(tmp_path: Path) -> None:
    model = fitted("pce")
    path = mogd.save(model, tmp_path / "m", resolved=False)
    assert not list(path.glob(f"{RESOLVED}-*"))
    X = load_iris().data
    assert np.array_equal(mogd.load(path).predict_proba(X), model.predict_proba(X))
    with pytest.raises(FileNotFoundError, match="saved without the labels of its training rows"):
        load_training_rows(path)


def test_the_names_of_the_features_survive(tmp_path: Path) -> None:
    X, candidates, *_ = flowers()
    names = ["sepal length", "sepal width", "petal length", "petal width"]
    model = mogd.make("pce", epochs=1, random_state=0).fit(pd.DataFrame(X, columns=names), candidates)
    again = mogd.load(mogd.save(model, tmp_path / "m"))
    assert again.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="feature names"):
        again.predict(pd.DataFrame(X, columns=names[::-1]))


def test_a_model_of_a_machine_with_a_graphics_card_predicts_on_one_without(tmp_path: Path) -> None:
    model = fitted("pce")
    path = mogd.save(model, tmp_path / "m")
    change(path, params=json.loads((path / MODEL).read_text())["params"] | {"device": "cuda:1"})
    again = mogd.load(path)
    assert again.device == "auto"
    assert np.array_equal(again.predict_proba(load_iris().data), model.predict_proba(load_iris().data))


class OwnClassical(type(mogd.make("clpl"))):
    """An estimator that the table of algorithms does not know."""


def test_an_estimator_of_ones_own_cannot_be_saved(tmp_path: Path) -> None:
    X, candidates, *_ = flowers()
    with pytest.raises(ValueError, match="OwnClassical is not in the table of algorithms"):
        mogd.save(OwnClassical(kernel="linear").fit(X, candidates), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_parameters_that_json_cannot_hold(tmp_path: Path) -> None:
    """A generator is left out, as a fitted model needs none; anything else is refused."""
    model = fitted("pce", random_state=np.random.RandomState(0))
    assert mogd.load(mogd.save(model, tmp_path / "m")).random_state is None
    model.set_params(lr=torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="parameter lr cannot be saved: it must be a plain value; got Linear"):
        mogd.save(model, tmp_path / "other")
    model = fitted("pce")
    model.classes_ = np.array([b"a", b"b", b"c"])
    with pytest.raises(ValueError, match=r"classes must be names, numbers or booleans to be saved; got .*b'a'"):
        mogd.save(model, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_folder_that_is_saved_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mogd.modelfolder as folder

    path, number, read = tmp_path / "m", iter(range(100)), folder.read_arrays

    def saved_meanwhile(*arguments: Any) -> Any:
        found = read(*arguments)
        write_folder(path, {"library": "0", "algorithm": next(number)}, {"weights": {"x": np.ones(2)}}, overwrite=True)
        return found

    write_folder(path, {"library": "0", "algorithm": "a"}, {"weights": {"x": np.ones(2)}})
    monkeypatch.setattr(folder, "read_arrays", saved_meanwhile)
    with pytest.raises(ValueError, match="is saved again and again while it is read: try later"):
        read_folder(path)
    assert next(number) == folder.TRIES
