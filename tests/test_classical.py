"""Contract of the classical algorithms: scikit-learn's checks and the library's own."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.utils.estimator_checks import check_estimator

from mogd.algorithms import ALGORITHMS, make
from mogd.classical import common

NAMES = [name for name, algorithm in ALGORITHMS.items() if algorithm.kind == "classical"]


@pytest.fixture(scope="module")
def blobs():
    """Four blobs; every training row has its label and, half of the time each, the others."""
    X, y = make_blobs(400, centers=4, n_features=5, cluster_std=2.0, random_state=3)
    candidates = np.random.default_rng(5).random((400, 4)) < 0.3
    candidates[np.arange(400), y] = True
    return X[:300], candidates[:300].astype(int), y[:300], X[300:], y[300:]


# a weight multiplies a row's loss, but neighbours, halves and landmarks are drawn by row
BY_ROWS = {
    f"check_sample_weight_equivalence_on_{kind}_data": "weights do not stand for repeated rows"
    for kind in ("dense", "sparse")
}


def seeded(name, **params):
    estimator = make(name, **params)
    return estimator.set_params(random_state=0) if "random_state" in estimator.get_params() else estimator


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_scikit_learn_checks(name):
    done = check_estimator(seeded(name), on_skip=None, expected_failed_checks=BY_ROWS)
    assert sum(check["status"] == "passed" for check in done) > 45


def test_all_are_in_the_table():
    assert NAMES == ["plknn", "ipal", "plsvm", "clpl", "sure", "plecoc", "majority", "dawid-skene"]


def test_no_torch_is_loaded():
    code = f"import sys; from mogd import make; [make(n) for n in {NAMES}]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_learns_and_resolves_the_training_rows(name, blobs):
    X, candidates, y, X_test, y_test = blobs
    fitted = seeded(name, scale="standard").fit(X, candidates)
    assert fitted.score(X_test, y_test) > 0.9
    resolved = fitted.disambiguate()
    assert ALGORITHMS[name].needs_votes or np.mean(resolved.label == y) > 0.9
    confidence = fitted.confidence_
    assert confidence.shape == candidates.shape
    np.testing.assert_allclose(confidence.sum(axis=1), 1.0)
    assert confidence.min() >= 0
    assert not confidence[candidates == 0].any()
    probabilities = fitted.predict_proba(X_test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_clean_rows_join_and_count(name, blobs):
    X, candidates, y, X_test, y_test = blobs
    blind = np.ones_like(candidates[20:])  # the partial rows say nothing: only the clean ones teach
    params = {"plecoc": {"min_share": 0.0}}.get(name, {})
    model = seeded(name, scale="standard", clean_weight=5.0, **params)
    fitted = model.fit(X[20:], blind, X_val=X[:20], y_val=y[:20])
    assert fitted.confidence_.shape == blind.shape
    assert fitted.score(X_test, y_test) > 0.6
    alone = seeded(name, clean_weight=0.0).fit(X[20:], candidates[20:], X_val=X[:20], y_val=y[:20])
    without = seeded(name).fit(X[20:], candidates[20:])
    np.testing.assert_array_equal(alone.predict_proba(X_test), without.predict_proba(X_test))


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_the_same_bits_and_leaves_the_global_state(name, blobs):
    X, candidates, _, X_test, _ = blobs
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (seeded(name).fit(X, candidates) for _ in range(2))
    make(name).fit(X[:50], candidates[:50])
    np.testing.assert_array_equal(first.predict_proba(X_test), second.predict_proba(X_test))
    np.testing.assert_array_equal(first.confidence_, second.confidence_)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("name", NAMES)
def test_permuted_classes_permute_the_predictions(name, blobs):
    X, candidates, _, X_test, _ = blobs
    order = np.array([2, 0, 3, 1])
    plain = seeded(name, scale="standard").fit(X, candidates).predict(X_test)
    permuted = seeded(name, scale="standard").fit(X, candidates[:, order]).predict(X_test)
    # the codes of PL-ECOC and the sums of all are in another order: a row on the border may fall otherwise
    assert np.mean(order[permuted] == plain) >= 0.98


@pytest.mark.parametrize("name", NAMES)
def test_names_full_sets_and_empty_sets(name, blobs):
    X, candidates, _, X_test, _ = blobs
    names = np.array(["wren", "robin", "kiwi", "heron"])
    candidates = candidates.copy()
    candidates[7] = 1
    fitted = seeded(name, classes=names).fit(X, candidates)
    assert set(fitted.predict(X_test)) <= set(names)
    np.testing.assert_allclose(fitted.confidence_[7].sum(), 1.0)
    candidates[11] = 0
    with pytest.raises(ValueError, match="row 11 has an empty candidate set"):
        seeded(name, classes=names).fit(X, candidates)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        *((name, {}) for name in NAMES),
        ("sure", {"kernel": "linear"}),
        ("sure", {"exact_rows": 10}),
        ("plecoc", {"kernel": "linear"}),
        ("clpl", {"kernel": "rbf"}),
    ],
)
def test_state_is_enough_to_predict(name, params, blobs):
    X, candidates, _, X_test, _ = blobs
    fitted = seeded(name, **params).fit(X, candidates)
    other = seeded(name, **params)
    other.classes_, other.scaler_, other.n_features_in_ = fitted.classes_, None, X.shape[1]
    other._load_state({key: np.array(value) for key, value in fitted._state().items()})
    np.testing.assert_array_equal(other.predict_proba(X_test), fitted.predict_proba(X_test))
    rows = {row.tobytes() for row in X}
    stored = [v for v in fitted._state().values() if v.ndim == 2 and v.shape[1] == X.shape[1]]
    held = any(np.ascontiguousarray(row).tobytes() in rows for array in stored for row in array)
    assert held == fitted.holds_rows or name == "ipal"  # IPAL's rows are stored normalised


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("plknn", {"n_neighbors": 0}),
        ("plknn", {"weights": "near"}),
        ("ipal", {"alpha": 2.0}),
        ("plsvm", {"lam": 0}),
        ("plsvm", {"epochs": 0}),
        ("clpl", {"C": -1.0}),
        ("clpl", {"kernel": "poly"}),
        ("sure", {"beta": 0.0}),
        ("sure", {"lam": -1.0}),
        ("sure", {"width": 0.0}),
        ("plecoc", {"length": 0}),
        ("plecoc", {"clean_weight": -1}),
        ("majority", {"C": 0.0}),
        ("majority", {"clean_weight": -1}),
        ("dawid-skene", {"partial_weight": -1.0}),
        ("dawid-skene", {"shrinkage": 0.0}),
    ],
)
def test_a_bad_parameter_is_named(name, bad, blobs):
    X, candidates, *_ = blobs
    (parameter, value), *_ = bad.items()
    with pytest.raises(ValueError, match=f"^{parameter} must be (?!None;).*; got {value!r}$"):
        make(name, **bad).fit(X, candidates)


def test_tiny_problems():
    X = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])
    for name in NAMES:
        one_class = seeded(name).fit(X, ["a", "a", "a"])
        assert (one_class.predict(X) == "a").all()
        one_row = seeded(name, classes=["a"]).fit(X[:1], [["a"]])
        assert one_row.predict(X[:1]) == "a"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [None, "standard"])
def test_numbers_too_large_to_be_squared_are_refused_by_their_rows(name, scale):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 3
    model = make(name, scale=scale).fit(X * 1e149, y)
    assert np.isfinite(model.predict_proba(X * 1e149)).all()
    assert np.isfinite(model.confidence_).all()
    X[7, 1] = -1e300
    said = r"X holds numbers beyond ±1e\+150 in row 7, whose distances cannot be computed"
    with pytest.raises(ValueError, match=said):
        model.predict(X)
    with pytest.raises(ValueError, match=said):
        make(name, scale=scale).fit(X, y)
    with pytest.raises(ValueError, match="X_val holds numbers"):
        make(name, scale=scale).fit(X[:5], y[:5], X_val=X[5:], y_val=y[5:])


def test_the_mean_distance_of_many_rows_is_that_of_a_sample(monkeypatch):
    rows = np.random.default_rng(0).normal(size=(400, 3))
    whole = common.mean_distance(rows, 0)
    monkeypatch.setattr(common, "MEAN_DISTANCE_ROWS", 100)
    sampled = common.mean_distance(rows, 0)
    assert sampled == common.mean_distance(rows, 0) != whole
    assert sampled == pytest.approx(whole, rel=0.1)
    assert common.mean_distance(np.ones((5, 2)), 0) == 1
