"""MetaStep: MoGD's step on other methods, and what it refuses."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import mogd
from mogd import MetaStep
from mogd.algorithms import DEEP, make_method

CALLBACKS = ["clean-weight", "loss-schedule"]


def table(n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.normal(size=(n, 5)) + 1.5 * np.eye(4, 5)[y]
    return X, np.eye(4, dtype=bool)[y] | (rng.random((n, 4)) < 0.4), y


def fitted(method: str, callbacks: list[object], **params: object) -> mogd.PartialLabelClassifier:
    X, candidates, y = table()
    model = mogd.make(method, epochs=6, random_state=0, callbacks=callbacks, **params)
    return model.fit(X[40:], candidates[40:], X_val=X[:40], y_val=y[:40])


@pytest.mark.parametrize("backbone", ["linear", "rbf"])
@pytest.mark.parametrize("strength", [1.0, 0.3])
def test_cc_with_it_is_mogd_to_the_last_digit(backbone: str, strength: float) -> None:
    X, _, _ = table()
    own = fitted("mogd", CALLBACKS, backbone=backbone, strength=strength)
    worn = fitted("cc", [*CALLBACKS, MetaStep(strength)], backbone=backbone)
    assert np.array_equal(own.predict_proba(X), worn.predict_proba(X))
    assert [e["shrinkage"] for e in own.history_] == [e["shrinkage"] for e in worn.history_]
    assert not np.array_equal(worn.predict_proba(X), fitted("cc", CALLBACKS, backbone=backbone).predict_proba(X))


@pytest.mark.parametrize("backbone", ["linear", "mlp"])
def test_without_strength_nothing_changes(backbone: str) -> None:
    X, _, _ = table()
    plain, worn = (fitted("proden", list(extra), backbone=backbone) for extra in ((), (MetaStep(0.0),)))
    assert np.array_equal(plain.predict_proba(X), worn.predict_proba(X))
    assert "shrinkage" not in worn.history_[-1]


@pytest.mark.parametrize("method", ["crosel", "proden", "rc", "pop", "valen"])
def test_methods_that_ask_their_network_are_moved_by_it(method: str) -> None:
    X, _, _ = table()
    plain, worn = fitted(method, []), fitted(method, ["meta-step"])
    assert not np.array_equal(plain.predict_proba(X), worn.predict_proba(X))
    assert np.isfinite(worn.predict_proba(X)).all()
    assert worn.config_["callbacks"] == [{"name": "meta-step", "strength": 1.0}]


def test_clean_rows_that_another_callback_keeps_do_not_guide() -> None:
    X, _, _ = table()
    behind, before = (fitted("cc", list(c)) for c in (("meta-step", "early-stopping"), ("early-stopping", "meta-step")))
    assert np.array_equal(behind.predict_proba(X), before.predict_proba(X))
    assert not np.array_equal(behind.predict_proba(X), fitted("cc", ["early-stopping"]).predict_proba(X))


def test_a_fitted_classifier_keeps_no_rows_of_it() -> None:
    model = fitted("cc", [MetaStep()])
    again = pickle.loads(pickle.dumps(model))
    X, _, _ = table()
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    assert model.callbacks[0].meta_ is None


def test_it_has_no_part_in_a_phase_before_training() -> None:
    X, _, _ = table()
    pretraining = {"name": "clean-pretraining", "fraction": 0.3}
    plain, worn = (fitted("proden", [pretraining, *more], backbone="mlp") for more in ((), (MetaStep(0.0),)))
    assert np.array_equal(plain.predict_proba(X), worn.predict_proba(X))
    guided = fitted("proden", [pretraining, MetaStep()], backbone="mlp")
    assert "phase" in guided.history_[0]
    assert ["shrinkage" in entry for entry in guided.history_] == ["phase" not in entry for entry in guided.history_]


def test_what_it_cannot_move_is_refused() -> None:
    X, candidates, _ = table()
    for method in DEEP:
        if make_method(method).uses_log_prior and not method.startswith("mogd"):
            continue
        with pytest.raises(ValueError, match=r"has that step already|not made of its network's opinion"):
            fitted(method, ["meta-step"])
    with pytest.raises(ValueError, match="strength must be a number of 0 or more; got -1"):
        fitted("cc", [MetaStep(-1)])
    with pytest.raises(ValueError, match="strength must be a number of 0 or more; got '1'"):
        fitted("cc", [MetaStep("1")])
    with pytest.raises(ValueError, match=r"no clean rows: pass X_val and y_val \(in the shell --clean\)"):
        mogd.make("cc", epochs=2, callbacks=["meta-step"]).fit(X, candidates)
    square = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh())
    with pytest.raises(ValueError, match="does not end in a linear layer"):
        fitted("cc", ["meta-step"], backbone=square)
