"""`mogd fit --checkpoint` by the real command: killed, interrupted, refused, resumed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_digits

from mogd.cli import main

FIT = ["fit", "table.csv", "--clean", "sure", "--epochs", "150", "--method", "mogd"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("table")
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    table = {f"pixel{j}": x[:300, j] for j in range(64)}
    labels = ["|".join({str(a), str(b)}) for a, b in zip(y[:300], rng.integers(10, size=300), strict=True)]
    sure = [str(label) if i < 40 else None for i, label in enumerate(y[:300])]
    pl.DataFrame(table | {"labels": labels, "sure": sure}).write_csv(place / "table.csv")
    return place


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "200"}
    command = [sys.executable, "-m", "mogd", *FIT, *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def when_begun(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the first epochs are saved."""
    until = time.monotonic() + 100
    while time.monotonic() < until and process.poll() is None:
        if any(file.name > "epoch-000002" for file in folder.glob("epoch-*.json")):
            return
        time.sleep(0.01)
    raise AssertionError(process.communicate())


def learned(model: Path) -> list[bytes]:
    return [next(model.glob(f"{name}*.safetensors")).read_bytes() for name in ("weights", "resolved")]


def test_a_run_that_was_killed_and_interrupted_ends_as_one_that_was_not(folder: Path) -> None:
    plain = start(folder, "--out", "plain")
    killed = start(folder, "--out", "model", "--checkpoint", "run")
    when_begun(folder / "run", killed)
    killed.kill()
    killed.communicate()
    assert not (folder / "model").exists()
    interrupted = start(folder, "--out", "model", "--checkpoint", "run", "--resume")
    begun = sorted((folder / "run").glob("epoch-*.json"))[-1]
    while not (later := sorted((folder / "run").glob("epoch-*.json"))[-1]) > begun:
        assert interrupted.poll() is None
        time.sleep(0.01)
    interrupted.send_signal(signal.SIGINT)
    _, said = interrupted.communicate(timeout=100)
    assert interrupted.returncode == 130, said
    assert "training was interrupted in epoch" in said
    assert "(in the shell --checkpoint run --resume)" in said
    assert "Traceback" not in said
    assert sorted((folder / "run").glob("epoch-*.json"))[-1] >= later
    resumed = start(folder, "--out", "model", "--checkpoint", "run", "--resume")
    assert resumed.wait(timeout=100) == 0, resumed.communicate()
    assert plain.wait(timeout=100) == 0, plain.communicate()
    assert learned(folder / "model") == learned(folder / "plain")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "other"], "other holds a checkpoint (of epoch 3): pass resume=True (in the shell --resume)"),
        (["--resume"], "--resume goes on from a checkpoint: name its folder by --checkpoint FOLDER"),
        (["--checkpoint", "new", "--method", "plknn"], "--checkpoint is for deep methods; plknn is a classical one"),
        (["--checkpoint", "table.csv"], "table.csv cannot hold checkpoints"),
    ],
)
def test_a_checkpoint_that_cannot_be_meant_is_refused_before_the_table_is_read(
    arguments: list[str],
    message: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "other").mkdir(exist_ok=True)
    (folder / "other" / "epoch-000003-batch-000000.json").write_text("{}")
    given = arguments if "--method" in arguments else [*arguments, "--method", "cc"]
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        sys, "argv", ["mogd", "fit", "table.csv" if "new" in arguments else "absent.csv", "--out", "m", *given]
    )
    with pytest.raises(SystemExit):
        main()
    assert message in capsys.readouterr().err
