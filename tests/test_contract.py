"""What every algorithm of the table promises: scikit-learn's own checks, then the library's.

A new line in `mogd.algorithms` is picked up by itself.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from mogd import MoGD, PartialLabelClassifier, as_candidates
from mogd.algorithms import ALGORITHMS, make, make_method
from mogd.compressed import take_dense
from mogd.estimator import PartialLabelEstimator

NAMES = list(ALGORITHMS)
pytestmark = [
    pytest.mark.filterwarnings("ignore:no clean rows were given", "ignore:Supervised learns nothing"),
    pytest.mark.usefixtures("both_forms"),
]
BY_VOTES = {name for name, algorithm in ALGORITHMS.items() if algorithm.needs_votes}  # plain sets stay unresolved
DEEP = [name for name, algorithm in ALGORITHMS.items() if algorithm.is_deep]


def small(name: str, **params: Any) -> PartialLabelEstimator:
    """The algorithm with its defaults, few epochs, and a seed where it has one."""
    estimator = make(name)
    known = estimator.get_params()
    settings = {"epochs": 25, "batch_size": 25, "lr": 0.1, "random_state": 0} | params
    return estimator.set_params(**{key: value for key, value in settings.items() if key in known})


def problem(seed: int = 0, n: int = 100, k: int = 4, rate: float = 0.25) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Well separated classes, their labels, and a candidate matrix in which some rows hold one label."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % k)
    angle = 2 * np.pi * y / k
    x = 3 * np.stack([np.cos(angle), np.sin(angle), np.zeros(n)], axis=1) + rng.normal(scale=0.5, size=(n, 3))
    candidates = rng.random((n, k)) < rate
    candidates[np.arange(n), y] = True
    return x, y, candidates.astype(int)


def all_bits(estimator: PartialLabelEstimator, x: np.ndarray) -> bytes:
    return estimator.predict_proba(x).tobytes() + take_dense(estimator.confidence_).tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")  # the checks feed hostile input on purpose
def test_scikit_learns_checks(name: str) -> None:
    rows_count = "a weight multiplies a row's loss, but batches, neighbours and landmarks are drawn by row"
    known = {f"check_sample_weight_equivalence_on_{kind}_data": rows_count for kind in ("dense", "sparse")}
    if name in DEEP:
        known["check_class_weight_classifiers"] = "a dozen steps on unscaled rows; test_class_weight.py has it scaled"
    model = small(name, batch_size=100, lr=0.3, epochs=12)
    checks = check_estimator(model, on_skip=None, on_fail=None, expected_failed_checks=known)
    failed = {check["check_name"]: check["exception"] for check in checks if check["status"] == "failed"}
    assert not failed
    passed = {check["check_name"] for check in checks if check["status"] == "passed"}
    assert len(passed) > 40
    # this one runs only where SciPy's array API was switched on before its import
    assert {check["check_name"] for check in checks} - passed <= {"check_array_api_input", *known}


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_taken_and_checked(name: str) -> None:
    """Rows of weight zero do not decide; where the labels of a third are wrong, leaving these out helps."""
    x, y, _ = problem(n=120)
    wrong = np.arange(120) % 3 == 0
    noisy = np.where(wrong, (y + 1) % 4, y)
    weighted = small(name).fit(x, noisy, sample_weight=np.where(wrong, 0.0, 1.0))
    assert weighted.score(x, y) > {"ga": 0.85, "ipal": 0.6}.get(
        name, 0.95
    )  # IPAL's neighbours answer whatever they weigh
    for bad, message in ((np.ones(3), "one number for each of the 120 rows"), (-np.ones(120), "0 or more, and finite")):
        with pytest.raises(ValueError, match=f"sample_weight must (have|be) {message}"):
            small(name).fit(x, noisy, sample_weight=bad)
    outside = weighted.score(x, np.eye(4, dtype=int)[noisy], sample_weight=wrong.astype(float))
    inside = weighted.score(x, np.eye(4, dtype=int)[noisy], sample_weight=(~wrong).astype(float))
    assert weighted.score(x, np.eye(4, dtype=int)[noisy]) == pytest.approx((40 * outside + 80 * inside) / 120)


@pytest.mark.parametrize("name", NAMES)
def test_rows_with_one_candidate_are_plain_supervision(name: str) -> None:
    x, y, _ = problem()
    test_x, test_y, _ = problem(seed=1)
    from_labels = small(name).fit(x, y)
    from_matrix = small(name).fit(x, np.eye(4, dtype=int)[y])
    assert all_bits(from_labels, test_x) == all_bits(from_matrix, test_x)
    assert np.array_equal(take_dense(from_labels.confidence_), np.eye(4)[y])
    reference = LogisticRegression().fit(x, y).score(test_x, test_y)
    assert from_labels.score(test_x, test_y) > reference - 0.05


@pytest.mark.parametrize("name", NAMES)
def test_learns_from_candidate_sets(name: str) -> None:
    x, y, candidates = problem()
    test_x, test_y, _ = problem(seed=1)
    model = small(name).fit(x, candidates)
    assert model.score(test_x, test_y) > 0.9
    assert name in BY_VOTES or np.mean(model.disambiguate().label == y) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_permuting_the_classes_permutes_the_predictions(name: str) -> None:
    x, _, candidates = problem()
    test_x, _, _ = problem(seed=1)
    order = np.array([2, 0, 3, 1])
    straight = small(name).fit(x, candidates).predict(test_x)
    permuted = small(name).fit(x, candidates[:, order]).predict(test_x)
    assert np.mean(order[permuted] == straight) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_confidence_is_a_distribution_over_the_candidates(name: str) -> None:
    x, _, candidates = problem(rate=0.5)
    candidates[0] = 1  # nothing is known of this row
    model = small(name, epochs=5).fit(x, candidates)
    given = take_dense(model.confidence_)
    assert given.shape == candidates.shape
    assert np.all(given >= 0)
    np.testing.assert_allclose(given.sum(axis=1), 1, rtol=1e-5)
    assert np.all(given[candidates == 0] == 0)
    probabilities = model.predict_proba(x)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(model.predict(x), model.classes_[probabilities.argmax(axis=1)])
    label, confidence = model.disambiguate()
    assert np.array_equal(label, model.classes_[given.argmax(axis=1)])
    assert np.array_equal(confidence, given.max(axis=1))


@pytest.mark.parametrize("name", NAMES)
def test_class_names_survive(name: str) -> None:
    x, y, candidates = problem()
    names = np.array(["wren", "ash", "élan", "b c"])
    sets = [set(names[row == 1].tolist()) for row in candidates]
    model = small(name).fit(x, sets)
    assert model.classes_.tolist() == sorted(names)
    assert np.mean(model.predict(x) == names[y]) > 0.9
    assert name in BY_VOTES or np.mean(model.disambiguate().label == names[y]) > 0.9
    assert model.score(x, sets) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_row_is_refused_by_its_number(name: str) -> None:
    x, _, candidates = problem()
    candidates[[17, 30]] = 0
    with pytest.raises(ValueError, match="rows 17, 30 have an empty candidate set"):
        small(name).fit(x, candidates)


@pytest.mark.parametrize("name", NAMES)
def test_one_seed_gives_equal_bits_and_leaves_the_callers_random_states(name: str) -> None:
    x, y, candidates = problem(rate=0.5)
    clean = {"X_val": x[:12], "y_val": y[:12]}
    first = small(name, epochs=3).fit(x, candidates, **clean)
    torch.rand(3)
    np.random.rand(3)  # noqa: NPY002 - the global state is what is watched
    before = random.getstate(), np.random.get_state()[1].tobytes(), torch.get_rng_state()  # noqa: NPY002
    second = small(name, epochs=3).fit(x, candidates, **clean)
    assert all_bits(first, x) == all_bits(second, x)
    assert random.getstate() == before[0]
    assert np.random.get_state()[1].tobytes() == before[1]  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), before[2])


@pytest.mark.parametrize("name", NAMES)
def test_clean_rows_are_accepted_and_keep_the_confidence_in_step(name: str) -> None:
    x, y, candidates = problem()
    extra, labels, _ = problem(seed=3, n=20)
    model = small(name).fit(x, candidates, X_val=extra, y_val=labels)
    assert model.confidence_.shape[0] == len(x)
    assert name in BY_VOTES or np.mean(model.disambiguate().label == y) > 0.9
    with pytest.raises(ValueError, match="y_val has label 9 in row 1"):
        small(name).fit(x, candidates, X_val=extra[:2], y_val=[0, 9])


@pytest.mark.parametrize("name", NAMES)
def test_any_table_gives_the_same_model(name: str) -> None:
    x, _, candidates = problem()
    columns = ["a", "b", "c"]
    expected = small(name, epochs=3).fit(x, candidates).predict_proba(x)
    tables = [pd.DataFrame(x, columns=columns), pl.DataFrame(x, schema=columns), torch.from_numpy(x)]
    for table in tables:
        model = small(name, epochs=3).fit(table, candidates)
        # BLAS rounds `A @ A.T` otherwise when both are one block of memory, as they are for the array alone
        np.testing.assert_allclose(model.predict_proba(table), expected, rtol=0, atol=1e-14, err_msg=str(type(table)))
        if not isinstance(table, torch.Tensor):
            assert model.feature_names_in_.tolist() == columns


@pytest.mark.parametrize("name", NAMES)
def test_pipeline_and_cross_validation(name: str) -> None:
    x, _, candidates = problem()
    pipeline = make_pipeline(StandardScaler(), small(name))
    scores = cross_val_score(pipeline, x, candidates, cv=KFold(2, shuffle=True, random_state=0))
    assert scores.min() > 0.6  # the share of held-out rows whose set holds the prediction; a guess has 0.44
    fitted = pipeline.fit(x, as_candidates(candidates))
    assert fitted.score(x, candidates) > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_only_stored_and_cloned(name: str) -> None:
    model = small(name)
    before = str(model.get_params())
    copy = clone(model)
    x, _, candidates = problem(n=40)
    model.set_params(**{key: 2 for key in ("epochs",) if key in model.get_params()}).fit(x, candidates)
    assert str(copy.get_params()) == before
    assert not [attribute for attribute in vars(copy) if attribute.endswith("_")]


@pytest.mark.parametrize("method", ["mogd", MoGD()], ids=["name", "object"])
def test_grid_search_reaches_the_method(method: str | MoGD) -> None:
    x, _, candidates = problem()
    model = PartialLabelClassifier(method, epochs=3, random_state=0)
    search = GridSearchCV(model, {"method__beta": [0.0, 5.0], "epochs": [2, 3]}, cv=2).fit(x, candidates)
    assert search.best_params_.keys() == {"method__beta", "epochs"}
    assert search.best_estimator_.method_.beta == search.best_params_["method__beta"]
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    assert model.method is method


@pytest.mark.parametrize("name", DEEP)
def test_a_wrong_parameter_is_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} has no parameter strenght"):
        make(name, strenght=1)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("MoGD", "mogd"),
        ("PL-kNN", "plknn"),
        ("PRODEN", "proden"),
        ("mogd_paper", "mogd-paper"),
        ("supervized", "supervised"),
    ],
)
def test_a_near_name_is_suggested(given: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"must be one of mogd, .*; got '{given}' .did you mean '{meant}'"):
        make(given)
    if meant in DEEP:
        with pytest.raises(ValueError, match=f"method must be .*; got '{given}' .did you mean '{meant}'"):
            make_method(given)
    with pytest.raises(ValueError, match=r"got 'forest'$"):
        make("forest")


@pytest.mark.parametrize("name", DEEP)
@pytest.mark.parametrize("batch_size", [1, 7, 1000])
def test_any_batch_size(name: str, batch_size: int) -> None:
    x, _, candidates = problem(n=30)
    model = small(name, epochs=2, batch_size=batch_size).fit(x, candidates)
    assert np.isfinite(model.predict_proba(x)).all()
    assert np.isfinite([entry["loss"] for entry in model.history_]).all()


@pytest.mark.parametrize("name", DEEP)
def test_a_backbone_with_batch_norm_and_float64(name: str) -> None:
    x, _, candidates = problem(n=60)
    options = {"backbone": "mlp", "backbone_params": {"hidden": (16,)}, "epochs": 3, "dtype": "float64"}
    model = small(name, **options).fit(x, candidates)
    assert model.predict_proba(x).dtype == model.confidence_.dtype == np.float64
    assert np.isfinite(take_dense(model.confidence_)).all()
