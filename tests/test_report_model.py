"""The page of a model: figures against a count by hand, hostile labels, a real browser in all its forms."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from browser_tools import CLIPPED, OPEN_ALL, barriers, overheard
from PIL import Image
from playwright.sync_api import Browser
from sklearn.datasets import load_digits
from typer.testing import CliRunner

import mogd
from mogd.cli import app
from mogd.conformal import Calibration, cross_calibrate
from mogd.report.modelfacts import ModelFacts, TableRows
from mogd.report.modelpage import model_page
from mogd.report.modeltable import read_rows, thumbnail

HOSTILE = '<script>alert("x")</script>'
NAMES = ["zero", "one", "two & <b>", "שלוש", HOSTILE]


def facts(**more: Any) -> ModelFacts:
    """Four rows of three labels: settled, open, single, and one that the held-out models see otherwise."""
    known: dict[str, Any] = {
        "title": "MoGD",
        "classes": ["a", "b", "c"],
        "ids": ["r0", "r1", "r2", "r3"],
        "confidence": np.array([[0.9, 0.1, 0], [0.3, 0.3, 0.4], [0, 1, 0], [0, 0.8, 0.2]]),
        "clean_ids": ["k0", "k1"],
        "clean": np.array([0, 1]),
        "calibration": None,
        "held_out": None,
        "history": [],
        "settings": {},
    }
    return ModelFacts(**(known | more))


def test_rows_worth_a_look_without_and_with_held_out_models() -> None:
    assert facts().look.tolist() == [1]
    sure = Calibration(np.tile([0.8, 0.1, 0.1], (99, 1)), np.zeros(99, dtype=int))  # the threshold is 0.8
    held_out = np.array([[0.9, 0.05, 0.05], [0.4, 0.3, 0.3], [0.0, 1.0, 0.0], [0.05, 0.05, 0.9]])
    found = facts(calibration=sure, held_out=held_out)
    assert found.look.tolist() == [3, 1]  # the one resolved otherwise is the more doubtful
    assert found.doubt[3] == pytest.approx(0.9 / 0.95)


def test_baselines_by_hand() -> None:
    votes = {
        "ann": {"k0": "a", "k1": "a", "r0": "a", "r1": "c"},
        "bob": {"k0": "a", "k1": "b", "r0": "b", "r1": "c"},
    }
    found = facts(table=TableRows(votes=votes, truth={"r0": "a", "r1": "a", "r3": "b"}))
    clean = found.on_clean_rows()
    assert (clean["Majority vote"].hits, clean["Majority vote"].n) == (2, 2)  # 1 + ½, rounded
    assert (clean["Most frequent label"].hits, clean["Most frequent label"].n) == (1, 2)
    train = found.on_training_rows()
    assert (train["Resolved by MoGD"].hits, train["Resolved by MoGD"].n) == (2, 3)
    assert train["A guess among the candidates"].hits == round(1 / 2 + 1 / 3 + 1 / 2)
    right, agreed = found.annotators()["ann"]
    assert (right.hits, right.n) == (2, 4)  # k0 and r0
    assert (agreed.hits, agreed.n) == (2, 2)


def test_pairs_and_confusion_by_hand() -> None:
    first = facts().pairs()[0]
    assert first == {"labels": ("a", "b"), "rows": 2, "first": 1, "second": 0, "open": 1}
    before, after = facts().confusion()
    assert before[0].tolist() == [0.5, 0.5, 0.0]
    assert after[1].tolist() == pytest.approx([0, 0.9, 0.1])  # rows 2 and 3


def test_a_better_baseline_is_named_first() -> None:
    wrong = Calibration(np.tile([0.8, 0.1, 0.1], (10, 1)), np.array([0] * 4 + [1] * 6))
    votes = {"ann": {"k0": "a", "k1": "b"}}
    page = model_page(facts(calibration=wrong, table=TableRows(votes=votes))).html
    assert "<strong>40.0 %</strong>" in page
    assert "; less than majority vote (100.0 %), about as good as most frequent label (50.0 %)." in page


def test_without_anything_measured_the_page_says_how_to_measure() -> None:
    page = model_page(facts()).html
    assert "was not measured: fit it with <code>--calibrate</code>" in page


def test_an_estimate_of_the_comparison_is_shown_where_nothing_was_measured() -> None:
    methods = [{"label": "MoGD, mlp", "estimated_accuracy": 0.4704}, {"label": "SURE", "estimated_accuracy": None}]
    page = model_page(facts(settings={"choice": {"best": "MoGD, mlp", "methods": methods}})).html
    assert "for the best, MoGD, mlp, the estimated accuracy on new rows was 47.0" in page
    assert "was not measured" in page


def test_a_loss_schedule_is_named_where_the_loss_jumps() -> None:
    history = [{"epoch": i, "loss": 1.0 / i} for i in (1, 2, 3)]
    schedule = {"name": "loss-schedule", "warmup_fraction": 0.2, "finish_fraction": 0.25}
    page = model_page(facts(history=history, settings={"callbacks": [schedule]})).html
    assert "in the first 20\xa0% and in the last 25\xa0% of the epochs (loss-schedule)" in page
    assert "loss-schedule" not in model_page(facts(history=history)).html


def test_what_the_fit_compared_on_the_clean_rows_is_the_answer() -> None:
    found = facts(settings={"judged": {"rows": 50, "right": {"majority": 34.5, "dawid-skene": 35.0, "mogd": 45.0}}})
    shares = {name: (share.hits, share.n) for name, share in found.judged().items()}
    assert next(iter(shares.items())) == ("MoGD", (45, 50))
    assert sorted(shares.values()) == [(34, 50), (35, 50), (45, 50)]
    page = model_page(found).html
    assert "<strong>90.0 %</strong>" in page
    assert "on 50 clean rows, each judged by a fit that did not know its label); more than " in page
    assert "was not measured" not in page
    assert facts(title="CC", settings=found.settings).judged() == {}


def test_only_the_models_own_bar_stands_out() -> None:
    votes = {"ann": {"k0": "a", "k1": "b"}}
    without = model_page(facts(table=TableRows(votes=votes))).html
    assert "Majority vote" in without
    assert 'class="first"' not in without
    measured = Calibration(np.tile([0.8, 0.1, 0.1], (10, 1)), np.zeros(10, dtype=int))
    bars = model_page(facts(calibration=measured, table=TableRows(votes=votes))).html
    assert bars.count('class="first">MoGD<') == 1
    assert 'class="first">Majority vote' not in bars


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five digits as pictures with hostile and right-to-left names and texts; a calibrated model."""
    place = tmp_path_factory.mktemp("model-page")
    X, y = load_digits(n_class=5, return_X_y=True)
    rng = np.random.default_rng(0)
    X, y = X[:500] + rng.normal(0, 4, (500, 64)), y[:500]
    names = np.array(NAMES)
    (place / "pictures").mkdir()
    for i, row in enumerate(X):
        Image.fromarray(np.clip(row.reshape(8, 8) * 16, 0, 255).astype(np.uint8)).save(place / f"pictures/{i}.png")
    said = [np.where(rng.random(500) < 0.35, rng.integers(5, size=500), y) for _ in range(3)]
    table = {
        "id": [f"row-{i}" for i in range(500)],
        "file": [f"{i}.png" for i in range(500)],
        "text": [f"{HOSTILE} שורה {i} 😀 " + "a long sentence " * 60 for i in range(500)],
        **{f"p{j}": X[:, j] for j in range(64)},
        **{name: names[labels] for name, labels in zip(("ann", "bob", "cem"), said, strict=True)},
        "sure": [str(names[k]) if i < 80 else None for i, k in enumerate(y)],
        "truth": names[y],
    }
    pl.DataFrame(table).write_csv(place / "rows.csv")
    options = ["--annotators", "ann,bob,cem", "--clean", "sure", "--ignore", "text,truth,file", "--epochs", "10"]
    fitting = ["fit", str(place / "rows.csv"), *options, "--quiet", "--calibrate", "--out", str(place / "model")]
    assert CliRunner().invoke(app, fitting, catch_exceptions=False).exit_code == 0
    return place


