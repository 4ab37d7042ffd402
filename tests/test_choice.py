"""Which method: only what exists is tried, the same rows judge all, the budget holds, the best is named."""

from __future__ import annotations

import json
import shlex
from inspect import signature
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_moons
from typer.testing import CliRunner

from mogd import PartialLabelClassifier, rowsource
from mogd.algorithms import ALGORITHMS
from mogd.candidates import as_candidates
from mogd.choice import MOST_ROWS, Comparison, Option, Outcome, compare, noise, options, scale_for
from mogd.cli import app
from mogd.cli.learning import read_param
from mogd.cli.reading import Reading, _options
from mogd.cli.which import _next as show_command

QUICK = [Option("k-NN", "plknn"), Option("CC", "cc", {"epochs": 2})]


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:500]
    sets = np.eye(10, dtype=bool)[y[order]] | (np.random.default_rng(1).random((500, 10)) < 0.2)
    return X[order], y[order], sets


def test_only_what_the_library_has_is_tried() -> None:
    for has_clean in (True, False):
        for has_votes in (True, False):
            found = options(has_clean=has_clean, has_votes=has_votes)
            assert all(option.algorithm in ALGORITHMS for option in found)
            assert any("linear" in option.label for option in found)
            assert all((option.algorithm == "mogd") <= has_clean for option in found)
            guided = [option.params["callbacks"] for option in found if option.algorithm == "crosel"]
            assert guided == [("meta-step",)] * (has_clean and not has_votes)
    assert all(option.algorithm != "sure" for option in options(has_clean=True, has_votes=False, is_image=True))


def test_kernels_have_a_scaler_of_their_own() -> None:
    assert scale_for("mogd", "rbf") == scale_for("sure") == "power-minmax"
    assert scale_for("mogd") == scale_for("mogd", "mlp") == scale_for("plknn") == "power"


def test_the_best_is_first_and_failures_stay(digits) -> None:
    X, y, sets = digits
    tried = [Option("broken", "plknn", {"n_neighbors": 0}), *QUICK]
    seen = []
    found = compare(X[60:], sets[60:], X[:60], y[:60], tried=tried, on_outcome=seen.append)
    assert [o.option.label for o in seen] == ["broken", "k-NN", "CC"]
    assert found.best.option.label == "k-NN"
    assert found.best.score > found.outcomes[1].score > 0.1
    assert found.outcomes[-1].option.label == "broken"
    assert "n_neighbors" in found.outcomes[-1].error
    assert (found.n_rows, found.n_clean) == (440, 60)
    again = compare(X[60:], sets[60:], X[:60], y[:60], tried=tried)
    assert [o.score for o in again.outcomes] == [o.score for o in found.outcomes]


def test_a_spent_budget_leaves_the_rest_untried(digits) -> None:
    X, _, sets = digits
    found = compare(X, sets, tried=QUICK, budget=0)
    assert found.best.option.label == "k-NN"
    assert found.outcomes[1].error == "not tried: the budget was spent"


def test_nothing_that_fits_is_an_error(digits) -> None:
    X, _, sets = digits
    with pytest.raises(ValueError, match=r"no method could be fitted .* the first said: .*n_neighbors"):
        compare(X, sets, tried=[Option("broken", "plknn", {"n_neighbors": 0})])


def test_a_large_table_is_sampled() -> None:
    X, y = make_moons(MOST_ROWS + 500, noise=0.2, random_state=0)
    found = compare(X, y, tried=[QUICK[0]])
    assert found.n_rows == MOST_ROWS


def test_noise_shrinks_with_rows() -> None:
    sets = as_candidates(np.eye(10, dtype=bool)[np.arange(100) % 10])
    assert noise(sets, 0) == pytest.approx(0.05)  # of 100 rows: sqrt(0.25 / 100)
    assert noise(sets, 400) < noise(sets, 100) < 0.05
    full = as_candidates(np.ones((50, 3), dtype=bool))
    assert noise(full, 100) == pytest.approx(0.05)  # full sets say nothing


