"""What is chosen for the user: a pure function of a small profile, and what it left in `config_`."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from mogd_tools import problem
from torch import nn

import mogd
from mogd import PartialLabelClassifier
from mogd.config import DataProfile, cooccurrence, network_kind, recommend
from mogd.datasets.corrupt import binomial
from mogd.methods.base import TrainingData
from mogd.nets import cnn, linear, mlp

TABLE = DataProfile(
    n_rows=800,
    n_clean=20,
    n_classes=4,
    epochs=10,
    cooccurrence=0.25,
    network="mlp",
    input="table",
    clean_covers_classes=True,
    clean_given=True,
    ends_in_linear=True,
)
IMAGES = replace(TABLE, network="convolutional", input="image", n_rows=12_000, n_clean=128)


@pytest.mark.parametrize(("n_rows", "warmup"), [(400, 0.5), (8000, 0.125)])
def test_linear_models_have_a_loss_schedule_with_a_shorter_warmup_where_rows_are_many(
    n_rows: int, warmup: float
) -> None:
    found = recommend(replace(TABLE, network="linear", n_rows=n_rows))
    assert found["loss-schedule"] == {"warmup_fraction": pytest.approx(warmup), "finish_fraction": 0.25}
    assert found["clean-weight"]["start_fraction"] == pytest.approx(warmup)
    assert "loss-schedule" not in recommend(TABLE)


def test_kernel_features_have_a_weight_decay_of_their_own() -> None:
    assert recommend(replace(TABLE, network="kernel"))["optimizer"] == {"weight_decay": 3e-3}
    assert recommend(TABLE)["optimizer"] == {"weight_decay": 1e-3}
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(3, size=40)
    for backbone, value in (("rbf", 3e-3), ("linear", 1e-3)):
        left_open = mogd.make("cc", backbone=backbone, epochs=2, random_state=0).fit(X, y)
        given = mogd.make("cc", backbone=backbone, epochs=2, random_state=0, weight_decay=value).fit(X, y)
        assert left_open.config_["weight_decay"] == given.config_["weight_decay"] == value
        assert np.array_equal(left_open.predict_proba(X), given.predict_proba(X))
    with pytest.raises(ValueError, match="weight_decay must be a number of 0 or more"):
        mogd.make("cc", weight_decay="much").fit(X, y)


@pytest.mark.parametrize(("m", "expected"), [(400, 5.0), (40, 3.0), (4, 1.2)])
def test_fewer_clean_rows_weigh_less(m: int, expected: float) -> None:
    assert recommend(replace(TABLE, n_rows=1600, n_clean=m))["clean-weight"]["weight"] == pytest.approx(expected)


def test_clean_images_weigh_more_in_the_second_half_only() -> None:
    assert recommend(IMAGES)["clean-weight"]["start_fraction"] == 0.5
    assert recommend(TABLE)["clean-weight"]["start_fraction"] == 0.0


def test_rows_that_were_only_assumed_clean_weigh_as_others() -> None:
    assert "clean-weight" not in recommend(replace(TABLE, clean_given=False))


@pytest.mark.parametrize(
    ("changes", "fraction"),
    [
        ({}, 0.5),  # half of the ratio is clean
        ({"network": "linear"}, None),
        ({"network": "kernel"}, None),
        ({"cooccurrence": 0.0}, None),
        ({"cooccurrence": 0.125}, 0.125),
        ({"n_clean": 40}, None),
        ({"clean_covers_classes": False}, None),
        ({"epochs": 1000}, 1500 * 20 / (1000 * 820)),  # 1500 visits of a clean row at most
    ],
)
def test_few_clean_rows_come_first_where_labels_occur_together(changes: dict, fraction: float | None) -> None:
    found = recommend(replace(TABLE, **changes)).get("clean-pretraining")
    assert found == (None if fraction is None else {"fraction": pytest.approx(fraction)})


@pytest.mark.parametrize(
    ("changes", "weight"),
    [
        ({}, 0.3),
        ({"n_clean": 480}, 0.3 * 3 * (1 - 20 * 480 / 12_000)),
        ({"n_clean": 600}, None),  # one row in twenty is clean
        ({"cooccurrence": 0.04}, None),  # wrong candidates at random
        ({"input": "table"}, None),
        ({"network": "linear"}, None),
        ({"ends_in_linear": False}, None),
        ({"clean_covers_classes": False}, None),
        ({"sources": 3}, None),  # the sets are what they said, and that is known better
    ],
)
def test_the_candidate_set_head_is_for_images_whose_labels_occur_together(changes: dict, weight: float | None) -> None:
    found = recommend(replace(IMAGES, **changes)).get("candidate-set-head")
    assert found == (None if weight is None else {"weight": pytest.approx(weight)})


def test_convolutional_networks_take_the_meta_step_over_the_head() -> None:
    assert recommend(IMAGES)["method"]["meta"] == "head"
    assert recommend(TABLE)["method"]["meta"] == "all"


@pytest.mark.parametrize("q", [0.1, 0.7])
def test_random_wrong_candidates_have_no_cooccurrence_to_speak_of(q: float) -> None:
    rng = np.random.default_rng(0)
    y = rng.choice(10, size=3000, p=np.arange(1, 11) / 55)  # frequent labels are everybody's companions
    assert (4 * cooccurrence(torch.tensor(binomial(y, 10, q, rng)))) ** 2 < 0.03
    pairs = torch.eye(4, dtype=torch.bool).repeat(100, 1)
    assert cooccurrence(pairs | pairs[:, [1, 0, 3, 2]]) == pytest.approx(0.5)


def test_kinds_of_networks() -> None:
    nets = [linear((6,), 4), mlp((6,), 4), cnn((1, 4, 4), 4), nn.Sequential(nn.Flatten(), linear((1, 2, 3), 4))]
    assert [network_kind(net) for net in nets] == ["linear", "mlp", "convolutional", "linear"]


def test_the_profile_counts_what_it_is_shown() -> None:
    x, candidates, clean_x, clean_y = problem(0, n=14, m=10)
    x, candidates = torch.cat([x, clean_x]), torch.cat([candidates, torch.eye(4, dtype=torch.bool)[clean_y]])
    is_clean = torch.arange(24) >= 14
    data = TrainingData(x, candidates, torch.ones(24), clean_x, clean_y, epochs=7, is_clean=is_clean)
    profile = DataProfile.of(mlp((6,), 4).double(), data, clean_given=True)
    assert (profile.n_rows, profile.n_clean, profile.n_classes, profile.epochs) == (14, 10, 4, 7)
    assert (profile.network, profile.input, profile.ends_in_linear) == ("mlp", "table", True)


def test_what_was_chosen_can_be_read_and_is_saved(tmp_path) -> None:
    x, candidates, clean_x, clean_y = (np.asarray(t) for t in problem(3, n=200, m=5))
    model = PartialLabelClassifier(epochs=3, random_state=0).fit(x, candidates, X_val=clean_x, y_val=clean_y)
    assert json.loads(json.dumps(model.config_)) == model.config_
    assert [callback["name"] for callback in model.config_["callbacks"]] == ["clean-weight", "loss-schedule"]
    assert model.config_["method"]["name"] == "mogd"
    assert model.config_["method"]["meta"] == model.method_.meta == "all"
    assert model.config_["profile"]["n_clean"] == 5
    mogd.save(model, tmp_path / "model")
    loaded = mogd.load(tmp_path / "model")
    assert loaded.config_ == model.config_
    assert loaded.get_params()["callbacks"] == "auto"


def test_a_clean_weight_given_by_the_user_always_holds() -> None:
    x, candidates, clean_x, clean_y = (np.asarray(t) for t in problem(3, n=200, m=20))
    clean = {"X_val": clean_x, "y_val": clean_y}
    model = PartialLabelClassifier(epochs=2, clean_weight=7.0, random_state=0).fit(x, candidates, **clean)
    assert [callback["name"] for callback in model.config_["callbacks"]] == ["loss-schedule"]
    assert model.config_["clean_weight"] == 7.0
    with pytest.raises(ValueError, match="clean_weight and a CleanWeight callback both say"):
        model.set_params(callbacks=[{"name": "clean-weight", "weight": 3.0}]).fit(x, candidates, **clean)
