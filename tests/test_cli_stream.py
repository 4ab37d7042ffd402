"""`mogd fit` and `predict` on tables that are read a row group at a time: what they give in one piece, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from shell_tools import run
from sklearn.datasets import load_digits

from mogd import arrowfiles, read_table
from mogd.datasets import streamed as streamed_tables


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


def test_an_encoding_is_not_for_parquet(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(arrowfiles, "LARGE_BYTES", 0)
    assert run(monkeypatch, folder, "predict", "model", "new", "--encoding", "latin-1", "--out", "x.csv") == 1
    assert "encoding is for text and JSON; new holds Parquet or Arrow" in capsys.readouterr().err
    assert not (folder / "x.csv").exists()


@pytest.fixture
def streamed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table to learn from as one file, and the same rows as a folder of files; both stay on the disk."""
    monkeypatch.setattr(streamed_tables, "STREAMED_BYTES", 0)
    monkeypatch.setattr(arrowfiles, "WINDOW_BYTES", 2**14)
    table = pl.read_parquet(folder / "fit.parquet")
    table.write_parquet(folder / "large.parquet", row_group_size=90)
    (folder / "large").mkdir(exist_ok=True)
    table[:400].write_parquet(folder / "large" / "a.parquet", row_group_size=100)
    table[400:].write_ipc(folder / "large" / "b.arrow", compression="uncompressed")
    return folder


FIT = ("--ignore", "hand", "--epochs", "15", "--quiet", "--seed", "0")


@pytest.mark.parametrize("table", ["large.parquet", "large"])
def test_a_large_table_is_learned_from_the_disk(
    table: str, streamed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = []
    for limit, name, out in ((0, table, "there"), (2**40, "fit.parquet", "here")):
        monkeypatch.setattr(streamed_tables, "STREAMED_BYTES", limit)
        how = ("--method", "mogd", "--clean", "clean", "--out", out, "--force", "--json")
        assert run(monkeypatch, streamed, "fit", name, *FIT, *how) == 0
        figures.append(json.loads(capsys.readouterr().out))
        assert run(monkeypatch, streamed, "disambiguate", out, "--out", f"{out}.csv", "--force") == 0
        assert run(monkeypatch, streamed, "predict", out, "new.parquet", "--out", f"{out}-new.csv", "--force") == 0
        capsys.readouterr()
    there, here = figures
    for name in ("n_rows", "n_features", "n_classes", "n_clean", "average_candidates", "method"):
        assert there[name] == here[name]
    assert abs(there["covering_rate"] - here["covering_rate"]) < 0.03
    for file, least in ((".csv", 0.95), ("-new.csv", 0.93)):
        a, b = (pl.read_csv(streamed / f"{out}{file}") for out in ("there", "here"))
        assert a["id"].to_list() == b["id"].to_list()
        assert (a["label"] == b["label"]).mean() > least
    described = [json.loads((streamed / out / "model.json").read_text()) for out in ("there", "here")]
    assert described[0]["encoder"] == described[1]["encoder"]


def test_clean_rows_of_a_large_table_may_stand_in_a_file(
    streamed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pl.read_parquet(streamed / "fit.parquet")
    known = table.filter(pl.col("clean").is_not_null())
    known.select("id", label="clean").reverse().write_csv(streamed / "known.csv")
    known.drop("labels", "hand", "id").rename({"clean": "label"}).write_csv(streamed / "further.csv")
    for clean, n_rows in (("known.csv", 600), ("further.csv", 700)):
        data = read_table(streamed / "large", ignore=["hand", "clean"], clean=streamed / clean)
        assert data.X.shape == (n_rows, 22)
        whole = table.select(data.feature_names).to_numpy()
        assert np.array_equal(data.X[:], whole[-n_rows:])
        assert np.array_equal(data.clean_X, whole[99::-1] if clean == "known.csv" else whole[:100])
    numbered = read_table(streamed / "large", ignore=["hand", "id"], clean="clean")
    assert np.array_equal(numbered.clean_X, whole[:100])


def test_without_a_method_some_rows_of_a_large_table_are_compared(
    streamed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how = ("--clean", "clean", "--out", "chosen", "--force", "--json", "--budget", "0")
    assert run(monkeypatch, streamed, "fit", "large", *FIT, *how) == 0
    assert "choice" in json.loads(capsys.readouterr().out)["config"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--method", "cc"),
            "numbers alone are learned from, and 'hand' is none: leave out by --ignore hand",
        ),
        (("--method", "cc", "--text", "hand"), "leave out --text"),
        (("--method", "cc", "--ignore", "hand", "--impute", "median"), "leave out --impute median"),
        (("--method", "ipal", "--ignore", "hand", "--keep-rows"), "IPAL needs all rows in memory at once"),
        (
            ("--method", "cc", "--ignore", "hand", "--calibrate"),
            "to be held in memory: calibrate the saved model",
        ),
        (("--method", "cc", "--candidates", "sets"), "there is no column 'sets' for the candidates"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_what_needs_all_features_at_once_is_refused(
    options: tuple[str, ...],
    said: str,
    streamed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, streamed, "fit", "large", "--clean", "clean", "--out", "refused", "--quiet", *options) == 1
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (streamed / "refused").exists()


def test_missing_cells_of_a_large_table_are_named(
    streamed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pl.read_parquet(streamed / "fit.parquet").with_columns(p9=pl.when(pl.col("id") != "d300").then("p9"))
    table.write_parquet(streamed / "gaps.parquet", row_group_size=90)
    assert run(monkeypatch, streamed, "fit", "gaps.parquet", *FIT, "--clean", "clean", "--out", "refused") == 1
    assert "X contains NaN or infinity in row 300" in " ".join(capsys.readouterr().err.split())
