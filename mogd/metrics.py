"""Figures of merit: numpy in, float out."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import scipy.sparse as sp

from mogd.compressed import Matrix, at_column, largest, row_numbers


def accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """Share of rows whose predicted label is the true one."""
    return float(np.mean(np.asarray(y_true) == np.asarray(y_pred)))


def disambiguation_accuracy(y_true: np.ndarray, confidence: Matrix) -> float:
    """Share of training rows whose most confident candidate is the true one (`y_true` holds class indices).

    Also called transductive accuracy. Candidates that tie for the most confidence share the point, so that a confidence
    that never left the uniform scores as a guess does, whatever the order of the classes.
    """
    if sp.issparse(confidence):
        top, row = largest(confidence)[1], row_numbers(confidence)
        ties = np.bincount(row, weights=confidence.data >= top[row])
        return float(np.mean((at_column(confidence, y_true) >= top) / ties))
    confidence = np.asarray(confidence)
    best = confidence >= confidence.max(axis=1, keepdims=True)
    hit = best[np.arange(len(best)), np.asarray(y_true)]
    return float(np.mean(hit / best.sum(axis=1)))


def covering_rate(candidates: Matrix, y_pred: np.ndarray, sample_weight: np.ndarray | None = None) -> float:
    """Share of rows whose predicted class index lies in the row's candidate set: computable without any true label."""
    inside = at_column(candidates, y_pred) > 0
    return float(np.average(inside, weights=None if sample_weight is None else np.asarray(sample_weight)))


def calibration_error(y_true: np.ndarray, probabilities: np.ndarray, n_bins: int = 15) -> float:
    """Expected calibration error of the top label, in `n_bins` bins of equal width (`y_true` holds class indices)."""
    probabilities = np.asarray(probabilities)
    top = probabilities.max(axis=1)
    hit = probabilities.argmax(axis=1) == np.asarray(y_true)
    which = np.minimum((top * n_bins).astype(int), n_bins - 1)
    gap = np.bincount(which, weights=hit - top, minlength=n_bins)
    return float(np.abs(gap).sum() / len(top))


def wilson_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share: unlike the normal one it stays inside [0, 1] and holds for few rows."""
    if not n:
        return 0.0, 1.0
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share, spread = hits / n, z * z / n
    middle = (share + spread / 2) / (1 + spread)
    half = z * np.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    # at the ends the formula is exact but for rounding
    return (float(middle - half) if hits else 0.0), (float(middle + half) if hits < n else 1.0)


def confusion_counts(y_true: np.ndarray, y_pred: np.ndarray, n_classes: int) -> np.ndarray:
    """How often each class (row) was predicted as each (column); both are given as class indices."""
    together = np.asarray(y_true) * n_classes + np.asarray(y_pred)
    return np.bincount(together, minlength=n_classes**2).reshape(n_classes, n_classes)


def reliability(y_true: np.ndarray, probabilities: np.ndarray, n_bins: int = 10) -> list[dict[str, float]]:
    """For each bin of the top probability that holds rows: how many, their mean probability and their accuracy."""
    probabilities = np.asarray(probabilities)
    top = probabilities.max(axis=1)
    hit = probabilities.argmax(axis=1) == np.asarray(y_true)
    which = np.minimum((top * n_bins).astype(int), n_bins - 1)
    return [
        {"rows": int(own.sum()), "confidence": float(top[own].mean()), "accuracy": float(hit[own].mean())}
        for own in (which == k for k in range(n_bins))
        if own.any()
    ]


def log_loss(y_true: np.ndarray, probabilities: np.ndarray) -> float:
    """Mean of −log p of the true class (`y_true` holds class indices)."""
    p = np.asarray(probabilities, dtype=np.float64)[np.arange(len(y_true)), np.asarray(y_true)]
    return float(-np.log(np.maximum(p, np.finfo(np.float64).tiny)).mean())
