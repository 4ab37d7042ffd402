"""The clean network behind instance-dependent candidates: trained once, kept by fingerprint, the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mogd.datasets.corrupt import instance_dependent
from mogd.experiments import clean_network

PARAMS = {"backbone": "linear", "epochs": 5, "scale": "standard"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "mogd" / "clean-networks"


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:500], y[:500]


def test_it_is_trained_once_and_says_what_looks_alike(cache, digits, monkeypatch):
    X, y = digits
    u = clean_network.probabilities("digits", X, y, **PARAMS)
    assert u.shape == (500, 10)
    assert u.sum(axis=1) == pytest.approx(1, abs=1e-5)
    assert (u.argmax(axis=1) == y).mean() > 0.9
    monkeypatch.setattr(clean_network, "_train", lambda *_: pytest.fail("trained again"))
    assert np.array_equal(clean_network.probabilities("digits", X, y, **PARAMS), u)
    matrix = instance_dependent(y, u, np.random.default_rng(0))
    rivals = np.where(np.eye(10, dtype=bool)[y], -1, u).argsort(axis=1)
    rows = np.arange(500)
    assert matrix[rows, rivals[:, -1]].mean() > 0.9  # the strongest rival
    assert matrix[rows, rivals[:, 1]].mean() < 0.1  # the weakest


def test_rows_labels_and_parameters_have_answers_of_their_own(cache, digits, monkeypatch):
    X, y = digits
    monkeypatch.setattr(clean_network, "_train", lambda X, y, params: np.zeros((len(X), 10)))
    clean_network.probabilities("digits", X, y, **PARAMS)
    clean_network.probabilities("digits", X + 1, y, **PARAMS)
    clean_network.probabilities("digits", X, (y + 1) % 10, **PARAMS)
    clean_network.probabilities("digits", X, y, **(PARAMS | {"epochs": 6}))
    assert len(list(cache.iterdir())) == 4


def test_a_damaged_answer_is_made_anew_with_the_same_bits(cache, digits):
    X, y = digits
    u = clean_network.probabilities("digits", X, y, **PARAMS)
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:1000])
    assert np.array_equal(clean_network.probabilities("digits", X, y, **PARAMS), u)
    assert np.array_equal(np.load(kept), u)
