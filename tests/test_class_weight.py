"""Class weights: of sets by expectation, of labels as in scikit-learn, for every deep method."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.estimator_checks import check_class_weight_classifiers

import mogd
from mogd.algorithms import ALGORITHMS, DEEP
from mogd.callbacks.class_weight import ClassWeight, balanced
from mogd.methods.base import Batch, Output, TrainingData


def imbalanced(n: int = 400, rare: float = 0.08, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Three overlapping classes, one of them rare; each wrong label joins with probability 0.3."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, size=n, p=[(1 - rare) / 2, (1 - rare) / 2, rare])
    centres = np.array([[0.0, 0.0], [3.0, 0.0], [1.5, 1.5]])
    X = centres[y] + rng.normal(size=(n, 2))
    sets = rng.random((n, 3)) < 0.3
    sets[np.arange(n), y] = True
    return X, y, sets


def quick(name: str = "cc", **params: Any) -> Any:
    return mogd.make(name, **({"epochs": 30, "scale": "standard", "random_state": 0} | params))


def data_of(sets: np.ndarray, weight: np.ndarray) -> TrainingData:
    x, none = torch.zeros(len(sets), 1, dtype=torch.float64), torch.zeros(0, dtype=torch.long)
    return TrainingData(x, torch.from_numpy(sets), torch.from_numpy(weight), x[:0], none, epochs=1)


def test_balanced_is_scikit_learns_for_labels_and_counts_sets_in_expectation() -> None:
    _, y, sets = imbalanced()
    weight = np.random.default_rng(1).random(len(y))
    ours = balanced(data_of(np.eye(3, dtype=bool)[y], weight)).numpy()
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=y, sample_weight=weight)
    np.testing.assert_allclose(ours, theirs)
    counts = np.zeros(3)
    for row in sets:
        for k in np.flatnonzero(row):
            counts[k] += 1 / row.sum()
    np.testing.assert_allclose(balanced(data_of(sets, np.ones(len(y)))).numpy(), len(y) / (3 * counts))
    empty = np.column_stack([sets, np.zeros(len(y), dtype=bool)])
    assert balanced(data_of(empty, np.ones(len(y))))[3] == 1.0


def test_a_row_has_the_expected_weight_of_its_candidates() -> None:
    rng = np.random.default_rng(0)
    logits, sets = torch.from_numpy(rng.normal(size=(20, 3))), rng.random((20, 3)) < 0.5
    sets[np.arange(20), rng.integers(3, size=20)] = True
    callback = ClassWeight([1.0, 4.0, 0.5])
    callback.weight_ = torch.tensor(callback.weights, dtype=torch.float64)
    rows = torch.from_numpy(rng.random(20))
    batch = Batch(torch.arange(20), torch.zeros(20, 1), torch.from_numpy(sets), logits, rows)
    callback.on_output(Output(logits, log_prior=torch.tensor([0.0, 1.0, -1.0])), batch)
    for i in range(20):
        odds = {j: np.exp(logits[i, j].item() + (0.0, 1.0, -1.0)[j]) for j in np.flatnonzero(sets[i])}
        mean = sum(odds[j] * (1.0, 4.0, 0.5)[j] for j in odds) / sum(odds.values())
        assert batch.weight[i].item() == pytest.approx(rows[i].item() * mean)


def test_labels_with_class_weight_are_labels_with_row_weights() -> None:
    X, y, _ = imbalanced()
    by_class = quick(class_weight={0: 1.0, 2: 6.0}).fit(X, y)
    by_row = quick().fit(X, y, sample_weight=np.where(y == 2, 6.0, 1.0))
    np.testing.assert_array_equal(by_class.predict_proba(X), by_row.predict_proba(X))


TAKING = [name for name in DEEP if name != "ga"]


@pytest.mark.parametrize("name", TAKING)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_check_of_class_weights(name: str) -> None:
    check_class_weight_classifiers(name, quick(name, epochs=12, lr=0.3))


@pytest.mark.parametrize("name", TAKING)
@pytest.mark.filterwarnings("ignore")
def test_every_deep_method_finds_more_of_a_heavy_class(name: str) -> None:
    X, y, sets = imbalanced()
    test_X, test_y, _ = imbalanced(seed=1, n=2000)
    clean = {"X_val": X[:40], "y_val": y[:40]}
    target = np.eye(3, dtype=bool)[y] if ALGORITHMS[name].needs_labels else sets
    plain, heavy = (
        quick(name, class_weight=weight).fit(X[40:], target[40:], **clean) for weight in (None, {0: 1, 1: 1, 2: 12})
    )
    recall = [np.mean(model.predict(test_X[test_y == 2]) == 2) for model in (plain, heavy)]
    assert recall[1] > recall[0] + 0.05
    assert {"name": "class-weight", "weights": [1.0, 1.0, 12.0]} in heavy.config_["callbacks"]


@pytest.mark.parametrize("name", ["mogd", "cc", "proden"])
def test_balanced_helps_a_rare_class(name: str) -> None:
    scores = []
    for weight in (None, "balanced"):
        found = []
        for seed in range(3):
            X, y, sets = imbalanced(seed=seed)
            test_X, test_y, _ = imbalanced(seed=100 + seed, n=2000)
            model = quick(name, class_weight=weight).fit(X[40:], sets[40:], X_val=X[:40], y_val=y[:40])
            found.append(balanced_accuracy_score(test_y, model.predict(test_X)))
        scores.append(np.mean(found))
    assert scores[1] > scores[0] + 0.02


def test_balanced_counts_the_sets_as_given_where_they_are_opened() -> None:
    X, _, sets = imbalanced()
    plain, opened = (quick(class_weight="balanced", candidate_noise=rate).fit(X, sets) for rate in (None, 0.05))
    weights = [model.config_["callbacks"][-1]["weights"] for model in (plain, opened)]
    assert weights[0] == weights[1]
    assert weights[0][2] > 1.3


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        ("even", "class_weight must be None, 'balanced' or a dict of weights; got 'even'"),
        ({"x": 2.0}, "class_weight names x, but the classes are 0, 1, 2"),
        ({0: -1.0}, "its weights must be 0 or more"),
        ({0: 0, 1: 0, 2: 0}, "not all 0"),
    ],
)
def test_what_is_wrong_is_said(weight: Any, said: str) -> None:
    X, _, sets = imbalanced()
    with pytest.raises(ValueError, match=said):
        quick(class_weight=weight).fit(X, sets)


def test_a_list_of_weights_has_one_for_each_class() -> None:
    sets = np.eye(3, dtype=bool)
    method, data = mogd.algorithms.make_method("cc"), data_of(sets, np.ones(3))
    said = ClassWeight([1.0, 2.0]).refusal(method, torch.nn.Linear(1, 3), data)
    assert said == "it needs one weight for each of the 3 classes; got 2"
    assert ClassWeight([1.0, 2.0, 3.0]).refusal(method, torch.nn.Linear(1, 3), data) is None
    assert ClassWeight([0.0, 2.0, 3.0]).refusal(method, torch.nn.Linear(1, 3), data) is None  # one that is left out


def test_ga_and_classical_methods_refuse_it() -> None:
    X, _, sets = imbalanced()
    with pytest.raises(ValueError, match="GA cannot use the callback 'class-weight'"):
        quick("ga", class_weight="balanced").fit(X, sets)
    for algorithm in ALGORITHMS.values():
        if not algorithm.is_deep:
            with pytest.raises(ValueError, match=f"{algorithm.name} has no parameter class_weight"):
                mogd.make(algorithm.name, class_weight="balanced")


def test_a_saved_model_can_be_fitted_again(tmp_path: Path) -> None:
    X, y, _ = imbalanced()
    model = quick(class_weight={2: 6.0}, epochs=3).fit(X, y)
    mogd.save(model, tmp_path / "model")
    again = mogd.load(tmp_path / "model").fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
