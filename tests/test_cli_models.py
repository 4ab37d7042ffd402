"""The first way through the shell, by the real command: fit, predict, disambiguate on tables that a person has."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from mogd.cli import main

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "neün, 9"])
ANNOTATORS = ["ann", "bob", "cem"]


def mogd(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command as a shell runs it."""
    command = [sys.executable, "-m", "mogd", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def call(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> object:
    """The same command within this process, which need not import everything again; its exit code."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["mogd", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits as a table: names as labels, three annotators who err and skip, missing cells, a text column."""
    folder = tmp_path_factory.mktemp("digits")
    rng = np.random.default_rng(3)
    X, y = load_digits(return_X_y=True)
    keep = rng.permutation(len(X))[:900]
    X, y = X[keep], y[keep]
    n = len(X)
    table = {"key": [f"img-{i:04d}" for i in rng.permutation(n)], "hand": rng.choice(["left", "right"], n).tolist()}
    for j in range(64):
        cells = X[:, j].tolist()
        for i in np.flatnonzero(rng.random(n) < (0.02 if j in (20, 21, 43) else 0)):
            cells[i] = None
        table[f"pixel{j}"] = cells
    errs = np.array([0.15, 0.4, 0.4])
    for a, (name, err) in enumerate(zip(ANNOTATORS, errs, strict=True)):
        said = np.where(rng.random(n) < err, rng.integers(10, size=n), y)
        skipped = rng.random(n) < 0.15 if a else np.zeros(n, dtype=bool)
        table[name] = [None if s else str(NAMES[k]) for s, k in zip(skipped, said, strict=True)]
    sure = np.arange(n) < 60
    table["expert"] = [str(NAMES[k]) if s else None for s, k in zip(sure, y, strict=True)]
    frame = pl.DataFrame(table)
    frame[:700].write_csv(folder / "train.csv")
    frame[700:].drop(*ANNOTATORS, "expert").write_csv(folder / "new.csv")
    pl.DataFrame({"key": table["key"], "truth": NAMES[y].tolist()}).write_csv(folder / "truth.csv")
    return folder


@pytest.fixture(scope="module")
def fitted(digits: Path) -> Path:
    arguments = ["--annotators", "ann,bob", "--annotators", "cem", "--clean", "expert", "--id", "key"]
    done = mogd("fit", "train.csv", *arguments, "--impute", "median", "--epochs", 15, "--out", "model", folder=digits)
    assert "640 with candidates, 60 clean" in done.stdout
    assert "pixel20" in done.stderr
    assert "Traceback" not in done.stderr
    return digits


def joined(folder: Path, name: str) -> pl.DataFrame:
    truth = pl.read_csv(folder / "truth.csv")
    return pl.read_csv(folder / name).join(truth, on="key", how="left", validate="1:1")


def test_resolved_labels_join_back_by_id(fitted: Path) -> None:
    mogd("disambiguate", "model", "--out", "resolved.csv", folder=fitted)
    table = joined(fitted, "resolved.csv")
    train = pl.read_csv(fitted / "train.csv")
    assert set(table["key"]) == set(train["key"])
    assert table.columns[:6] == ["key", "label", "confidence", "runner_up", "runner_up_confidence", "clean"]
    partial = table.filter(~pl.col("clean"))
    assert table.filter("clean")["label"].to_list() == table.filter("clean")["truth"].to_list()
    assert (partial["label"] == partial["truth"]).mean() > 0.93  # the best annotator alone is right in 84 of 100
    said = partial.join(train, on="key")
    in_set = pl.any_horizontal(pl.col("label").eq_missing(pl.col(name)) for name in ANNOTATORS)
    assert said.select(in_set.all()).item()
    assert (partial["confidence"] >= partial["runner_up_confidence"]).all()


@pytest.mark.parametrize("name", ["key", None], ids=["by name", "by number"])
def test_resolved_labels_come_in_the_order_of_the_table(
    tmp_path: Path, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"r{i}" for i in np.random.default_rng(0).permutation(24)]
    rows = {"x": [float(i % 3) for i in range(24)], "labels": ["abc"[i % 3] for i in range(24)]}
    rows["sure"] = [rows["labels"][i] if i in (1, 5, 6, 23) else None for i in range(24)]
    pl.DataFrame(({name: keys} if name else {}) | rows).write_csv(tmp_path / "rows.csv")
    arguments = ["--clean", "sure", "--epochs", "1", *(["--id", name] if name else [])]
    call(monkeypatch, tmp_path, "fit", "rows.csv", *arguments, "--out", "model")
    call(monkeypatch, tmp_path, "disambiguate", "model", "--out", "resolved.csv")
    table = pl.read_csv(tmp_path / "resolved.csv")
    assert table.columns[0] == (name or "row")
    assert table[name or "row"].to_list() == (keys if name else list(range(24)))
    assert np.flatnonzero(table["clean"].to_numpy()).tolist() == [1, 5, 6, 23]
    assert table["label"].to_list() == rows["labels"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            ["fit", "--epochs", "1", "--method", "mogd"],
            "no clean rows were named, so the 16 rows with one candidate are taken to be sure",
        ),
        (["tune", "--trials", "1", "--splits", "2", "--param", "epochs=1"], "no clean rows were named, so the 16 rows"),
        (["fit", "--epochs", "1", "--method", "supervised"], "Supervised learns nothing from the 8 of 24 rows"),
    ],
    ids=["fit", "tune", "supervised"],
)
def test_what_is_taken_for_granted_is_noted_once(
    tmp_path: Path, command: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ["a|b" if i % 3 == 0 else "ab"[i % 2] for i in range(24)]
    pl.DataFrame({"x": [float(i % 5) for i in range(24)], "labels": labels}).write_csv(tmp_path / "rows.csv")
    assert call(monkeypatch, tmp_path, command[0], "rows.csv", *command[1:], "--out", "out") == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1
    assert said in notes[0]


def test_new_rows_are_labelled(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mogd("predict", "model", "new.csv", "--out", "labels.csv", folder=fitted)
    call(monkeypatch, fitted, "predict", "model", "new.csv", "--probabilities", "--out", "labels.parquet")
    table = joined(fitted, "labels.csv")
    assert table["key"].to_list() == pl.read_csv(fitted / "new.csv")["key"].to_list()
    assert (table["label"] == table["truth"]).mean() > 0.88
    other = pl.read_parquet(fitted / "labels.parquet")
    assert other["label"].to_list() == table["label"].to_list()
    assert np.allclose(other.select(pl.sum_horizontal(pl.col("^p\\(.*\\)$"))).to_numpy(), 1)


def test_the_pages_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    docs = Path(__file__).parent.parent / "docs"
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for page in ("tables.md", "models.md", "guarantees.md"):
        for kind, block in re.findall(r"```(python|sh)\n(.*?)```", (docs / page).read_text(), re.DOTALL):
            if kind == "python":
                exec(block, names)
            for line in block.splitlines() if kind == "sh" else []:
                assert call(monkeypatch, tmp_path, *shlex.split(line)[1:]) == 0, line
    said = capsys.readouterr().out
    right = {name: int(count) for name, count in re.findall(r"(\w+)\.csv (\d+) of", said)}
    assert right["resolved"] >= 110  # the page says 114 of 120; another machine may round otherwise
    assert right["labels"] >= 42


def test_pictures_in_a_folder(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_digits(return_X_y=True)
    (digits / "pictures").mkdir()
    names = [f"{i}.png" for i in range(200)]
    for name, row in zip(names, X, strict=False):
        Image.fromarray((row.reshape(8, 8) * 15).astype(np.uint8)).save(digits / "pictures" / name)
    sets = [[int(label), int((label + 1 + i % 3) % 10)] for i, label in enumerate(y[:200])]
    frame = pl.DataFrame(
        {"picture": names, "labels": sets, "sure": [int(t) if i < 40 else None for i, t in enumerate(y[:200])]}
    )
    frame.write_parquet(digits / "pictures.parquet")
    where = ["--images", "pictures"]
    options = [
        "--image-column",
        "picture",
        "--clean",
        "sure",
        "--size",
        "6x6",
        "--param",
        "batch_size=20",
        "--epochs",
        "40",
        "-q",
        "--out",
        "seen",
    ]
    assert call(monkeypatch, digits, "fit", "pictures.parquet", *where, *options) == 0
    assert call(monkeypatch, digits, "predict", "seen", "pictures.parquet", *where, "--out", "seen.csv") == 0
    assert (pl.read_csv(digits / "seen.csv")["label"].to_numpy() == y[:200]).mean() > 0.85


def test_prediction_needs_the_same_columns(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pl.read_csv(fitted / "new.csv").drop("pixel3").write_csv(fitted / "short.csv")
    assert call(monkeypatch, fitted, "predict", "model", "short.csv", "--out", "x.csv") == 1
    assert "lacks column 'pixel3'" in capsys.readouterr().err
    assert not (fitted / "x.csv").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "nothing.csv"], "there is no file nothing.csv"),
        (["fit", "train.csv"], "there is no column 'labels' for the candidates"),
        (
            ["fit", "train.csv", "--candidates", "ann", "--clean", "experts"],
            "clean must be a column of the table or a file",
        ),
        (
            ["fit", "train.csv", "--candidates", "ann", "--clean", "expert"],
            "--id key makes it the id, --ignore key leaves it out",
        ),
        (["fit", "train.csv", "--candidates", "ann", "--id", "hand"], "make them unique"),
        (["fit", "train.csv", "--candidates", "ann", "--id", "key", "--ignore", "bob,cem,expert"], "--impute median"),
        (["fit", "train.csv", "--method", "magic"], "--method must be one of mogd"),
        (["tune", "train.csv", "--method", "MoGD"], "got 'MoGD' (did you mean 'mogd'?)"),
        (["fit", "train.csv", "--param", "lr"], "--param must be NAME=VALUE"),
        (
            ["fit", "train.csv", "--candidates", "ann", "--scale", "robust"],
            "--scale must be one of standard, minmax",
        ),
        (["report", "."], "holds neither a saved model (model.json) nor records (*.jsonl)"),
        (["predict", "nowhere", "new.csv"], "there is no saved model at nowhere"),
        (["disambiguate", "."], "is not a saved model: it has no model.json"),
    ],
)
def test_errors_are_one_sentence(
    digits: Path, arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(os.listdir(digits))
    assert call(monkeypatch, digits, *arguments, "--out", "out.csv") == 1
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("mogd: ")
    assert said in last
    assert sorted(os.listdir(digits)) == before


@pytest.fixture
def small(tmp_path: Path) -> Path:
    rows = {"x": [float(i % 3) for i in range(24)], "labels": ["abc"[i % 3] for i in range(24)]}
    pl.DataFrame(rows).write_csv(tmp_path / "rows.csv")
    return tmp_path


FIT = ("fit", "rows.csv", "--method", "cc", "--epochs", "1")


def test_no_file_is_replaced_without_force(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = fitted / "mine.csv"
    (fitted / "mine.html").write_text("mine")
    for command in (
        ["predict", "model", "new.csv", "--out", "mine.csv"],
        ["disambiguate", "model", "--out", "mine.csv"],
        ["next", "model", "--n", "3", "--out", "mine.csv"],
        ["report", "model", "--out", "mine.html"],
    ):
        mine.write_text("mine")
        assert call(monkeypatch, fitted, *command) == 1
        assert "is there already: --force replaces it" in capsys.readouterr().err
        assert mine.read_text() == (fitted / "mine.html").read_text() == "mine"
        assert call(monkeypatch, fitted, *command, "--force") == 0
        assert (fitted / command[-1]).read_text() != "mine"
    assert call(monkeypatch, fitted, "inspect", "train.csv", "--html", "mine.html") == 1
    assert "name another file by --html" in capsys.readouterr().err


def test_a_saved_model_is_replaced_only_by_force(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, small, *FIT, "--out", "model") == 0
    assert call(monkeypatch, small, "fit", "no-such-table.csv", "--out", "model") == 1  # refused before it is read
    assert "holds a saved model (cc, mogd" in capsys.readouterr().err
    assert call(monkeypatch, small, *FIT, "--out", "model", "--force") == 0
    assert "in place of the one that was there (cc, mogd" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("out", ["rows.csv", "rows.csv/model", "/proc/model"])
def test_a_place_that_cannot_be_written_is_refused_before_training(
    out: str, small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, small, "fit", "no-such-table.csv", "--out", out) == 1
    assert re.search("cannot be written|is not a saved model of mogd", capsys.readouterr().err)
    for command in (["predict", "no-model", "rows.csv"], ["disambiguate", "no-model"]):
        assert call(monkeypatch, small, *command, "--out", f"{out}/labels.csv") == 1
        assert re.search("there is no folder|cannot be written", capsys.readouterr().err)


def test_a_full_disk_does_not_lose_the_trained_model(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import mogd.modelfolder as folder
    from mogd.saving import load

    write = folder._write

    def full(file: Path, content: bytes) -> None:
        if "cache" not in file.parts:
            raise OSError(28, "No space left on device")
        write(file, content)

    monkeypatch.setattr(folder, "_write", full)
    monkeypatch.setenv("XDG_CACHE_HOME", str(small / "cache"))
    assert call(monkeypatch, small, *FIT, "--out", "model") == 1
    said = capsys.readouterr().err
    assert "model could not be written (No space left on device); the trained model is saved as " in said
    (rescued,) = (small / "cache" / "mogd" / "rescued").iterdir()
    assert str(rescued) in said
    assert load(rescued).predict([[0.0]]).tolist() in (["a"], ["b"], ["c"])
    assert not (small / "model").exists()