@pytest.fixture(scope="module")
def address(folder: Path) -> str:
    shown = ["--table", folder / "rows.csv", "--images", folder / "pictures", "--annotators", "ann,bob,cem"]
    asked = ["report", folder / "model", *shown, "--truth", "truth", "--out", folder / "model.html"]
    done = CliRunner().invoke(app, [str(a) for a in asked], catch_exceptions=False)
    assert "worth a look" in done.output
    return (folder / "model.html").as_uri()


def test_the_page_of_a_saved_model_has_its_figures(folder: Path, address: str) -> None:
    page = (folder / "model.html").read_text()
    calibration = mogd.load(folder / "model").calibration_
    assert f"<strong>{100 * calibration.correct.mean():.1f} %</strong>" in page
    truth = dict(zip(*pl.read_csv(folder / "rows.csv").select("id", "truth"), strict=True))
    out = folder / "resolved.csv"
    CliRunner().invoke(app, ["disambiguate", str(folder / "model"), "--out", str(out)], catch_exceptions=False)
    rows = pl.read_csv(out).filter(~pl.col("clean"))
    right = np.mean([truth[name] == label for name, label in zip(rows["id"], rows["label"], strict=True)])
    found = ModelFacts.of_folder(folder / "model", TableRows(truth=truth)).on_training_rows()["Resolved by MoGD"]
    assert found.value == pytest.approx(right)
    assert f"{100 * right:.1f} %" in page
    assert page.count("<img") == min(24, int(rows["look"].sum()))
    assert "<script>alert" not in page
    assert "http" not in page.replace("http-equiv", "")


