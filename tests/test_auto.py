"""The choice made for the user: what was compared is kept, the best is fitted, and it is saved as itself."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import check_estimator

import mogd
from mogd.auto import AutoClassifier
from mogd.cli import main
from mogd.experiments.provenance import modules_behind
from mogd.methods.proden import PRODEN

Table = tuple[np.ndarray, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def digits() -> Table:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:300]
    sets = np.eye(10, dtype=bool)[y[order]] | (np.random.default_rng(1).random((300, 10)) < 0.2)
    return X[order], y[order], sets


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mogd.choice.EPOCHS", 8)


def split(digits: Table, n_clean: int = 60) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
    X, y, sets = digits
    return X[n_clean:], sets[n_clean:], {"X_val": X[:n_clean], "y_val": y[:n_clean]}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks() -> None:
    """A budget of nothing leaves the first algorithm of the list: the checks are of what stands around it."""
    rows_count = {"check_sample_weight_equivalence_on_dense_data": "neighbours and batches are drawn by row"}
    checks = check_estimator(
        AutoClassifier(budget=0, random_state=0), on_skip=None, on_fail=None, expected_failed_checks=rows_count
    )
    assert not {check["check_name"]: check["exception"] for check in checks if check["status"] == "failed"}
    assert sum(check["status"] == "passed" for check in checks) > 40


def test_the_best_of_the_comparison_is_fitted_on_all_rows(digits: Table, capsys: pytest.CaptureFixture[str]) -> None:
    X, sets, clean = split(digits)
    model = mogd.make("auto", random_state=0, epochs=10, verbose=1).fit(X, sets, **clean)
    tried = model.config_["choice"]["methods"]
    assert [row["algorithm"] for row in sorted(tried, key=lambda row: row["label"])] == ["crosel"] + ["mogd"] * 3 + [
        "sure"
    ]
    best = max(tried, key=lambda row: row["estimated_accuracy"])
    assert best["label"] == model.config_["choice"]["best"]
    said = capsys.readouterr().err
    assert all(f"{row['label']}: {row['estimated_accuracy']:.3f} in" in said for row in tried)
    own = clone(model.estimator_).fit(X, sets, **clean)
    assert np.array_equal(own.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(own.confidence_, model.confidence_)
    assert model.estimator_.scale == best["params"]["scale"]
    again = clone(model).set_params(verbose=0).fit(X, sets, **clean)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert model.score(clean["X_val"], clean["y_val"]) > 0.5


def test_what_was_chosen_is_saved_as_itself(digits: Table, tmp_path: Path) -> None:
    X, sets, clean = split(digits)
    model = mogd.make("auto", random_state=0, epochs=5, allow_rows=False).fit(X, sets, **clean)
    assert all(row["algorithm"] != "sure" for row in model.config_["choice"]["methods"])
    again = mogd.load(mogd.save(model, tmp_path / "model"))
    assert type(again) is type(model.estimator_)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.config_["choice"] == model.config_["choice"]
    holder = mogd.make("auto", budget=0).fit(X, sets, **clean)
    assert holder.estimator_.holds_rows
    with pytest.raises(ValueError, match="predicts from its training rows"):
        mogd.save(holder, tmp_path / "other")


def test_a_spent_budget_is_reported(digits: Table) -> None:
    X, sets, clean = split(digits)
    model = mogd.make("auto", budget=0, random_state=0).fit(X, sets, **clean)
    choice = model.config_["choice"]
    assert choice["best"] == "SURE"
    assert [row["error"] for row in choice["methods"][1:]] == ["not tried: the budget was spent"] * 4


def test_votes_and_tables_without_clean_rows_have_their_own_list(digits: Table) -> None:
    X, y, _sets = digits
    rng = np.random.default_rng(2)
    said = np.where(rng.random((300, 3)) < 0.8, y[:, None], rng.integers(10, size=(300, 3)))
    votes = mogd.as_candidates(said, form="annotators")
    model = mogd.make("auto", random_state=0, epochs=2).fit(X, votes)
    algorithms = {row["algorithm"] for row in model.config_["choice"]["methods"]}
    assert algorithms == {"majority", "dawid-skene", "sure", "cc"}


def test_compressed_candidates_are_compared_like_dense_ones(digits: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    X, sets, clean = split(digits)
    dense = mogd.make("auto", random_state=0, epochs=2, allow_rows=False).fit(X, sets, **clean)
    monkeypatch.setattr("mogd.compressed.DENSE_CELLS", 100)
    compressed = mogd.make("auto", random_state=0, epochs=2).fit(X, sets, **clean)
    scores = [
        {row["label"]: row["estimated_accuracy"] for row in m.config_["choice"]["methods"]} for m in (dense, compressed)
    ]
    assert scores[0] == pytest.approx(scores[1])


def test_one_scaler_for_all(digits: Table) -> None:
    X, sets, clean = split(digits)
    model = mogd.make("auto", random_state=0, epochs=2, scale="standard").fit(X, sets, **clean)
    assert {row["params"]["scale"] for row in model.config_["choice"]["methods"]} == {"standard"}
    with pytest.raises(ValueError, match="scale must be None or one of standard, minmax, power, power-minmax"):
        mogd.make("auto", scale="wild").fit(X, sets, **clean)
    with pytest.raises(ValueError, match="auto has no parameter backbone"):
        mogd.make("auto", backbone="mlp")


def test_an_open_backbone_is_compared_with_everything_else_as_given(digits: Table, tmp_path: Path) -> None:
    X, sets, clean = split(digits)
    model = mogd.PartialLabelClassifier(PRODEN(), "auto", epochs=10, scale="minmax", random_state=0, callbacks=()).fit(
        X, sets, **clean
    )
    labels = {row["label"] for row in model.config_["choice"]["methods"]}
    assert labels == {"linear", "rbf", "mlp"}
    assert model.backbone_ == model.config_["choice"]["best"]
    plain = clone(model).set_params(backbone=model.backbone_).fit(X, sets, **clean)
    assert np.array_equal(plain.predict_proba(X), model.predict_proba(X))
    assert "choice" not in plain.config_
    again = mogd.load(mogd.save(model, tmp_path / "model"))
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert clone(model).backbone == "auto"


def test_an_open_method_is_compared_too(digits: Table, capsys: pytest.CaptureFixture[str]) -> None:
    X, sets, clean = split(digits)
    model = mogd.PartialLabelClassifier("auto", "auto", epochs=3, scale="standard", random_state=0).fit(
        X, sets, **clean
    )
    assert len(model.config_["choice"]["methods"]) == 6
    assert model.config_["method"]["name"] == model.config_["choice"]["methods"][0]["params"]["method"]
    alone = mogd.PartialLabelClassifier("auto", epochs=2, random_state=0, verbose=1).fit(X, sets)
    assert {row["label"] for row in alone.config_["choice"]["methods"]} == {"cc", "proden"}
    assert "proden: 0." in capsys.readouterr().err


def test_code_behind_an_open_choice_is_named() -> None:
    """A record of "auto" depends on everything that it may choose; other records do not depend on the comparison."""
    behind = modules_behind("auto")
    assert {"mogd.auto", "mogd.choice", "mogd.selection", "mogd.classifier"} <= behind
    assert {"mogd.classical.sure", "mogd.methods.mogd", "mogd.nets.rbf"} <= behind
    assert not {"mogd.choice", "mogd.auto"} & modules_behind("mogd")


def test_the_shell_compares_where_nothing_is_said(
    digits: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    X, y, sets = digits
    columns: dict[str, Any] = {f"p{j}": X[:, j] for j in range(10, 40)}
    columns["labels"] = ["|".join(map(str, np.flatnonzero(row))) for row in sets]
    columns["sure"] = [int(label) if i < 60 else None for i, label in enumerate(y)]
    pl.DataFrame(columns).write_csv(tmp_path / "rows.csv")
    fit = ["fit", "rows.csv", "--clean", "sure", "--epochs", "8"]

    def shell(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["mogd", *fit, *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        return int(stopped.value.code or 0), *capsys.readouterr()

    code, out, err = shell("--out", "model")
    assert code == 0
    assert "MoGD, rbf: " in out
    assert "estimated accuracy" in out
    assert "MoGD, mlp: 0." in err
    assert "SURE" not in out + err  # a saved model would hold rows
    best = mogd.load("model").config_["choice"]["best"]
    assert best in ("MoGD, linear", "MoGD, rbf", "MoGD, mlp", "CroSel with meta step, rbf")
    assert f"{best}: 0." in err
    code, out, err = shell("--out", "second", "--keep-rows", "--budget", "0", "--json")
    assert code == 0
    assert not err
    found = json.loads(out)
    assert found["method"] == "sure"
    assert found["config"]["choice"]["best"] == "SURE"
    for number, plain in enumerate((["--backbone", "mlp"], ["--no-compare"], ["--param", "lr=0.1"])):
        code, out, _ = shell("--out", f"plain{number}", *plain, "-q")
        assert code == 0
        assert "estimated accuracy" not in out
    code, out, _ = shell("--out", "fourth", "--method", "cc", "--backbone", "auto", "-q", "--json")
    assert len(json.loads(out)["config"]["choice"]["methods"]) == 3
    code, _, err = shell("--out", "fifth", "--method", "auto", "--param", "lr=0.1")
    assert code == 1
    assert "leave out --backbone" in err
