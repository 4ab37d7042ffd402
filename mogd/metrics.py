"""Figures of merit: numpy in, float out."""

from __future__ import annotations

import numpy as np


def accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """Share of rows whose predicted label is the true one."""
    return float(np.mean(np.asarray(y_true) == np.asarray(y_pred)))


def disambiguation_accuracy(y_true: np.ndarray, confidence: np.ndarray) -> float:
    """Share of training rows whose most confident candidate is the true one (`y_true` holds class indices).

    Also called transductive accuracy. Candidates that tie for the most confidence share the point, so that a confidence
    that never left the uniform scores as a guess does, whatever the order of the classes.
    """
    confidence = np.asarray(confidence)
    best = confidence >= confidence.max(axis=1, keepdims=True)
    hit = best[np.arange(len(best)), np.asarray(y_true)]
    return float(np.mean(hit / best.sum(axis=1)))


def covering_rate(candidates: np.ndarray, y_pred: np.ndarray, sample_weight: np.ndarray | None = None) -> float:
    """Share of rows whose predicted class index lies in the row's candidate set: computable without any true label."""
    candidates = np.asarray(candidates)
    inside = candidates[np.arange(len(candidates)), np.asarray(y_pred)] > 0
    return float(np.average(inside, weights=None if sample_weight is None else np.asarray(sample_weight)))


def calibration_error(y_true: np.ndarray, probabilities: np.ndarray, n_bins: int = 15) -> float:
    """Expected calibration error of the top label, in `n_bins` bins of equal width (`y_true` holds class indices)."""
    probabilities = np.asarray(probabilities)
    top = probabilities.max(axis=1)
    hit = probabilities.argmax(axis=1) == np.asarray(y_true)
    which = np.minimum((top * n_bins).astype(int), n_bins - 1)
    gap = np.bincount(which, weights=hit - top, minlength=n_bins)
    return float(np.abs(gap).sum() / len(top))
