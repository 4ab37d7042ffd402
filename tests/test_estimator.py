"""The estimators' face: what scikit-learn's users expect of `make`, `fit` and `score`, beside the contract tests."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import mogd
from mogd import PartialLabelClassifier
from mogd.algorithms import ALGORITHMS


@pytest.fixture(scope="module")
def wine() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X, y = load_wine(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    X, y = X[order], y[order]
    candidates = rng.random((len(y), 3)) < 0.4
    candidates[np.arange(len(y)), y] = True
    return X, y, candidates


def test_score_takes_labels_whatever_their_index(wine) -> None:
    X, y, candidates = wine
    model = PartialLabelClassifier("cc", scale="standard", epochs=5, random_state=0).fit(X, candidates)
    expected = float(np.mean(model.predict(X[40:]) == y[40:]))
    for labels in (y[40:], tuple(y[40:]), [*y[40:]], pd.Series(y[40:], index=np.arange(40, len(y)))):
        assert model.score(X[40:], labels) == pytest.approx(expected)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_takes_a_random_state(name: str) -> None:
    mogd.make(name, random_state=0)


def test_a_parameter_of_the_method_never_reaches_the_classifier() -> None:
    assert mogd.make("lws", method__warmup_epochs=3).method.warmup_epochs == 3
    assert mogd.make("lws", warmup_epochs=3).method.warmup_epochs == 3
    with pytest.raises(ValueError, match="the method d2cnn has no parameter momentum; it has"):
        mogd.make("d2cnn", method__momentum=0.5)
    assert mogd.make("d2cnn", momentum=0.5).momentum == 0.5


@pytest.mark.parametrize("scaler", [StandardScaler, MinMaxScaler])
def test_clean_rows_that_a_pipeline_left_unscaled_are_noticed(wine, scaler: type) -> None:
    X, y, candidates = wine
    model = PartialLabelClassifier("mogd", epochs=2, random_state=0)
    clean = {"X_val": X[:50], "y_val": y[:50]}
    with pytest.warns(UserWarning, match=r"X_val has another scale .*transform_input=\[\"X_val\"\]"):
        model.fit(scaler().fit_transform(X[50:]), candidates[50:], **clean)
    with warnings.catch_warnings(), sklearn.config_context(enable_metadata_routing=True):
        warnings.simplefilter("error")
        steps = make_pipeline(scaler(), model.set_fit_request(X_val=True, y_val=True), transform_input=["X_val"])
        steps.fit(X[50:], candidates[50:], **clean)


def test_clean_rows_of_one_class_alone_are_no_cause_for_a_warning(wine) -> None:
    X, y, candidates = wine
    only = np.flatnonzero(y == 0)
    rest = np.setdiff1d(np.arange(len(y)), only[:40])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = PartialLabelClassifier("cc", epochs=2, random_state=0)
        model.fit(X[rest], candidates[rest], X_val=X[only[:40]], y_val=y[only[:40]])
