"""An ONNX file gives the probabilities of the model, for every backbone, without this library."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from shell_tools import run
from sklearn.datasets import load_digits
from torch import nn

import mogd
from mogd import PartialLabelClassifier
from mogd.nets import BACKBONES
from mogd.scalers import SCALERS

X, Y = load_digits(return_X_y=True)
IMAGES = np.kron(X.reshape(-1, 1, 8, 8) * 15, np.ones((1, 1, 4, 4))).astype(np.uint8)  # 32 × 32
SMALL: dict[str, dict[str, Any]] = {
    "linear": {},
    "mlp": {"hidden": (16,)},
    "rbf": {"landmarks": 50},
    "cnn": {"channels": (4, 4)},
    "convnet": {"width": 0.05},
    "wide-resnet": {"depth": 10, "width": 0.25},
    "airbench": {"width": 0.1},
}
WITH_IMAGES = ("cnn", "convnet", "wide-resnet", "airbench")
TOLERANCE = 1e-5


def fitted(backbone: Any, rows: np.ndarray, **params: Any) -> PartialLabelClassifier:
    params = {"epochs": 1, "random_state": 0, "callbacks": ()} | params
    sets = np.eye(10, dtype=bool)[Y[:200]] | (np.random.default_rng(0).random((200, 10)) < 0.2)
    return PartialLabelClassifier("cc", backbone, **params).fit(rows[:200], sets)


def session_of(model: PartialLabelClassifier, path: Path) -> onnxruntime.InferenceSession:
    assert model.to_onnx(path) == path
    assert [file.name for file in path.parent.iterdir()] == [path.name]  # one file, without weights beside it
    return onnxruntime.InferenceSession(path)


def given_by(session: onnxruntime.InferenceSession, rows: np.ndarray) -> np.ndarray:
    return session.run(["probabilities"], {"X": rows})[0]


class OneLayer(nn.Module):
    """A network of one's own, but for its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)


def test_every_backbone_is_tried() -> None:
    assert set(SMALL) == set(BACKBONES)


@pytest.mark.parametrize("backbone", SMALL)
def test_the_same_probabilities(backbone: str, tmp_path: Path) -> None:
    images = backbone in WITH_IMAGES
    rows = IMAGES if images else X
    model = fitted(backbone, rows, backbone_params=SMALL[backbone], scale=None if images else "standard")
    session = session_of(model, tmp_path / "model.onnx")
    assert session.get_inputs()[0].type == ("tensor(uint8)" if images else "tensor(double)")
    for part in (rows[200:300], rows[300:301]):  # any number of rows
        assert np.abs(given_by(session, part) - model.predict_proba(part)).max() < TOLERANCE
    assert json.loads(session.get_modelmeta().custom_metadata_map["mogd.classes"]) == list(range(10))


@pytest.mark.parametrize("scale", [None, *SCALERS])
def test_the_scaler_is_part_of_the_file(scale: str | None, tmp_path: Path) -> None:
    far = X + (1e6 if scale else 0.0)  # a seventh digit, which float32 has not
    model = fitted("mlp", far, scale=scale)
    rows = far[200:400].astype(np.float64 if scale else np.float32)
    assert np.abs(given_by(session_of(model, tmp_path / "m.onnx"), rows) - model.predict_proba(rows)).max() < TOLERANCE


def test_views_are_part_of_the_file(tmp_path: Path) -> None:
    model = fitted("cnn", IMAGES, backbone_params=SMALL["cnn"], predict_views="mirror-shift")
    plain = model.predict_proba(IMAGES[200:260])
    got = given_by(session_of(model, tmp_path / "m.onnx"), IMAGES[200:260])
    assert np.abs(got - plain).max() < TOLERANCE
    assert np.abs(plain - model.set_params(predict_views=None).predict_proba(IMAGES[200:260])).max() > 1e-3


def test_bfloat16_is_written_as_float32_and_says_so(tmp_path: Path) -> None:
    model = fitted("cnn", IMAGES, backbone_params=SMALL["cnn"], precision="bf16")
    before = model.predict_proba(IMAGES[200:260])
    with pytest.warns(UserWarning, match="computes in float32"):
        model.to_onnx(tmp_path / "m.onnx")
    got = given_by(onnxruntime.InferenceSession(tmp_path / "m.onnx"), IMAGES[200:260])
    np.testing.assert_array_equal(model.predict_proba(IMAGES[200:260]), before)
    assert np.abs(got - before).max() < 0.05


def test_a_network_of_ones_own_with_names_and_a_loaded_model(tmp_path: Path) -> None:
    class Own(OneLayer):
        def forward(self, x: Any) -> Any:
            return self.layer(x / 16).relu() * 3

    model = fitted(Own(), X)
    folder = tmp_path / "model"
    mogd.save(model, folder)
    (tmp_path / "new").mkdir()
    again = mogd.load(folder, backbone=Own())
    session = session_of(again, tmp_path / "new" / "m.onnx")
    rows = X[200:].astype(np.float32)
    assert np.abs(given_by(session, rows) - model.predict_proba(rows)).max() < TOLERANCE


def test_what_torch_cannot_write_is_said(tmp_path: Path) -> None:
    class Unwritable(OneLayer):
        def forward(self, x: Any) -> Any:
            return self.layer(x) + torch.linalg.eigvals(x[:1].T @ x[:1]).abs().sum()  # ONNX has no eigenvalues

    model = fitted(Unwritable(), X)
    with pytest.raises(ValueError, match="torch cannot write this network as ONNX"):
        model.to_onnx(tmp_path / "m.onnx")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_and_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted("linear", X)
    path = tmp_path / "m.onnx"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.to_onnx(path)
    assert path.read_text() == "mine"
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ImportError, match=r"pip install 'mogd\[onnx\]'"):
        model.to_onnx(path, overwrite=True)
    monkeypatch.undo()
    model.to_onnx(path, overwrite=True)
    assert path.stat().st_size > 1000


def test_the_shell_exports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    mogd.save(fitted("linear", X), tmp_path / "model")
    mogd.save(mogd.make("clpl", kernel="linear").fit(X[:100], Y[:100]), tmp_path / "classical")

    def said(*arguments: str, code: int = 0) -> str:
        assert run(monkeypatch, tmp_path, "export", *arguments) == code
        out, err = capsys.readouterr()
        return err if code else out

    assert "64 features to 10 probabilities" in said("model", "--out", "m.onnx")
    assert "--force replaces it" in said("model", "--out", "m.onnx", code=1)
    figures = json.loads(said("model", "--out", "m.onnx", "--force", "--json"))
    assert figures == {"features": [64], "classes": 10, "bytes": Path("m.onnx").stat().st_size, "out": "m.onnx"}
    assert "classical method" in said("classical", "--out", "c.onnx", code=1)
    assert "must end in .onnx" in said("model", "--out", "m.bin", code=1)
