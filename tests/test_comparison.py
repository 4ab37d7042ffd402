"""What the clean rows prefer: every row judged by a fit that did not know its label; what the shell says of it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_digits

import mogd
from mogd import as_candidates
from mogd.cli import main
from mogd.cli.fit_summary import comparison_rows, covering_warning
from mogd.comparison import Comparison, Judged, compare, join, judge


def rated(n: int = 500, skills: tuple[float, ...] = (0.5, 0.5, 0.5)) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    guess = rng.integers(10, size=(n, len(skills)))
    return X[:n], y[:n], np.where(rng.random(guess.shape) < skills, y[:n, None], guess)


def test_rows_join_with_what_was_said_of_them() -> None:
    _, _, said = rated(40)
    whole = as_candidates(said, form="annotators", classes=np.arange(10))
    again = join(whole[:25], whole[25:])
    assert np.array_equal(again.matrix, whole.matrix)
    for part in ("row", "label", "source", "weight", "sources", "n_rows"):
        assert np.array_equal(getattr(again.evidence, part), getattr(whole.evidence, part)), part
    assert join(as_candidates(said[:, 0]), as_candidates(said[:, 0])).evidence is None


def test_no_row_is_judged_by_a_fit_that_knew_its_label() -> None:
    seen: list[tuple[np.ndarray, int]] = []

    class Spy(mogd.Majority):
        def fit(self, X: Any, y: Any, **given: Any) -> Any:
            seen.append((given["y_val"], len(X)))
            return super().fit(X, y, **given)

    _, y, said = rated(100)
    both = as_candidates(said, form="annotators", classes=np.arange(10))
    numbered = np.arange(30)  # the clean labels are their own row numbers, so that they can be recognised
    names = as_candidates(said % 10, form="annotators", classes=np.arange(30), unseen="keep")
    X = np.zeros((100, 1))  # votes alone
    right = judge(Spy(unseen="keep"), X[30:], names[30:], X[:30], numbered, names[:30], 3, 0)
    assert right.shape == (30,)
    assert [len(known) for known, _ in seen] == [20, 20, 20]
    assert {n for _, n in seen} == {80}  # the held-out rows are partial ones
    assert sorted(np.concatenate([np.setdiff1d(numbered, known) for known, _ in seen])) == numbered.tolist()
    share = judge(mogd.Majority(), X[30:], both[30:], X[:30], y[:30], both[:30], 3, 0).mean()
    counts = both.evidence[:30].totals(10)  # type: ignore[index]
    best = counts == counts.max(axis=1, keepdims=True)
    assert share == pytest.approx(np.mean(best[np.arange(30), y[:30]] / best.sum(axis=1)))


def test_a_simple_one_is_preferred_where_it_is_better_beyond_noise() -> None:
    def judged(name: str, wrong: int) -> Judged:
        return Judged(name, (np.arange(100) >= wrong).astype(float))

    own = judged("mogd", 20)
    for wrong, expected in ((30, "mogd"), (20, "mogd"), (17, "mogd"), (14, "dawid-skene")):  # gains: 3 ± 1.7, 6 ± 2.4
        found = Comparison(own, [judged("majority", 40), judged("dawid-skene", wrong)])
        assert found.preferred.name == expected, wrong
    assert Comparison(None, [judged("majority", 40), judged("dawid-skene", 30)]).preferred.name == "dawid-skene"
    assert Comparison(own, []).preferred is own


def test_features_that_help_add_to_the_votes_and_noise_does_not() -> None:
    X, y, said = rated()
    both = as_candidates(said, form="annotators", classes=np.arange(10))
    deep = mogd.make("cc", epochs=8, random_state=0, scale="standard")
    noise = np.random.default_rng(1).normal(size=X.shape)
    words = {}
    for name, features in {"digits": X, "noise": noise}.items():
        found = compare(deep, "cc", features[120:], both[120:], features[:120], y[:120], both[:120])
        assert [one.name for one in found.simple] == ["majority", "dawid-skene"]
        words[name] = dict(comparison_rows("cc", found))["features"]
        assert found.own is not None
        assert found.best_simple is not None
        assert found.own.beats(found.best_simple) == (name == "digits")
        assert not found.best_simple.beats(found.own)  # what is noise has no weight beside the votes
        assert found.preferred is found.own
    assert re.match(r"they add to the votes: \+\d+\.\d ± \d+\.\d points against", words["digits"])
    assert words["noise"].startswith("they add nothing")


def test_words_follow_the_paired_difference() -> None:
    rng = np.random.default_rng(0)
    poor = Judged("cc", (rng.random(100) < 0.7).astype(float))
    rich = Judged("cc", np.maximum(poor.right, rng.random(100) < 0.5))
    gain, error = rich.gain(poor)
    difference = rich.right - poor.right
    assert gain == pytest.approx(difference.mean())
    assert error == pytest.approx(np.sqrt(difference.var(ddof=1) / 100))
    said = dict(comparison_rows("cc", Comparison(rich, [], poor)))["clean rows"]
    assert said == f"they helped: {100 * gain:+.1f} ± {100 * error:.1f} points against a fit without them"
    assert "no help beyond noise: +0.0" in dict(comparison_rows("cc", Comparison(poor, [], poor)))["clean rows"]


def test_a_low_covering_rate_is_a_warning() -> None:
    assert covering_warning(0.9, 2.0, 10) is None
    assert "only 40% of the predictions lie" in str(covering_warning(0.4, 2.0, 10))
    assert covering_warning(1.0, 3.0, 3) is None  # full sets say nothing


def shell(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["mogd", *arguments])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    X, y, said = rated(300)
    columns: dict[str, Any] = {f"pixel{j}": X[:, j] for j in range(10, 54)}
    columns |= {f"rater{s}": [f"d{label}" for label in said[:, s]] for s in range(3)}
    columns["sure"] = [f"d{label}" if i < 60 else None for i, label in enumerate(y)]
    pl.DataFrame(columns).write_csv(tmp_path / "rows.csv")
    return tmp_path


def test_the_shell_compares_on_the_clean_rows(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    votes = ["--annotators", "rater0,rater1,rater2", "--clean", "sure", "--epochs", "5", "-q"]
    assert shell(monkeypatch, table, "fit", "rows.csv", *votes, "--method", "auto", "--out", "model") == 0
    said = capsys.readouterr().out
    shares = {name: float(share) for share, name in re.findall(r"([\d.]+)% right by ([\w-]+)", said)}
    assert set(shares) == {"majority", "dawid-skene", "mogd"}
    used = re.findall(r"right by ([\w-]+) \(used\)", said)
    assert shares[used[0]] == max(shares.values())
    assert "features" in said
    model = mogd.load(table / "model")
    assert model.classes_.tolist() == [f"d{k}" for k in range(10)]
    judged = model.config_["judged"]
    assert judged["rows"] == 60
    assert {name: round(100 * right / 60, 1) for name, right in judged["right"].items()} == shares
    assert shell(monkeypatch, table, "report", "model", "--out", "model.html") == 0
    assert "was not measured" not in (table / "model.html").read_text(encoding="utf-8")
    capsys.readouterr()
    assert shell(monkeypatch, table, "fit", "rows.csv", *votes, "--out", "other") == 0
    said = capsys.readouterr().out
    assert "mogd (used)" in said
    assert re.search(r"clean rows +(they helped|no help beyond noise): [+-]", said)
    assert re.search(r"exponents +network \d", said)
    assert shell(monkeypatch, table, "fit", "rows.csv", *votes, "--no-compare", "--out", "third") == 0
    said = capsys.readouterr().out
    assert "right by" not in said
    assert "helped" not in said


def test_the_shell_compares_plain_sets_when_asked(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pl.read_csv(table / "rows.csv")
    sets = pl.concat_list("rater0", "rater1", "rater2").list.unique().list.join("|").alias("labels")
    frame.with_columns(sets).drop("rater0", "rater1", "rater2").write_csv(table / "sets.csv")
    plain = ["fit", "sets.csv", "--clean", "sure", "--epochs", "3", "-q"]
    assert shell(monkeypatch, table, *plain, "--out", "model") == 0
    assert "helped" not in capsys.readouterr().out
    assert shell(monkeypatch, table, *plain, "--compare", "--out", "other") == 0
    assert re.search(r"clean rows +(they helped|no help beyond noise): ", capsys.readouterr().out)
    assert shell(monkeypatch, table, "fit", "sets.csv", "--ignore", "sure", "--compare", "--out", "x") == 1
    assert "--compare needs at least 10 clean rows; there are 0" in capsys.readouterr().err
