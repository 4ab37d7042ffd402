"""Prediction sets, abstention and temperature: what they promise, counted on draws whose truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import mogd
from mogd.conformal import (
    Calibration,
    calibrate,
    cross_calibrate,
    fit_temperature,
    tempered,
    unsettled,
)
from mogd.datasets.corrupt import binomial
from mogd.metrics import log_loss
from mogd.saving import load_training_rows, save_calibration


def draws(n: int, rng: np.random.Generator, sharpness: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of a model that is wrong about its own certainty, and the truth; n rows of four classes."""
    logits = rng.normal(0, 1.5, (n, 4))
    true = tempered(np.exp(logits), 1.0)
    y = (true.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return tempered(np.exp(logits), 1 / sharpness), y


@pytest.mark.parametrize("m", [20, 50, 99])
@pytest.mark.parametrize("coverage", [0.8, 0.9])
def test_sets_cover_as_often_as_asked_whatever_the_model(m: int, coverage: float) -> None:
    """Over many calibration sets the coverage lies between what is asked and 1/(M+1) above it."""
    rng = np.random.default_rng(m)
    seen = []
    for _ in range(400):
        found = Calibration.of(*draws(m, rng))
        proba, y = draws(200, rng)
        seen.append(found.sets(proba, coverage)[np.arange(200), y].mean())
    error = 3 * np.std(seen) / np.sqrt(len(seen))
    assert coverage - error <= np.mean(seen) <= coverage + 1 / (m + 1) + error


def test_the_threshold_is_the_order_statistic() -> None:
    p = np.linspace(0.05, 0.95, 19)  # (19 + 1) · 0.1 = 2: the second smallest
    found = Calibration(np.stack([p, 1 - p], axis=1), np.zeros(19, dtype=int))
    assert found.threshold(0.9) == pytest.approx(p[1])
    assert found.threshold(0.96) == 0.0  # 19 rows cannot vouch for that: every label is in
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
        found.threshold(90)


@pytest.mark.parametrize("risk", [0.1, 0.2])
@pytest.mark.parametrize("m", [40, 150])
def test_accepted_rows_err_no_more_often_than_asked(risk: float, m: int) -> None:
    """The share of wrong labels among the accepted rows, on average over calibration sets and tables."""
    rng = np.random.default_rng(0)
    shares, accepted = [], []
    for _ in range(600):
        found = Calibration.of(*draws(m, rng))
        proba, y = draws(60, rng)
        taken = found.accepts(proba, risk)
        wrong = proba.argmax(axis=1) != y
        shares.append((wrong & taken).sum() / max(1, taken.sum()))
        accepted.append(taken.mean())
    assert np.mean(shares) <= risk + 3 * np.std(shares) / np.sqrt(len(shares))
    proba, y = draws(50000, rng)
    right = (proba.argmax(axis=1) == y)[np.argsort(-proba.max(axis=1))]
    errors = np.cumsum(~right) / np.arange(1, len(y) + 1)
    possible = np.flatnonzero(errors <= risk)[-1] / len(y)  # what could be accepted if all were known
    assert np.mean(accepted) > (0.6 if m > 100 else 0.25) * possible


def test_acceptance_by_hand() -> None:
    """Nine clean rows, one wrong at 0.7: surer rows have p = 1/10, others 2/10."""
    top = np.array([0.51, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9])
    found = Calibration(np.stack([top, 1 - top], axis=1), (top == 0.7).astype(int))
    proba = np.array([[0.95, 0.05], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
    assert found.accepts(proba, 0.2).tolist() == [True, True, True, True]  # the fourth has 0.2 · 4/4
    assert found.accepts(proba, 0.15).tolist() == [False] * 4  # 0.1 > 0.15 · 2/4
    assert found.accepts(proba[:2], 0.15).tolist() == [True, True]


def test_too_few_rows_for_a_risk_are_refused_with_the_risk_that_they_allow() -> None:
    found = Calibration.of(*draws(15, np.random.default_rng(0)))
    with pytest.raises(ValueError, match=r"at least 19 clean rows .* there are 15: ask for a risk of 0.062 or more"):
        found.accepts(np.eye(4), 0.05)


def test_where_nothing_may_be_accepted_nothing_is() -> None:
    wrong = Calibration(np.tile([0.9, 0.1, 0.0, 0.0], (60, 1)), np.ones(60, dtype=int))
    assert not wrong.accepts(np.full((5, 4), 0.25), 0.05).any()


def test_the_temperature_is_found_again_and_lowers_the_loss() -> None:
    proba, y = draws(4000, np.random.default_rng(1), sharpness=3.0)
    assert fit_temperature(proba, y) == pytest.approx(3.0, rel=0.08)
    better = Calibration.of(proba, y).probabilities(proba)
    assert log_loss(y, better) < log_loss(y, proba)
    assert np.array_equal(better.argmax(axis=1), proba.argmax(axis=1))
    right, labels = draws(100, np.random.default_rng(2), sharpness=1.0)
    assert fit_temperature(right, labels) == 1.0  # nothing to mend
    certain = tempered(np.array([[1.0, 0.0, 0.0]]), 2.0)
    assert np.isfinite(certain).all()
    assert certain.sum() == pytest.approx(1.0)


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[:700]
    return X[order], y[order], binomial(y[order], 10, 0.3, np.random.default_rng(1))


def model() -> mogd.PartialLabelClassifier:
    return mogd.PartialLabelClassifier("cc", epochs=8, scale="standard", random_state=0)


def test_calibration_is_saved_and_loaded(digits, tmp_path: Path) -> None:
    X, y, candidates = digits
    fitted = model().fit(X[200:], candidates[200:])
    mogd.save(fitted, tmp_path / "model")
    assert not hasattr(mogd.load(tmp_path / "model"), "calibration_")
    found = calibrate(fitted, X[:100], y[:100])
    save_calibration(tmp_path / "model", found)
    mogd.save(fitted, tmp_path / "again")
    for name in ("model", "again"):
        loaded = mogd.load(tmp_path / name)
        proba = loaded.predict_proba(X[100:200])
        assert np.array_equal(loaded.calibration_.sets(proba, 0.9), found.sets(proba, 0.9))
        assert loaded.calibration_.temperature == found.temperature
        assert np.array_equal(loaded.disambiguate().label, fitted.disambiguate().label)
    assert load_training_rows(tmp_path / "model").held_out is None


def test_cross_calibration_holds_every_row_out(digits, tmp_path: Path) -> None:
    X, y, candidates = digits
    fitted = model().fit(X[200:], candidates[200:], X_val=X[:60], y_val=y[:60])
    before = fitted.predict_proba(X[60:200])
    found = cross_calibrate(fitted, X[200:], candidates[200:], X[:60], y[:60], n_splits=3)
    assert (len(found), found.crossed) == (60, True)
    assert fitted.held_out_.shape == (500, 10)
    assert np.array_equal(fitted.predict_proba(X[60:200]), before)  # the model itself is left as it was
    # rows that the model trained on look better than rows that were held out
    seen = log_loss(y[:60], fitted.predict_proba(X[:60]))
    assert log_loss(y[:60], found.held_out) > seen
    mogd.save(fitted, tmp_path / "model")
    kept = load_training_rows(tmp_path / "model")
    assert np.array_equal(kept.held_out, fitted.held_out_)
    assert np.array_equal(kept.confidence, fitted.confidence_)


def test_a_calibration_needs_rows() -> None:
    with pytest.raises(ValueError, match="there are no clean rows to calibrate on: hold some out of training"):
        mogd.conformal.Calibration.of(np.empty((0, 3)), np.empty(0))


def test_a_row_with_one_candidate_is_settled() -> None:
    sure = Calibration(np.tile([0.8, 0.1, 0.1], (99, 1)), np.zeros(99, dtype=int))  # the threshold is 0.8
    held_out = np.array([[0.1, 0.8, 0.1], [0.1, 0.8, 0.1], [0.9, 0.1, 0.0]])
    confidence = np.array([[1.0, 0.0, 0.0], [0.7, 0.3, 0.0], [0.7, 0.3, 0.0]])
    assert unsettled(held_out, confidence, sure).tolist() == [False, True, False]
