"""Every deep rival learns the digits from candidate sets in seconds, and twice the same."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import mogd

# what the method's own page recommends where the classifier's defaults are not its best
SETTINGS = {"lws": {"lr": 0.3}, "exp": {"lr": 0.3}, "ga": {"lr": 0.01, "weight_decay": 0.05, "epochs": 40}}
FLOOR = {"ga": 0.80, "pce": 0.83}
NAMES = ["proden", "rc", "cc", "lws", "valen", "mse", "exp", "ga", "d2cnn", "pce", "pop", "crosel"]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    candidates = np.eye(10, dtype=bool)[y] | (random.random((len(y), 10)) < 0.3)
    order = random.permutation(len(y))
    return X[order], y[order], candidates[order]


def fit(name, X, candidates, **params):
    settings = {"scale": "standard", "epochs": 20, "random_state": 0} | SETTINGS.get(name, {}) | params
    return mogd.make(name, **settings).fit(X, candidates)


@pytest.mark.parametrize("name", NAMES)
def test_learns_the_digits(name, digits):
    X, y, candidates = digits
    model = fit(name, X[:1200], candidates[:1200])
    assert model.score(X[1200:], y[1200:]) > FLOOR.get(name, 0.88)
    assert (model.disambiguate().label == y[:1200]).mean() > FLOOR.get(name, 0.92)
    np.testing.assert_allclose(model.confidence_.sum(axis=1), 1, atol=1e-5)
    assert (model.confidence_[~candidates[:1200]] == 0).all()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_seeds_give_equal_bits(name, dtype, digits):
    X, _, candidates = digits
    first, second = (
        fit(name, X[:200], candidates[:200], epochs=3, warmup_epochs=1, dtype=dtype)
        if name == "valen"
        else fit(name, X[:200], candidates[:200], epochs=3, backbone="mlp", dtype=dtype)
        for _ in range(2)
    )
    assert first.confidence_.dtype == dtype
    assert np.array_equal(first.confidence_, second.confidence_)
    assert np.array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("name", NAMES)
def test_clean_rows_join_the_training_rows_with_one_candidate_each(name, digits):
    X, y, candidates = digits
    joined = np.concatenate([candidates[:100], np.eye(10, dtype=bool)[y[100:150]]])
    apart, together = (mogd.make(name, epochs=2, random_state=0, callbacks=()) for _ in range(2))
    apart.fit(X[:100], candidates[:100], X_val=X[100:150], y_val=y[100:150])
    together.fit(X[:150], joined)
    assert np.array_equal(apart.predict_proba(X), together.predict_proba(X))
    assert np.array_equal(apart.confidence_, together.confidence_[:100])
