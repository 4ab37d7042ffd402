"""`mogd evaluate`, `calibrate`, and what a calibrated model adds to `predict` and `disambiguate`."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import mogd
from mogd.cli import app, main
from mogd.cli.guarantee import joined
from mogd.conformal import tempered
from mogd.datasets.corrupt import binomial
from mogd.modelfolder import read_folder, write_folder
from mogd.saving import load_encoder, save_calibration


def run(folder: Path, *arguments: object) -> str:
    done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits 0 to 4 with names, sets, 80 clean rows; 300 further rows with their truth; a calibrated model."""
    folder = tmp_path_factory.mktemp("evaluate")
    X, y = load_digits(n_class=5, return_X_y=True)
    rng = np.random.default_rng(0)
    X = X + rng.normal(0, 5, X.shape)  # or there is nothing to be unsure of
    order = rng.permutation(len(X))
    X, y = X[order], y[order]
    names = np.array(["zero", "one", "two", "three", "four"])
    sets = ["|".join(names[row > 0]) for row in binomial(y, 5, 0.4, rng)]
    columns = {f"p{j}": X[:, j] for j in range(64)}
    sure = [str(names[k]) if i < 80 else None for i, k in enumerate(y)]
    frame = pl.DataFrame({**columns, "labels": sets, "sure": sure, "truth": names[y]})
    frame[:600].drop("truth").write_csv(folder / "train.csv")
    frame[600:].drop("labels", "sure").write_csv(folder / "test.csv")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        arguments = ("--clean", "sure", "--method", "cc", "--epochs", 8, "--quiet", "--calibrate", "--out", "model")
        run(folder, "fit", "train.csv", *arguments)
        plain = ("--clean", "sure", "--method", "cc", "--epochs", 8, "--quiet", "--out", "plain")
        run(folder, "fit", "train.csv", *plain)
    return folder