def test_the_shell_names_a_method_and_the_command(digits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, sets = digits
    monkeypatch.chdir(tmp_path)
    columns = {f"p{j}": X[:300, j] for j in range(64)}
    labels = ["|".join(map(str, np.flatnonzero(row))) for row in sets[:300]]
    sure = [int(k) if i < 60 else None for i, k in enumerate(y[:300])]
    pl.DataFrame({**columns, "labels": labels, "sure": sure}).write_csv("rows.csv")
    monkeypatch.setattr("mogd.choice.EPOCHS", 3)
    asked = ["which", "rows.csv", "--clean", "sure", "--budget", "120"]
    found = json.loads(CliRunner().invoke(app, [*asked, "--json"], catch_exceptions=False).stdout)
    assert found["clean_rows"] == 60
    assert found["best"] in found["level"]
    scores = [row["estimated_accuracy"] for row in found["methods"] if row["estimated_accuracy"] is not None]
    assert scores == sorted(scores, reverse=True)
    done = CliRunner().invoke(app, asked, catch_exceptions=False)
    assert f"--method {found['methods'][0]['algorithm']}" in done.stdout
    assert "use it: mogd fit rows.csv --clean sure" in done.stdout
    assert "SURE: 0." in done.stderr  # progress does not mix with the answer


def test_the_shell_says_that_votes_have_no_part_in_the_estimate(tmp_path: Path, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=60)
    said = {name: np.where(rng.random(60) < 0.8, y, 1 - y) for name in ("ann", "bob")}
    pl.DataFrame({"x": y + rng.normal(size=60), **said}).write_csv(tmp_path / "votes.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mogd.choice.EPOCHS", 2)
    done = CliRunner().invoke(app, ["which", "votes.csv", "--annotators", "ann,bob"], catch_exceptions=False)
    assert "predictions for new rows, which have no votes" in " ".join(done.stdout.split())


@pytest.mark.parametrize("form", ["sparse", "on the disk"])
def test_the_backbone_is_chosen_for_sparse_rows_and_rows_on_the_disk(form: str, tmp_path, monkeypatch) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = (X[:150] / 16).astype(np.float32), y[:150]
    candidates = np.random.default_rng(0).random((150, 10)) < 0.2
    candidates[np.arange(150), y] = True
    expected = PartialLabelClassifier("cc", backbone="auto", epochs=3, random_state=0).fit(X, candidates)
    rows = sp.csr_array(X)
    if form == "on the disk":
        monkeypatch.setattr(rowsource, "MAPPED_BYTES", 0)
        np.save(tmp_path / "x.npy", X)
        rows = np.load(tmp_path / "x.npy", mmap_mode="r")
    chosen = PartialLabelClassifier("cc", backbone="auto", epochs=3, random_state=0).fit(rows, candidates)
    estimates = [m["estimated_accuracy"] for m in chosen.config_["choice"]["methods"]]
    assert None not in estimates
    assert chosen.backbone_ == expected.backbone_


def test_the_command_that_which_prints_gives_what_was_the_best(capsys: pytest.CaptureFixture[str]) -> None:
    guided = next(o for o in options(has_clean=True, has_votes=False) if o.algorithm == "crosel")
    defaults = {name: parameter.default for name, parameter in signature(_options).parameters.items()}
    reading = Reading(defaults | {"table": Path("rows.csv"), "clean": "sure"})
    show_command(Comparison([Outcome(guided, 0.9, 1.0)], 0.01, 40, 10), reading)
    words = shlex.split(capsys.readouterr().out.removeprefix("use it: "))
    assert words[:5] == ["mogd", "fit", "rows.csv", "--clean", "sure"]
    given = dict(zip(words[5::2], words[6::2], strict=True))
    assert given["--method"] == "crosel"
    assert given["--backbone"] == "rbf"
    assert given["--scale"] == "power-minmax"
    assert read_param(given["--param"]) == ("callbacks", ["meta-step"])
