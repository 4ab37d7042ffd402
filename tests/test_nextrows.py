"""Which rows to label next: spread, classes by their share, torn rows that stand for many; in Python and the shell."""

from __future__ import annotations

import doctest
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from labeling_tools import write_table
from typer.testing import CliRunner

import mogd
import mogd.nextrows
from mogd import PartialLabelClassifier, next_to_label
from mogd.cli import app
from mogd.nextrows import MOST_ROWS


def clusters(sizes: list[int], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points about far-apart centres, and the cluster of each."""
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(sizes)), sizes)
    centres = 20 * rng.normal(size=(len(sizes), 5))
    return centres[of] + rng.normal(size=(len(of), 5)), of


def test_the_docstring_runs() -> None:
    assert doctest.testmod(mogd.nextrows).failed == 0


def test_every_cluster_gets_a_row_before_any_gets_two() -> None:
    X, of = clusters([40, 40, 40, 40, 40, 40])
    sets = np.ones((len(X), 3), dtype=bool)
    found = next_to_label(X, sets, n=6, random_state=0)
    assert len(set(of[found.row])) == 6
    more = next_to_label(X, sets, n=3, labelled=found.row[:3], random_state=0)
    assert set(of[more.row]) == set(of[found.row[3:]])
    assert all("3 candidates" in reason for reason in more.reason)


def test_classes_come_by_their_share() -> None:
    X, of = clusters([300, 100])
    y = of.copy()
    sets = np.eye(4, dtype=bool)[y] | np.eye(4, dtype=bool)[y + 2]  # 0 or 2 against 1 or 3
    found = next_to_label(X, sets, n=20, random_state=0)
    assert 2 <= (of[found.row] == 1).sum() <= 8


def test_rows_with_one_candidate_and_labelled_rows_come_last_or_never() -> None:
    rng = np.random.default_rng(0)
    X, sets = rng.normal(size=(30, 3)), np.ones((30, 4), dtype=bool)
    sets[:10] = np.eye(4, dtype=bool)[0]
    found = next_to_label(X, sets, n=99, labelled=[10, 11], random_state=0)
    assert sorted(found.row) == [*range(10), *range(12, 30)]
    assert sorted(found.row[18:]) == list(range(10))
    assert found.reason[-1] == "one candidate alone: to check it"
    mask = np.isin(np.arange(30), [10, 11])
    assert np.array_equal(next_to_label(X, sets, n=99, labelled=mask, random_state=0).row, found.row)


def test_torn_rows_that_stand_for_many_come_first() -> None:
    X, of = clusters([80, 80, 5])
    sets = np.ones((165, 3), dtype=bool)
    confidence = np.full((165, 3), [0.98, 0.01, 0.01])
    confidence[of > 0] = [0.49, 0.49, 0.02]  # a large cluster and a small one are torn
    found = next_to_label(X, sets, n=1, confidence=confidence, random_state=0)
    assert of[found.row[0]] == 1
    assert found.reason[0].startswith("uncertain between 0 (49%) and 1 (49%); about ")
    assert found.worth[0] > 10


def test_a_model_is_asked_for_its_probabilities() -> None:
    X, of = clusters([30, 30, 30])
    names = np.array(["a", "b", "c"])
    sets = [[str(names[k]), str(names[(k + 1) % 3])] for k in of]
    model = PartialLabelClassifier("cc", epochs=2, scale="standard", random_state=0).fit(X, sets)
    found = next_to_label(X, sets, n=5, model=model, random_state=0)
    assert len(set(found.row)) == 5
    assert all(reason.startswith("uncertain between") for reason in found.reason)
    assert np.array_equal(found.row, next_to_label(X, sets, n=5, model=model, random_state=0).row)


def test_missing_cells_pictures_and_no_features_at_all() -> None:
    rng = np.random.default_rng(0)
    sets = rng.random((40, 5)) < 0.5
    sets[:, 0] = True
    X = rng.normal(size=(40, 4))
    X[3, 1], X[:, 2] = np.nan, 7.0
    assert len(next_to_label(X, sets, n=10, random_state=0).row) == 10
    assert len(next_to_label(rng.integers(255, size=(40, 3, 8, 8), dtype=np.uint8), sets, n=10).row) == 10
    assert len(set(next_to_label(None, sets, n=10).row)) == 10


def test_without_features_many_answers_leave_the_others_open() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.dirichlet(np.ones(3), size=400)
    sure = np.r_[np.zeros(200), confidence[200:].max(axis=1)]  # the first 200 are labelled
    found = next_to_label(None, np.ones((400, 3), dtype=bool), n=20, confidence=confidence, labelled=np.arange(200))
    assert found.worth.min() > 0.5
    assert not any("like it" in reason for reason in found.reason)  # nothing was compared
    assert sure[found.row].max() < np.median(sure[200:])  # those of which the model is uncertain


def test_a_sample_is_compared_when_rows_are_many() -> None:
    n = 4 * MOST_ROWS
    rng = np.random.default_rng(0)
    X, sets = rng.normal(size=(n, 6)), rng.random((n, 5)) < 0.4
    sets[np.arange(n), rng.integers(5, size=n)] = True
    confidence = sets / sets.sum(axis=1, keepdims=True)
    found = next_to_label(X, sets, n=30, confidence=confidence, labelled=np.arange(100), random_state=0)
    assert len(set(found.row)) == 30
    assert found.row.min() >= 100
    assert found.worth[0] > found.worth[-1] > 1
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    next_to_label(X, sets, n=5)
    after = np.random.get_state()[1]  # noqa: NPY002
    assert np.array_equal(after, state)  # the caller's generator is left as it was


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n": 0}, "n must be a whole number of at least 1; got 0"),
        ({"labelled": [9]}, "labelled must be positions from 0 to 3; got 9"),
        ({"labelled": [True]}, "labelled must be a mask of 4 rows"),
        ({"confidence": np.ones((4, 9))}, r"confidence must have shape \(4, 2\)"),
    ],
)
def test_what_is_wrong_is_said(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        next_to_label(np.zeros((4, 2)), np.ones((4, 2), dtype=bool), **wrong)  # type: ignore[arg-type]


def test_the_shell_chooses_from_a_table_and_from_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    truth = write_table(tmp_path / "rows.csv", 80)
    known = [str(label) if i < 15 else None for i, label in enumerate(truth)]
    pl.read_csv("rows.csv").with_columns(sure=pl.Series(known)).write_csv("rows.csv")

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200"})
        assert done.exit_code == 0, (done.output, done.exception)
        return done.stdout

    shown = run("next", "rows.csv", "--clean", "sure", "--n", "6", "--out", "todo.csv")
    assert "spread over classes and clusters" in shown
    todo = pl.read_csv("todo.csv")
    assert todo.columns == ["id", "worth", "reason"]
    assert todo.height == 6
    assert not set(todo["id"]) & {f"r{i}" for i in range(15)}
    run("fit", "rows.csv", "--clean", "sure", "--epochs", "5", "--out", "model", "-q")
    alone = json.loads(run("next", "model", "--n", "6", "--json"))
    assert [set(row) for row in alone] == [{"id", "worth", "reason"}] * 6
    assert all("uncertain between" in row["reason"] for row in alone)
    compared = json.loads(run("next", "model", "--table", "rows.csv", "--n", "6", "--json"))
    assert {row["id"] for row in compared} != {row["id"] for row in alone}
    assert not {row["id"] for row in compared} & {f"r{i}" for i in range(15)}
    wrong = CliRunner().invoke(app, ["next", "rows.csv", "--table", "rows.csv"])
    assert "--table goes with a model" in str(wrong.exception)
