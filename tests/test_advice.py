"""What a fit says of its clean set."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mogd import PartialLabelClassifier
from mogd.advice import CleanSetAdvice, clean_set_advice


def test_curve_is_that_of_a_noisy_mean() -> None:
    signal, noise = 0.3, 12.0
    advice = CleanSetAdvice(20, signal / (signal + noise / 20))
    for m in (1, 20, 75, 400):
        assert advice.expected(m) == pytest.approx(signal / (signal + noise / m))
    assert advice.needed() == round(noise / signal)
    assert advice.expected(advice.needed()) == pytest.approx(0.5, abs=0.01)
    assert list(advice.curve()) == [20, 40, 80, 160, 320]


def test_words() -> None:
    assert str(CleanSetAdvice(100, 0.6)) == "taken: the halves of the 100 clean rows agreed to 60% at best"
    few = str(CleanSetAdvice(10, 0.05))
    assert "too few for it" in few
    assert "about 190 rows" in few
    assert "label more rows, 50 to begin with" in str(CleanSetAdvice(5, 0.0))
    assert clean_set_advice([{"loss": 1.0}], 10) is None


def test_a_classifier_gives_advice() -> None:
    X, y = load_digits(return_X_y=True)
    candidates = np.random.default_rng(0).random((len(y), 10)) < 0.5
    candidates[np.arange(len(y)), y] = True
    model = PartialLabelClassifier(scale="standard", epochs=5, random_state=0)
    many = model.fit(X[100:], candidates[100:], X_val=X[:100], y_val=y[:100]).clean_set_advice()
    assert many is not None
    assert many.n_clean == 100
    assert many.enough
    one = model.fit(X[100:], candidates[100:], X_val=X[:1], y_val=y[:1]).clean_set_advice()
    assert one is not None
    assert not one.enough
    assert PartialLabelClassifier("pce", epochs=1).fit(X, y).clean_set_advice() is None


def test_without_agreement_no_number_of_rows_is_expected_to_help() -> None:
    silent = CleanSetAdvice(n_clean=50, shrinkage=0.0)
    assert silent.expected(1000) == 0
    assert silent.needed() is None
    assert not silent.enough
    assert CleanSetAdvice(n_clean=50, shrinkage=0.5).expected(0) == 0
