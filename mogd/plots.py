"""Plots of a fitted model by matplotlib, for notebooks and papers: on the axes `ax`, or new ones, which are returned.

The page of `model.report()` has more, and needs no matplotlib.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mogd.candidates import as_labels
from mogd.metrics import reliability, wilson_interval

N_BINS = 20


def confidence(model: Any, *, ax: Any = None) -> Any:
    """How sure the model is of the label it resolved each training row to: a histogram."""
    check_is_fitted(model, "confidence_")
    ax = _axes(ax)
    best = model.disambiguate().confidence
    ax.hist(best, bins=N_BINS, range=(0, 1))
    ax.set(xlabel="confidence in the resolved label", ylabel="training rows", xlim=(0, 1))
    ax.set_title(f"{np.mean(best > 0.9):.0%} of {len(best)} rows above 0.9")
    return ax


def history(model: Any, *, ax: Any = None) -> Any:
    """The loss over the epochs; steps of an earlier phase stand left of 0."""
    entries = getattr(model, "history_", None)
    if not entries or "loss" not in entries[0]:
        raise ValueError(f"{type(model).__name__} has no losses over epochs: fit a deep method first")
    ax = _axes(ax)
    for phase in dict.fromkeys(entry.get("phase", "training") for entry in entries):
        losses = [entry["loss"] for entry in entries if entry.get("phase", "training") == phase]
        epochs = np.arange(1, len(losses) + 1)
        ax.plot(epochs if phase == "training" else epochs - len(losses), losses, label=phase)
    ax.set(xlabel="epoch", ylabel="loss")
    ax.legend()
    return ax


def calibration(model: Any, X: Any, y: Any, *, ax: Any = None) -> Any:
    """Accuracy over confidence on rows with true labels, with 95 % intervals; on the diagonal one is the other.

    A calibrated model (`mogd.conformal.calibrate`) is drawn at its temperature.
    """
    probabilities = model.predict_proba(X)
    if (fitted := getattr(model, "calibration_", None)) is not None:
        probabilities = fitted.probabilities(probabilities)
    bins = reliability(as_labels(y, model.classes_), probabilities)
    shares = np.array([entry["accuracy"] for entry in bins])
    intervals = [wilson_interval(round(entry["accuracy"] * entry["rows"]), int(entry["rows"])) for entry in bins]
    ends = np.abs(np.array(intervals).T - shares)
    ax = _axes(ax)
    ax.plot([0, 1], [0, 1], linestyle="--", color="grey")
    ax.errorbar([entry["confidence"] for entry in bins], shares, yerr=ends, fmt="o", capsize=3)
    ax.set(xlabel="confidence", ylabel="share that is right", xlim=(0, 1), ylim=(0, 1))
    return ax


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("plots need matplotlib: pip install 'mogd[plots]'") from None
    return pyplot.subplots(layout="constrained")[1]
