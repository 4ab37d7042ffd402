"""Tuning: judged on training rows alone, within its budget, for every algorithm."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from mogd.algorithms import ALGORITHMS, make
from mogd.selection import inner_score
from mogd.tuning import Range, space_of, tune


def blobs() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = make_blobs(160, centers=4, n_features=5, cluster_std=2.0, random_state=0)
    candidates = np.random.default_rng(0).random((160, 4)) < 0.3
    candidates[np.arange(160), y] = True
    return X, candidates, y


@pytest.mark.parametrize("name", [*ALGORITHMS, "mogd-paper"])
def test_every_searched_parameter_exists(name: str) -> None:
    middle = {key: v.low if isinstance(v, Range) else v[0] for key, v in space_of(name).items()}
    make(name, **middle)  # an unknown parameter would be refused


@pytest.mark.parametrize("name", ["mogd", "clpl"])
def test_the_first_trial_is_the_default_and_the_best_is_what_it_says(name: str) -> None:
    X, candidates, y = blobs()
    fixed = {"epochs": 4} if name == "mogd" else {}
    data = (X[30:], candidates[30:], X[:30], y[:30])
    found = tune(name, *data, trials=4, n_splits=2, seed=1, **fixed)
    assert len(found.table) == 4
    assert found.table[0]["params"] == {}
    assert found.score == max(row["score"] for row in found.table)
    estimator = make(name, **(fixed | found.params)).set_params(random_state=1)
    assert inner_score(estimator, *data, n_splits=2, random_state=1) == pytest.approx(found.score)
    again = tune(name, *data, trials=4, n_splits=2, seed=1, **fixed)
    assert again.params == found.params


def test_budget_in_minutes_and_failed_trials() -> None:
    X, candidates, y = blobs()
    seen: list[int] = []
    data = (X[30:], candidates[30:], X[:30], y[:30])
    began = time.perf_counter()
    found = tune("plknn", *data, minutes=0.02, on_trial=lambda number, best: seen.append(number))
    assert found.table
    assert time.perf_counter() - began < 10  # the budget is 1.2 s, and a trial takes a hundredth
    assert seen == list(range(1, len(found.table) + 1))
    with pytest.raises(ValueError, match="trials must be at least 1"):
        tune("plknn", *data, trials=0)
    with pytest.raises(ValueError, match="X_val and y_val go together"):
        tune("plknn", *data[:3], trials=1)
    with pytest.raises(ValueError, match="no trial of mogd could be fitted; the first said: dtype"):
        tune("mogd", X, candidates, X, y, trials=2, dtype="float16")


def test_fixed_parameters_are_not_searched() -> None:
    X, candidates, y = blobs()
    found = tune("plsvm", X[30:], candidates[30:], X[:30], y[:30], trials=3, n_splits=2, lam=0.1, epochs=5)
    assert all("lam" not in row["params"] for row in found.table)
    assert "lam" in signature(ALGORITHMS["plsvm"].load()).parameters


def test_from_the_shell(tmp_path: Path) -> None:
    X, candidates, y = blobs()
    lines = ["a,b,c,d,e,labels,known"]
    for i in range(len(X)):
        row = [f"{v:.4f}" for v in X[i]] + ["|".join(f"c{k}" for k in np.flatnonzero(candidates[i]))]
        lines.append(",".join([*row, f"c{y[i]}" if i < 30 else ""]))
    table = tmp_path / "rows.csv"
    table.write_text("\n".join(lines))
    command = [sys.executable, "-m", "mogd", "tune", str(table), "--clean", "known", "--method", "plsvm"]
    done = subprocess.run(
        [*command, "--trials", "3", "--splits", "2", "--param", "epochs=5", "--out", str(tmp_path / "trials.json")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "3 trials; estimated accuracy" in done.stdout
    written = json.loads((tmp_path / "trials.json").read_text())
    assert len(written["trials"]) == 3
    (use,) = re.findall(r"use it: mogd (.*)--out MODEL", done.stdout)
    assert "--clean known" in use
    fit = [sys.executable, "-m", "mogd", *shlex.split(use), "--out", str(tmp_path / "model")]
    subprocess.run(fit, capture_output=True, check=True)  # what it says can be done as it stands
