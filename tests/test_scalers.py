"""Powers make skewed columns symmetric, leave the others alone, and stay finite on wild rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from rows_tools import clusters
from scipy.stats import skew, yeojohnson
from sklearn.preprocessing import MinMaxScaler, PowerTransformer, StandardScaler

import mogd
from mogd.cli.fit import SCALES as SHELL_SCALES
from mogd.scalers import POWER_ROWS, SCALERS, Powers, sample_of, yeo_johnson

SKEWED = [1, 4]


def table(n: int = 400) -> np.ndarray:
    """Normal columns; two of them drawn out to one side; one of two values, one that never changes."""
    X = np.random.default_rng(0).normal(size=(n, 6))
    X[:, 1] = 1e4 * np.exp(1.5 * X[:, 1])
    X[:, 4] = -np.exp(2 * X[:, 4]) + 7
    X[:, 2] = X[:, 2] > 2
    X[:, 3] = 5.0
    return X


def fitted(name: str, X: np.ndarray) -> Powers:
    scaler = SCALERS[name]()
    assert isinstance(scaler, Powers)
    return scaler.learn_powers(X).partial_fit(X)


@pytest.mark.parametrize("power", [-2.0, 0.0, 0.7, 1.0, 2.0, 3.5])
def test_the_transformation_is_that_of_scipy(power: float) -> None:
    x = np.linspace(-4, 6, 41)
    np.testing.assert_allclose(yeo_johnson(x, np.full(41, power)), yeojohnson(x, power), rtol=1e-9, atol=1e-12)
    with_torch = yeo_johnson(torch.from_numpy(x), torch.full((41,), power, dtype=torch.float64), torch)
    np.testing.assert_allclose(with_torch.numpy(), yeojohnson(x, power), rtol=1e-9, atol=1e-12)


def test_skewed_columns_and_no_others_are_transformed() -> None:
    X = table()
    scaler = fitted("power", X)
    assert scaler.columns_.tolist() == SKEWED  # column 2 is skewed too, but has two values
    Z, plain = scaler.transform(X), StandardScaler().fit_transform(X)
    np.testing.assert_allclose(np.delete(Z, SKEWED, axis=1), np.delete(plain, SKEWED, axis=1), atol=1e-12)
    assert np.abs(skew(plain[:, SKEWED])).min() > 2
    assert np.abs(skew(Z[:, SKEWED])).max() < 1
    expected = PowerTransformer().fit_transform(plain[:, SKEWED])
    np.testing.assert_allclose(Z[:, SKEWED], expected, atol=1e-6)


def test_minmax_ends_at_zero_and_one() -> None:
    X = table()
    Z = fitted("power-minmax", X).transform(X)
    assert Z.min() >= -1e-12
    assert Z.max() <= 1 + 1e-12
    np.testing.assert_allclose(Z[:, 0], MinMaxScaler().fit_transform(X)[:, 0], atol=1e-12)
    assert 0.2 < np.median(Z[:, 1]) < 0.8
    assert np.median(MinMaxScaler().fit_transform(X)[:, 1]) < 0.05


@pytest.mark.parametrize("name", ["power", "power-minmax"])
def test_wild_new_rows_count_as_the_most_extreme_ones_known(name: str) -> None:
    X = table()
    scaler = fitted(name, X)
    for side, edge in ((1e300, X.max(axis=0)), (-1e300, X.min(axis=0))):
        wild = X[:1].copy()
        wild[:, SKEWED] = side
        known = X[:1].copy()
        known[:, SKEWED] = edge[SKEWED]
        np.testing.assert_allclose(scaler.transform(wild), scaler.transform(known))


def test_rows_are_left_as_they_were_and_keep_their_precision() -> None:
    X = table().astype(np.float32)
    before = X.copy()
    scaler = fitted("power", X)
    Z = scaler.transform(X)
    assert np.array_equal(X, before)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, scaler.transform(X.astype(np.float64)), atol=1e-4)
    assert scaler.transform(np.arange(6)[None]).dtype == np.float64


@pytest.mark.parametrize("name", ["power", "power-minmax"])
def test_parts_give_what_the_whole_gives(name: str) -> None:
    X = table()
    whole = fitted(name, X)
    parts = SCALERS[name]().learn_powers(X)
    for part in np.array_split(X, 7):
        parts.partial_fit(part)
    np.testing.assert_allclose(parts.transform(X), whole.transform(X), atol=1e-9)


def test_the_shell_offers_every_scaler() -> None:
    assert {*SHELL_SCALES} == {*SCALERS, "none"}


def test_many_rows_are_sampled_evenly() -> None:
    rows = sample_of(1_000_003)
    assert len(rows) == POWER_ROWS
    assert (rows[0], rows[-1]) == (0, 1_000_002)
    assert set(np.diff(rows)) == {100, 101}
    assert sample_of(3).tolist() == [0, 1, 2]
    assert len(sample_of(0)) == 0


@pytest.mark.parametrize("name", ["standard", "minmax"])
def test_without_a_skewed_column_it_is_the_plain_scaler_to_the_last_digit(name: str) -> None:
    for X in (np.ones((1, 3)), np.random.default_rng(0).normal(size=(50, 3))):
        scaler = fitted({"standard": "power", "minmax": "power-minmax"}[name], X)
        assert len(scaler.columns_) == 0
        assert np.array_equal(scaler.transform(X), SCALERS[name]().fit_transform(X))


@pytest.mark.parametrize("name", ["power", "power-minmax"])
def test_powers_of_float32_rows_are_learned_in_float64(name: str) -> None:
    X = table() + 1e4
    single = fitted(name, X.astype(np.float32))
    assert single.powers_.dtype == single.low_.dtype == np.float64
    np.testing.assert_allclose(single.powers_, fitted(name, X.astype(np.float32).astype(np.float64)).powers_)


def test_a_model_on_skewed_columns_is_better_with_powers_and_the_same_when_loaded(tmp_path: Path) -> None:
    x, y, sets = clusters(1, n=600, d=6, k=4)
    x = np.exp(3 * x)
    scores = {}
    for scale in ("standard", "power"):
        model = mogd.PartialLabelClassifier(scale=scale, epochs=20, random_state=0)
        model.fit(x[40:400], sets[40:400], X_val=x[:40], y_val=y[:40])
        scores[scale] = model.score(x[400:], y[400:])
    assert scores["power"] > scores["standard"] + 0.1
    again = mogd.load(mogd.save(model, tmp_path / "model"))
    assert np.array_equal(again.predict_proba(x), model.predict_proba(x))
