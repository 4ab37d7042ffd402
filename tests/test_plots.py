"""Plots: they show the model's own figures, on the axes that were given."""

from __future__ import annotations

import copy
import sys
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from sklearn.datasets import load_digits

import mogd
from mogd import plots
from mogd.metrics import accuracy

matplotlib.use("agg")


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    return load_digits(return_X_y=True)


@pytest.fixture(scope="module")
def model(data: tuple[np.ndarray, np.ndarray]) -> Any:
    X, y = data
    sets = np.eye(10, dtype=bool)[y] | (np.random.default_rng(0).random((len(y), 10)) < 0.3)
    fitted = mogd.make("mogd", epochs=5, scale="standard", random_state=0)
    return fitted.fit(X[100:600], sets[100:600], X_val=X[:100], y_val=y[:100])


def test_confidence_counts_every_row(model: Any) -> None:
    ax = plots.confidence(model)
    heights = [bar.get_height() for bar in ax.patches]
    assert sum(heights) == 500
    assert heights[-1] == np.sum(model.confidence_.max(axis=1) >= 0.95)
    pyplot.close(ax.figure)


def test_history_has_the_losses_on_the_axes_given(model: Any) -> None:
    _, ax = pyplot.subplots()
    assert plots.history(model, ax=ax) is ax
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), [entry["loss"] for entry in model.history_])
    pyplot.close(ax.figure)
    with pytest.raises(ValueError, match="PLKNN has no losses over epochs"):
        plots.history(mogd.make("plknn"))


def test_calibration_weighs_to_the_accuracy(model: Any, data: tuple[np.ndarray, np.ndarray]) -> None:
    from mogd.metrics import reliability

    X, y = data[0][600:], data[1][600:]
    ax = plots.calibration(model, X, y)
    drawn = ax.containers[0].lines[0].get_xydata()
    rows = np.array([entry["rows"] for entry in reliability(y, model.predict_proba(X))])
    assert rows @ drawn[:, 1] / rows.sum() == pytest.approx(accuracy(y, model.predict(X)))
    pyplot.close(ax.figure)


def test_without_matplotlib_the_extra_is_named(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'mogd\[plots\]'"):
        plots.confidence(model)


def test_calibration_is_drawn_at_the_models_temperature(model: Any, data: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = data[0][600:], data[1][600:]
    calibrated = copy.copy(model)
    calibrated.calibration_ = mogd.conformal.Calibration(np.full((2, 10), 0.1), np.array([0, 1]), 50.0)
    plain, drawn = plots.calibration(model, X, y), plots.calibration(calibrated, X, y)
    sure = [np.max(ax.containers[0].lines[0].get_xdata()) for ax in (plain, drawn)]
    assert sure[0] > 0.9
    assert sure[1] < 0.3  # so hot that every class is nearly as probable as any other
    for ax in (plain, drawn):
        pyplot.close(ax.figure)
