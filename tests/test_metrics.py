"""Figures of merit against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mogd.metrics import accuracy, calibration_error, covering_rate, disambiguation_accuracy


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
