"""`mogd demo`: its figures are on the screen, in its files and as JSON, and the same for the same seed."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import torch
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import mogd.algorithms
from mogd.cli import app


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A few digits and epochs, by the same steps."""
    X, y = load_digits(return_X_y=True)
    make = mogd.algorithms.make

    def shorter(name: str, **params: Any) -> Any:
        assert params["epochs"] == 60
        return make(name, **params | {"epochs": 8})

    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda return_X_y: (X[:400], y[:400]))
    monkeypatch.setattr(mogd.algorithms, "make", shorter)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)  # it would outlive the test
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


def demo(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["demo", "--n-clean", "40", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def test_the_figures_are_those_of_the_files() -> None:
    said = demo("--out", "new/folder", "--q", "0.2").stdout
    figures = json.loads(Path("new/folder/results.json").read_text())
    assert (figures["q"], figures["n_clean"], figures["seed"]) == (0.2, 40, 0)
    assert "280 rows with" in said
    assert "40 clean rows, 80 test rows" in said
    results = figures["results"]
    assert list(results) == ["MoGD", "MoGD as printed", "PCE", "supervised"]
    assert "disambiguation accuracy" not in results["supervised"]
    for row in results.values():
        assert f"{row['test accuracy']:.1%}" in said
    assert results["supervised"]["test accuracy"] > 0.8
    with Path("new/folder/resolved.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 280
    assert all({row["resolved"], row["true"]} <= set(row["candidates"].split("|")) for row in rows)
    right = np.mean([row["resolved"] == row["true"] for row in rows])
    assert right == pytest.approx(results["MoGD"]["disambiguation accuracy"])
    assert 2.7 < np.mean([len(row["candidates"].split("|")) for row in rows]) < 3.2  # 1 + 9 q, and one at least


def test_json_is_alone_on_the_standard_output_and_the_seed_decides() -> None:
    done = demo("--json", "--seed", "3")
    figures = json.loads(done.stdout)
    assert figures == json.loads(Path("demo-out/results.json").read_text())
    assert "Written: demo-out/results.json" in done.stderr
    resolved = Path("demo-out/resolved.csv").read_text()
    assert json.loads(demo("--json", "--seed", "3", "--out", "again").stdout) == figures
    assert Path("again/resolved.csv").read_text() == resolved