def test_in_a_notebook(folder: Path) -> None:
    X, y = load_digits(return_X_y=True)
    candidates = np.eye(10, dtype=bool)[y] | (np.random.default_rng(0).random((len(y), 10)) < 0.2)
    model = mogd.PartialLabelClassifier("cc", epochs=3, scale="standard", random_state=0)
    model.fit(X[100:600], candidates[100:600], X_val=X[:100], y_val=y[:100])
    assert "was not measured" in model.report().html
    cross_calibrate(model, X[100:600], candidates[100:600], X[:100], y[:100], n_splits=3)
    page = model.report()
    assert f"<strong>{100 * model.calibration_.correct.mean():.1f} %</strong>" in page.html
    assert page._repr_html_().startswith("<iframe srcdoc=")
    assert "<section" not in page._repr_html_()  # all of it escaped
    assert page.save(folder / "notebook.html").read_text() == page.html


def test_pictures_outside_of_the_folder_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"lies outside of .*pictures"):
        thumbnail(folder / "pictures", "../rows.csv")
    whole = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(whole, "PNG")
    (folder / "pictures" / "cut.png").write_bytes(whole.getvalue()[:60])
    with pytest.raises(ValueError, match=r"'cut\.png' in .*pictures is damaged: "):
        thumbnail(folder / "pictures", "cut.png")


def test_the_longest_text_is_found(folder: Path) -> None:
    rows = read_rows(folder / "rows.csv", id="id", annotators=["ann"], truth="truth")
    assert rows.text["row-3"].startswith(HOSTILE)
    assert set(rows.votes) == {"ann"}


def test_an_export_shows_the_texts_of_its_tasks(tmp_path: Path) -> None:
    text = "where is my parcel, it should have been here on Monday"
    tasks = [{"id": i, "data": {"text": f"{text} {i}"}, "annotations": []} for i in range(3)]
    (tmp_path / "tasks.json").write_text(json.dumps(tasks), encoding="utf-8")
    assert read_rows(tmp_path / "tasks.json").text == {str(i): f"{text} {i}" for i in range(3)}


def test_options_of_a_table_need_one(folder: Path) -> None:
    with pytest.raises(ValueError, match="belong to a table: name it by --table"):
        CliRunner().invoke(app, ["report", str(folder / "model"), "--truth", "truth"], catch_exceptions=False)
    with pytest.raises(ValueError, match="the page of a model is HTML alone"):
        CliRunner().invoke(app, ["report", str(folder / "model"), "--format", "csv"], catch_exceptions=False)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_in_a_browser(browser: Browser, address: str, width: int, scheme: Any) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    said, asked = overheard(page)
    page.goto(address)
    page.evaluate(OPEN_ALL)
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [address]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CLIPPED) == []
    assert page.get_by_text("of the labels are right").bounding_box()["y"] < 300  # the answer is on the first screen
    assert barriers(page) == []


def test_settings_are_shown(folder: Path) -> None:
    described = json.loads((folder / "model" / "model.json").read_text())
    page = (folder / "model.html").read_text() if (folder / "model.html").exists() else ""
    page = page or model_page(ModelFacts.of_folder(folder / "model")).html
    assert f">{described['params']['epochs']}<" in page
    nested = model_page(facts(settings={"method": {"name": "mogd"}, "callbacks": [{"name": "early-stopping"}]})).html
    assert "method.name" in nested
    assert "callbacks.0.name" in nested
