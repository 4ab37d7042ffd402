"""Figures of merit against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mogd.metrics import (
    accuracy,
    calibration_error,
    confusion_counts,
    covering_rate,
    disambiguation_accuracy,
    log_loss,
    reliability,
    wilson_interval,
)


def test_accuracy() -> None:
    assert accuracy(np.array(["a", "b", "c"]), np.array(["a", "c", "c"])) == pytest.approx(2 / 3)


def test_disambiguation_shares_ties() -> None:
    confidence = np.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.1, 0.0, 0.9]])
    assert disambiguation_accuracy(np.array([0, 1, 0]), confidence) == pytest.approx((0.5 + 1 + 0) / 3)


def test_covering_rate() -> None:
    candidates = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 1]])
    assert covering_rate(candidates, np.array([1, 0, 2])) == pytest.approx(2 / 3)


def test_calibration_error_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.92, 0.08], [0.4, 0.6], [0.35, 0.65]])
    # bins of width 0.1: [0.9, 1) has mean 0.91 and 1 of 2 right; [0.6, 0.7) has mean 0.625 and 2 of 2 right
    expected = 0.5 * abs(0.91 - 0.5) + 0.5 * abs(0.625 - 1.0)
    assert calibration_error(np.array([0, 1, 1, 1]), probabilities, n_bins=10) == pytest.approx(expected)


def test_wilson_interval_by_hand() -> None:
    """8 of 10 at 95 %: (0.8 + 0.192 ± 1.96 · sqrt(0.016 + 0.0096)) / 1.384, as in the usual tables 0.490 to 0.943."""
    low, high = wilson_interval(8, 10)
    assert low == pytest.approx(0.4902, abs=1e-4)
    assert high == pytest.approx(0.9433, abs=1e-4)
    assert wilson_interval(0, 5)[0] == 0.0
    assert wilson_interval(5, 5)[1] == 1.0
    assert wilson_interval(0, 0) == (0.0, 1.0)


def test_confusion_counts_by_hand() -> None:
    counts = confusion_counts(np.array([0, 0, 1, 2]), np.array([0, 2, 1, 1]), 3)
    assert counts.tolist() == [[1, 0, 1], [0, 1, 0], [0, 1, 0]]


def test_reliability_and_log_loss_by_hand() -> None:
    probabilities = np.array([[0.9, 0.1], [0.92, 0.08], [0.4, 0.6]])
    low, high = reliability(np.array([0, 1, 1]), probabilities)
    assert low == {"rows": 1, "confidence": pytest.approx(0.6), "accuracy": 1.0}
    assert high == {"rows": 2, "confidence": pytest.approx(0.91), "accuracy": 0.5}
    assert log_loss(np.array([0, 1, 1]), probabilities) == pytest.approx(-np.log([0.9, 0.08, 0.6]).mean())