@pytest.fixture(autouse=True)
def here(fitted: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(fitted)
    return fitted


def predicted(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    frame = pl.read_csv(folder / "test.csv")
    model = mogd.load(folder / name)
    return model.predict(load_encoder(folder / name).transform(frame)), frame["truth"].to_numpy()


def test_evaluate_agrees_with_a_count_by_hand(here: Path) -> None:
    found = json.loads(run(here, "evaluate", "plain", "test.csv", "--truth", "truth", "--json"))
    guess, truth = predicted(here, "plain")
    assert found["accuracy"]["value"] == pytest.approx((guess == truth).mean())
    low, high = found["accuracy"]["interval"]
    assert low < found["accuracy"]["value"] < high
    for row in found["per_class"]:
        own = truth == row["label"]
        assert row["recall"] == pytest.approx((guess[own] == truth[own]).mean())
        assert row["precision"] == pytest.approx((truth[guess == row["label"]] == row["label"]).mean())
    assert np.sum(found["confusion"]) == len(truth)
    assert sum(b["rows"] for b in found["reliability"]) == len(truth)
    assert found["prediction_sets"] is None


def test_evaluate_for_people(here: Path) -> None:
    text = run(here, "evaluate", "model", "test.csv", "--truth", "truth")
    assert "accuracy" in text
    assert "90 % sets" in text
    assert "true \\ predicted" in text


def test_labels_that_the_model_does_not_know_are_wrong_and_empty_ones_left_out(here: Path) -> None:
    frame = pl.read_csv("test.csv")
    labels = ["nine", None, *frame["truth"].to_list()[2:]]
    frame.with_columns(truth=pl.Series(labels)).write_csv("odd.csv")
    found = json.loads(run(here, "evaluate", "plain", "odd.csv", "--truth", "truth", "--json"))
    assert found["rows_of_unknown_label"] == 1
    assert found["accuracy"]["rows"] == frame.height - 1
    frame.with_columns(truth=pl.lit("nine")).write_csv("odd.csv")
    with pytest.raises(ValueError, match="no row has a true label that the model knows; it knows four, one"):
        run(here, "evaluate", "plain", "odd.csv", "--truth", "truth")


def test_unknown_labels_and_empty_columns_are_told_to_people(here: Path) -> None:
    frame = pl.read_csv("test.csv")
    frame.with_columns(truth=pl.Series(["nine", "nine", *frame["truth"].to_list()[2:]])).write_csv("odd.csv")
    assert "2 rows, counted as wrong" in run(here, "evaluate", "plain", "odd.csv", "--truth", "truth")
    frame.with_columns(truth=pl.lit(None, dtype=pl.String)).write_csv("bare.csv")
    before = mogd.load("model").calibration_.temperature
    with pytest.raises(ValueError, match=r"column 'truth' of bare\.csv is empty: it must hold the true labels"):
        run(here, "calibrate", "model", "bare.csv", "--truth", "truth")
    assert mogd.load("model").calibration_.temperature == before


def test_of_many_classes_the_most_frequent_mistakes_are_listed(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mogd.cli.evaluate.MOST_CLASSES", 4)
    text = run(here, "evaluate", "plain", "test.csv", "--truth", "truth")
    assert "true \\ predicted" not in text
    guess, truth = predicted(here, "plain")
    wrong = [(true, said) for true, said in zip(truth, guess, strict=True) if true != said]
    lines = [line.split() for line in text.partition("most frequent mistakes")[2].splitlines()]
    listed = {(line[0], line[1]): int(line[2]) for line in lines if len(line) == 3 and line[2].isdigit()}
    assert listed == dict(sorted(Counter(wrong).items(), key=lambda pair: -pair[1])[: len(listed)])
    assert len(listed) == min(10, len(set(wrong)))


def test_sets_hold_the_truth_and_the_label_comes_first(here: Path) -> None:
    figures = json.loads(run(here, "predict", "model", "test.csv", "--coverage", 0.9, "--out", "sets.csv", "--json"))
    rows = pl.read_csv("sets.csv")
    sets = [row.split("|") if row else [] for row in rows["set"]]
    _, truth = predicted(here, "model")
    covered = np.mean([label in own for label, own in zip(truth, sets, strict=True)])
    assert 0.82 < covered < 0.98  # 80 clean rows: a standard deviation of 3 points
    assert all(own[0] == label for own, label in zip(sets, rows["label"], strict=True) if own)
    assert rows["set_size"].to_list() == [len(own) for own in sets]
    assert figures["labels_a_set"] == pytest.approx(np.mean([len(own) for own in sets]))


def test_risk_leaves_labels_empty(here: Path) -> None:
    text = run(here, "predict", "model", "test.csv", "--risk", 0.15, "--out", "risk.csv")
    rows = pl.read_csv("risk.csv")
    _, truth = predicted(here, "model")
    given = rows["label"].is_not_null().to_numpy()
    assert f"{(~given).sum()} left without a label" in text
    assert 0.2 < given.mean() < 1
    assert (rows["label"].to_numpy()[given] != truth[given]).mean() < 0.2
    assert rows["confidence"].to_numpy()[given].mean() > 0.2 + rows["confidence"].to_numpy()[~given].mean()


def test_the_confidence_is_at_the_fitted_temperature(here: Path) -> None:
    shutil.copytree("model", "hot", dirs_exist_ok=True)
    model = mogd.load("hot")
    save_calibration("hot", replace(model.calibration_, temperature=2.0))
    run(here, "predict", "hot", "test.csv", "--out", "hot.csv")
    raw = model.predict_proba(load_encoder("hot").transform(pl.read_csv("test.csv")))
    assert np.allclose(pl.read_csv("hot.csv")["confidence"], tempered(raw, 2.0).max(axis=1))
    found = [json.loads(run(here, "evaluate", m, "test.csv", "--truth", "truth", "--json")) for m in ("model", "hot")]
    assert found[0]["accuracy"] == found[1]["accuracy"]
    assert found[0]["log_loss"] != found[1]["log_loss"]


def test_a_model_that_is_not_calibrated_says_how_to(here: Path) -> None:
    for option in ("--coverage", "--risk"):
        with pytest.raises(ValueError, match=rf"{option} needs a calibrated model: fit it with --calibrate"):
            run(here, "predict", "plain", "test.csv", option, 0.1, "--out", "x.csv")


def test_calibrate_changes_nothing_but_the_calibration(here: Path) -> None:
    frame = pl.read_csv("test.csv")
    frame[:150].write_csv("held-out.csv")
    run(here, "fit", "train.csv", "--clean", "sure", "--method", "cc", "--epochs", 2, "--quiet", "--out", "fresh")
    before, _ = predicted(here, "fresh")
    text = run(here, "calibrate", "fresh", "held-out.csv", "--truth", "truth")
    assert "calibrated on 150 rows" in text
    figures = json.loads(run(here, "calibrate", "fresh", "held-out.csv", "--truth", "truth", "--json"))
    temperature = mogd.load("fresh").calibration_.temperature
    assert figures == {"rows": 150, "temperature": temperature, "model": "fresh"}
    assert len(mogd.load("fresh").calibration_) == 150
    assert np.array_equal(predicted(here, "fresh")[0], before)
    run(here, "predict", "fresh", "test.csv", "--coverage", 0.9, "--out", "fresh.csv")


def test_rows_worth_a_look_are_worse_than_the_others(here: Path) -> None:
    figures = json.loads(run(here, "disambiguate", "model", "--out", "resolved.csv", "--json"))
    rows = pl.read_csv("resolved.csv")
    assert figures == {"rows": 600, "look": int(rows["look"].sum()), "out": "resolved.csv"}
    X, y = load_digits(n_class=5, return_X_y=True)
    rng = np.random.default_rng(0)
    rng.normal(0, 5, X.shape)
    truth = np.array(["zero", "one", "two", "three", "four"])[y[rng.permutation(len(X))][:600]]
    wrong, look = rows["label"].to_numpy() != truth, rows["look"].to_numpy()
    assert 10 < look.sum() < 400
    assert not look[rows["clean"].to_numpy()].any()
    assert wrong[look].mean() > 3 * wrong[~look].mean()


def test_fit_prints_its_figures_as_json(here: Path) -> None:
    arguments = ("--clean", "sure", "--method", "cc", "--epochs", 2, "--out", "as-json", "--json")
    found = json.loads(run(here, "fit", "train.csv", *arguments))
    assert (found["n_rows"], found["n_clean"], found["n_classes"]) == (520, 80, 5)
    assert 0 < found["covering_rate"] <= 1
    assert found["model"] == "as-json"


def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["mogd", "--version"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert capsys.readouterr().out == f"mogd {mogd.__version__}\n"


def test_completion_is_to_be_had() -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    assert "--install-completion" in text


def test_bench_prints_its_figures_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = 'title = "Small"\nfolds = 2\nn_clean = 20\nmethods = ["plknn"]\n[[panel]]\nname = "p"\n'
    Path("small.toml").write_text(recipe + 'datasets = ["lost"]\n[scale.laptop]\n')
    done = CliRunner().invoke(app, ["bench", "small.toml", "--json", "--dry-run"], catch_exceptions=False)
    assert json.loads(done.stdout) == []
    assert "Small" in done.stderr


def test_methods_fit_eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(Path(), "methods")
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    for name in mogd.algorithms.ALGORITHMS:
        assert any(line.split()[:1] in ([name], [f"{name}*"]) for line in text.splitlines()), name


def test_calibrating_leaves_the_checkpoint_to_the_fit_on_all_rows(here: Path) -> None:
    fit = ("fit", "train.csv", "--clean", "sure", "--method", "cc", "--epochs", 8, "--quiet", "--calibrate")
    found = json.loads(run(here, *fit, "--checkpoint", "state", "--out", "kept", "--json"))
    assert found["n_clean"] == 80
    with_it, without = mogd.load(here / "kept"), mogd.load(here / "model")
    np.testing.assert_array_equal(with_it.confidence_, without.confidence_)
    np.testing.assert_array_equal(with_it.calibration_.held_out, without.calibration_.held_out)
    run(here, *fit, "--checkpoint", "state", "--resume", "--out", "again")
    np.testing.assert_array_equal(mogd.load(here / "again").confidence_, without.confidence_)


def test_calibrate_without_clean_rows_is_refused_before_the_fit(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["mogd", "fit", "train.csv", "--ignore", "sure", "--method", "cc", "--calibrate", "--out", "none"]
    monkeypatch.setattr(sys, "argv", arguments)
    monkeypatch.setattr("mogd.classifier.PartialLabelClassifier.fit", lambda *_, **__: pytest.fail("it was fitted"))
    with pytest.raises(SystemExit):
        main()
    assert "--calibrate needs clean rows" in capsys.readouterr().err


def test_rows_on_the_standard_output_leave_it_to_them(here: Path) -> None:
    done = CliRunner().invoke(app, ["predict", "model", "test.csv", "--out", "-", "--json"], catch_exceptions=False)
    rows = done.stdout.splitlines()
    assert rows[0].startswith("row,label,confidence")
    assert len(rows) == 1 + pl.read_csv("test.csv").height
    assert json.loads(done.stderr)["out"] == "-"


@pytest.mark.parametrize("change", [{"held_out": [[1.0]], "y": [0]}, {"temperature": float("nan")}, {"y": [7]}])
def test_a_calibration_that_does_not_fit_the_model_is_refused(here: Path, change: dict[str, object]) -> None:
    described, files = read_folder(here / "model")
    described["calibration"] |= change
    write_folder(here / "strange", described, files, overwrite=True)
    with pytest.raises(ValueError, match="calibrat"):
        mogd.load(here / "strange")


def test_methods_as_json() -> None:
    rows = json.loads(run(Path(), "methods", "--json"))
    assert [row["name"] for row in rows] == list(mogd.algorithms.ALGORITHMS)
    assert {row["kind"] for row in rows} == {"deep", "classical"}


def test_sets_of_labels_with_a_bar_are_json() -> None:
    chosen, proba = np.array([[True, True], [False, True]]), np.array([[0.2, 0.8], [0.4, 0.6]])
    assert joined(chosen, proba, np.array(["a", "b"])) == ["b|a", "b"]
    assert [json.loads(text) for text in joined(chosen, proba, np.array(["a|x", "ö"]))] == [["ö", "a|x"], ["ö"]]
