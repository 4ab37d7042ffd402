"""`mogd predict` on tables that are read a row group at a time: the same labels and figures as in one piece."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from shell_tools import run
from sklearn.datasets import load_digits

from mogd import arrowfiles


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A calibrated model of digits, new rows as one file, and the same rows as a folder of files."""
    place = tmp_path_factory.mktemp("stream")
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    other = rng.integers(0, 10, len(y))
    columns = {"id": [f"d{i}" for i in range(len(y))], **{f"p{k}": X[:, k] for k in range(0, 64, 3)}}
    hand = rng.choice(["left", "right"], len(y)).tolist()
    frame = pl.DataFrame(columns | {"hand": hand})
    sets = [f"digit {a}|digit {b}" if a != b else f"digit {a}" for a, b in zip(y, other, strict=True)]
    clean = [f"digit {label}" if i < 100 else None for i, label in enumerate(y.tolist())]
    fit = frame[:700].with_columns(pl.Series("labels", sets[:700]), pl.Series("clean", clean[:700]))
    fit.write_parquet(place / "fit.parquet")
    new = frame[700:]
    new.write_parquet(place / "new.parquet", row_group_size=150)
    (place / "new").mkdir()
    new[:500].write_parquet(place / "new" / "a.parquet", row_group_size=200)
    new[500:].write_ipc(place / "new" / "b.arrow", compression="uncompressed")
    with pytest.MonkeyPatch.context() as patch:
        fitting = ("fit", "fit.parquet", "--clean", "clean", "--calibrate", "--epochs", "5", "--method", "cc")
        assert run(patch, place, *fitting, "--quiet", "--no-compare", "--out", "model") == 0
    return place


OPTIONS = [[], ["--probabilities"], ["--coverage", "0.8"], ["--risk", "0.05"]]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(options) or "plain")
def test_row_groups_give_the_same_labels(
    options: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, figures = [], []
    for large, table in ((2**40, "new.parquet"), (0, "new.parquet"), (0, "new")):
        monkeypatch.setattr(arrowfiles, "LARGE_BYTES", large)
        into = ("--out", "out.parquet", "--force", "--json")
        assert run(monkeypatch, folder, "predict", "model", table, *into, *options) == 0
        figures.append({k: v for k, v in json.loads(capsys.readouterr().out).items() if k != "out"})
        found.append(pl.read_parquet(folder / "out.parquet"))
    assert found[0].height == 1097
    for other in found[1:]:
        assert other.columns == found[0].columns
        assert other["id"].to_list() == found[0]["id"].to_list()
        assert other["label"].to_list() == found[0]["label"].to_list()
        for name in found[0].columns:
            if found[0][name].dtype.is_float():
                np.testing.assert_allclose(other[name].to_numpy(), found[0][name].to_numpy(), atol=1e-6)
    for other_figures in figures[1:]:
        assert other_figures == pytest.approx(figures[0], rel=1e-6)


def test_rows_without_ids_are_numbered_through(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pl.read_parquet(folder / "new.parquet").drop("id").write_parquet(folder / "bare.parquet", row_group_size=300)
    monkeypatch.setattr(arrowfiles, "LARGE_BYTES", 0)
    assert run(monkeypatch, folder, "predict", "model", "bare.parquet", "--out", "out.csv") == 0
    assert pl.read_csv(folder / "out.csv")["row"].to_list() == list(range(1097))


def test_a_folder_without_tables_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    assert run(monkeypatch, folder, "predict", "model", "empty", "--out", "none.csv") != 0
    assert "is no Parquet or Arrow file or folder of them" in " ".join(capsys.readouterr().err.split())
