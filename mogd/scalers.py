"""Scalers of the features: scikit-learn's two, and each of them behind powers that make skewed columns symmetric."""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any, Self

import numpy as np
from sklearn.preprocessing import MinMaxScaler, PowerTransformer, StandardScaler

# skewness beyond which a column is far from symmetric (West, Finch and Curran, 1995); docs/studies/skewed-features.md
SKEWED = 2.0
POWER_ROWS = 10_000  # evenly spaced training rows from which powers are learned: enough for one number a column
LARGEST_POWER = 5.0  # either way: beyond it nearly all values are one


class Powers:
    """In front of a scaler: columns of a skewness beyond 2 through the Yeo-Johnson transformation.

    Yeo and Johnson (2000): a power of the value, chosen so that the column is closest to normal. Of such a column,
    values beyond those that the power was learned from count as the most extreme of these, so that one wild new
    value stays finite. Columns of two values are left as they are.
    """

    def learn_powers(self, X: np.ndarray) -> Self:
        """From a sample of the rows, before the scaler behind is fitted to all of them."""
        X = np.asarray(X, dtype=np.float64)
        first = StandardScaler().fit(X)
        X = first.transform(X)
        skewness = np.mean(X**3, axis=0)  # of z-scores
        low, high = X.min(axis=0), X.max(axis=0)
        skewed = (np.abs(skewness) > SKEWED) & ((low < X) & (high > X)).any(axis=0)
        self.columns_ = np.flatnonzero(skewed)
        self.first_mean_, self.first_scale_ = first.mean_[skewed], first.scale_[skewed]
        self.low_, self.high_ = low[skewed], high[skewed]
        self.powers_ = _powers(X[:, skewed])
        return self

    def partial_fit(self, X: np.ndarray, y: Any = None, **more: Any) -> Self:
        return super().partial_fit(self._powered(X), y, **more)  # type: ignore[misc]

    def transform(self, X: np.ndarray, **more: Any) -> np.ndarray:
        return super().transform(self._powered(X), **more)  # type: ignore[misc]

    def _powered(self, X: np.ndarray) -> np.ndarray:
        """The rows, or a copy of them of their own precision where a column is changed."""
        if not len(self.columns_):
            return X
        rows = np.array(X, dtype=np.result_type(X.dtype, np.float32))
        z = (rows[:, self.columns_].astype(np.float64) - self.first_mean_) / self.first_scale_
        rows[:, self.columns_] = yeo_johnson(np.clip(z, self.low_, self.high_), self.powers_)
        return rows


class PowerScaler(Powers, StandardScaler):
    """`Powers`, then z-scores of all columns."""


class PowerMinMaxScaler(Powers, MinMaxScaler):
    """`Powers`, then all columns to the range from 0 to 1."""


SCALERS = {
    "standard": StandardScaler,
    "minmax": MinMaxScaler,
    "power": PowerScaler,
    "power-minmax": PowerMinMaxScaler,
}


def yeo_johnson(x: Any, power: Any, xp: ModuleType = np) -> Any:
    """The transformation, by the functions of numpy or of torch: the identity where the power is 1."""
    exponent = xp.where(x >= 0, power, 2 - power)
    is_log = xp.abs(exponent) < 1e-8
    length = xp.log1p(xp.abs(x))
    return xp.sign(x) * xp.where(is_log, length, xp.expm1(exponent * length) / xp.where(is_log, 1.0, exponent))


def affine(scaler: Any) -> tuple[np.ndarray, np.ndarray]:
    """The slope and the offset of a fitted scaler, which is `(x - offset) · slope`, behind powers where it has some."""
    if isinstance(scaler, MinMaxScaler):
        return scaler.scale_, -scaler.min_ / scaler.scale_
    return 1.0 / scaler.scale_, scaler.mean_


def sample_of(n_rows: int) -> np.ndarray:
    """The rows that powers are learned from: evenly spaced, so that rows in memory and on the disk give the same."""
    return np.unique(np.linspace(0, n_rows - 1, min(n_rows, POWER_ROWS)).astype(np.int64))


def _powers(X: np.ndarray) -> np.ndarray:
    if not X.shape[1]:
        return np.ones(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of powers that the search leaves again
        found = PowerTransformer(standardize=False).fit(X).lambdas_
    return np.where(np.isfinite(found), np.clip(found, -LARGEST_POWER, LARGEST_POWER), 1.0)
