"""Callbacks: their formulas, their place in a run, and that every deep method wears every one or refuses it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from mogd_tools import problem
from sklearn.base import clone
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import mogd
from mogd import PartialLabelClassifier
from mogd.algorithms import DEEP, make, make_method
from mogd.callbacks import CALLBACKS, make_callback
from mogd.callbacks.base import Callback, Run
from mogd.callbacks.clean_pretraining import CleanPretraining
from mogd.callbacks.clean_weight import CleanWeight
from mogd.callbacks.early_stopping import EarlyStopping
from mogd.callbacks.loss_schedule import FINISH_SCALE, LossSchedule
from mogd.methods.base import Batch, TrainingData
from mogd.methods.cc import CC
from mogd.methods.proden import PRODEN
from mogd.nets import linear, mlp
from mogd.training import Settings, train

pytestmark = pytest.mark.usefixtures("same_weights")
SETTINGS = Settings(4, 10, "sgd", 0.1, 0.9, False, 0.0, "cosine", 50, 0.5)


def batch_of(seed: int = 0, **changes: Any) -> Batch:
    x, candidates, _, _ = problem(seed)
    weight = torch.ones(len(x), dtype=torch.float64)
    is_clean = torch.arange(len(x)) >= len(x) - 3
    confidence = candidates.double() / candidates.sum(dim=1, keepdim=True)
    return Batch(torch.arange(len(x)), x, candidates, confidence, weight, is_clean, **changes)


def joined(seed: int = 0, n: int = 14, m: int = 10, epochs: int = 4) -> TrainingData:
    """Partial rows, and clean ones that joined them as the last."""
    x, candidates, clean_x, clean_y = problem(seed, n=n, m=m)
    x, candidates = torch.cat([x, clean_x]), torch.cat([candidates, torch.eye(4, dtype=torch.bool)[clean_y]])
    is_clean = torch.arange(n + m) >= n
    return TrainingData(x, candidates, torch.ones(n + m).double(), clean_x, clean_y, epochs, is_clean)


@pytest.mark.parametrize(("warmup", "finish", "first", "last"), [(0.5, 0.25, 4, 6), (0.3, 0.0, 3, 8), (0.0, 1.0, 0, 0)])
def test_the_loss_goes_from_one_vs_all_over_cross_entropy_to_squared_error(
    warmup: float, finish: float, first: int, last: int
) -> None:
    """Σ_k log(1 + e^z_k) − Σ_j w_j z_j, then cross entropy, at last FINISH_SCALE · Σ_k (p_k − w_k)²."""
    model, schedule = linear((6,), 4).double(), LossSchedule(warmup, finish)
    for epoch in range(8):
        batch = batch_of(progress=epoch / 8)
        z, w = model(batch.x).detach(), batch.confidence
        losses: list[torch.Tensor] = []
        PRODEN().train_batch(model, batch, losses.append, [schedule])
        if epoch < first:
            expected = torch.log1p(z.exp()) - w * z
        elif epoch < last:
            expected = -w * torch.log_softmax(z, dim=1)
        else:
            expected = FINISH_SCALE * (torch.softmax(z, dim=1) - w) ** 2
        assert float(losses[0].detach()) == pytest.approx(float(expected.sum(dim=1).mean())), epoch


def test_clean_rows_have_their_weight_from_when_it_is_said() -> None:
    callback = CleanWeight(4.0, start_fraction=0.5)
    before, after = (callback.on_batch(batch_of(progress=p)).weight for p in (0.49, 0.5))
    assert set(before.tolist()) == {1.0}
    assert after.tolist() == [1.0] * 21 + [4.0] * 3


def test_pretraining_takes_its_share_of_steps_on_the_clean_rows_alone() -> None:
    """Half as many steps as the run has, at the run's first rate, in entries of their own; then the run."""
    data, model = joined(), mlp((6,), 4, dropout=0.0, batch_norm=False).double()
    first = cross_entropy(model(data.clean_x), data.clean_y)
    taken: list[int] = []
    body_before = model.body[1].weight.detach().clone()

    class Seen(Callback):
        def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
            taken.append(run.data.is_clean.sum().item())

    _, history = train(model, CC(), data, SETTINGS, torch.Generator(), callbacks=[CleanPretraining(0.5), Seen()])
    phases = [entry for entry in history if entry.get("phase") == "clean-pretraining"]
    assert sum(entry["steps"] for entry in phases) == round(0.5 * 4 * 24 / 10)
    assert [entry["steps"] for entry in phases] == [3, 2]  # as many as an epoch has
    assert all(entry["lr"] == 0.1 and entry["seconds"] > 0 and entry["epoch"] == 0 for entry in phases)
    assert phases[0]["loss"] < float(first.detach())
    assert [entry["epoch"] for entry in history if "phase" not in entry] == [1, 2, 3, 4]
    assert len(taken) == len(history) == 6
    assert not torch.equal(body_before, model.body[1].weight)


def test_pretraining_has_its_own_rate_and_may_leave_the_augmentation_out() -> None:
    shown: list[float] = []

    def augment(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        assert torch.equal(x, data.x[index])
        shown.append(float(x.sum()))
        return x

    for wanted in (True, False):
        shown.clear()
        data, model = joined(), linear((6,), 4).double()
        callback = CleanPretraining(0.5, lr=0.03, augment=wanted)
        _, history = train(model, CC(), data, SETTINGS, torch.Generator(), callbacks=[callback], augment=augment)
        assert history[0]["lr"] == 0.03
        assert len(shown) == (5 if wanted else 0) + 4 * 3


def test_early_stopping_holds_clean_rows_out_and_keeps_the_best_epoch() -> None:
    data, model = joined(n=60, m=40), linear((6,), 4).double()
    callback = EarlyStopping(patience=2, holdout=0.25)
    settings = Settings(50, 10, "sgd", 2.0, 0.9, False, 0.0, "constant", 50, 0.5)
    _, history = train(model, CC(), data, settings, torch.Generator(), callbacks=[callback])
    assert len(data.clean_y) == 30
    assert (data.weight == 0).sum() == 10
    assert data.is_clean[data.weight == 0].all()
    held = data.x[data.weight == 0]
    assert {tuple(row) for row in held.tolist()} == {tuple(row) for row in callback.held_x.tolist()}
    losses = [entry["held_out_loss"] for entry in history]
    assert len(losses) < 50
    assert losses.index(min(losses)) == len(losses) - 3
    kept = cross_entropy(model(callback.held_x), callback.held_y)
    assert float(kept.detach()) == pytest.approx(min(losses))


def digits(q: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    candidates = np.random.default_rng(0).random((len(y), 10)) < q
    candidates[np.arange(len(y)), y] = True
    return x / 16, candidates, y


# rates at which each learns the digits in ten epochs, as on its page
RATES = {"lws": {"lr": 0.3}, "exp": {"lr": 0.3}, "ga": {"weight_decay": 0.01, "epochs": 15}, "mogd-paper": {"lr": 0.3}}
PLAIN = {"ga": 0.55, "mogd-paper": 0.6, "supervised": 0.6, "d2cnn": 0.7}  # shares of labels right; others 0.8


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("name", DEEP)
def test_every_method_wears_every_callback_or_refuses_it_in_one_sentence(name: str, callback: str) -> None:
    x, candidates, y = digits()
    model = mogd.make(
        name,
        backbone="mlp",
        backbone_params={"hidden": (64,), "dropout": 0.0},
        random_state=0,
        callbacks=[callback],
        **({"lr": 0.1, "epochs": 8} | RATES.get(name, {})),
    )
    try:
        model.fit(x[200:800], candidates[200:800], X_val=x[:60], y_val=y[:60])
    except ValueError as error:
        said = str(error)
        assert said.startswith(f"{type(make_method(name)).__name__} cannot use the callback {callback!r}: ")
        assert ". " not in said
        return
    expected = [] if make_callback(callback).observer else [callback]
    assert [used["name"] for used in model.config_["callbacks"]] == expected
    assert np.mean(model.predict(x[800:]) == y[800:]) > PLAIN.get(name, 0.8)


def test_refusals_are_those_that_the_methods_name() -> None:
    def refused(callback: str) -> set[str]:
        data = joined(n=60, m=40)
        model = mlp((6,), 4).double()
        found = {name for name in DEEP if make_callback(callback).refusal(make_method(name), model, data)}
        return found

    assert refused("loss-schedule") == {"lws", "valen", "mse", "exp", "ga", "d2cnn", "crosel"}
    assert refused("clean-pretraining") == {"mogd-paper"}
    assert refused("clean-weight") == refused("candidate-set-head") == refused("early-stopping") == set()
    assert refused("candidate-cleaning") == set()


def test_auto_leaves_out_what_a_method_has_no_room_for() -> None:
    x, candidates, y = digits()
    used = {}
    for name in DEEP:
        model = mogd.make(name, epochs=1, random_state=0)
        with np.testing.suppress_warnings() as quiet:
            quiet.filter(UserWarning)
            model.fit(x[100:400], candidates[100:400], X_val=x[:20], y_val=y[:20])
        used[name] = [entry["name"] for entry in model.config_["callbacks"]]
    assert used["mogd"] == used["cc"] == used["proden"] == ["clean-weight", "loss-schedule"]
    assert used["lws"] == used["ga"] == ["clean-weight"]
    assert used["mogd-paper"] == []


def test_auto_joins_the_callbacks_before_and_after_it() -> None:
    x, candidates, y = digits()
    given = ["class-weight", "auto", {"name": "early-stopping", "patience": 5, "holdout": 0.25}]
    model = PartialLabelClassifier("cc", epochs=1, callbacks=given, random_state=0)
    model.fit(x[100:400], candidates[100:400], X_val=x[:20], y_val=y[:20])
    used = [entry["name"] for entry in model.config_["callbacks"]]
    assert used == ["class-weight", "clean-weight", "loss-schedule", "early-stopping"]


def test_callbacks_are_parameters_like_any_other(tmp_path) -> None:
    x, candidates, y = digits()
    given = [LossSchedule(0.4), "clean-weight", {"name": "clean-pretraining", "fraction": 0.1}]
    model = PartialLabelClassifier("cc", epochs=2, callbacks=given, random_state=0)
    copy = clone(model)
    assert copy.callbacks[0] is not given[0]
    assert copy.callbacks[0].get_params() == {"warmup_fraction": 0.4, "finish_fraction": 0.25}
    model.fit(x[100:300], candidates[100:300], X_val=x[:20], y_val=y[:20])
    assert [used["name"] for used in model.config_["callbacks"]] == [
        "loss-schedule",
        "clean-weight",
        "clean-pretraining",
    ]
    mogd.save(model, tmp_path / "model")
    loaded = mogd.load(tmp_path / "model")
    assert loaded.callbacks[0] == {"name": "loss-schedule", "warmup_fraction": 0.4, "finish_fraction": 0.25}
    again = loaded.set_params(random_state=0).fit(x[100:300], candidates[100:300], X_val=x[:20], y_val=y[:20])
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (["loss-shedule"], "a callback must be one of candidate-noise, .*; got 'loss-shedule'"),
        ([{"name": "loss-schedule", "warmup": 1}], "callback 'loss-schedule' has no parameter warmup; it has finish"),
        ([3], "callbacks must be 'auto' or a list of Callback objects and their names; got 3"),
    ],
)
def test_a_wrong_callback_is_refused_by_name(callbacks: list[Any], message: str) -> None:
    x, candidates, y = digits()
    with pytest.raises(ValueError, match=message):
        PartialLabelClassifier(epochs=1, callbacks=callbacks).fit(x, candidates, X_val=x[:20], y_val=y[:20])


def test_the_noise_of_candidates_is_measured_unless_it_is_given() -> None:
    assert make_callback("candidate-noise").get_params() == {"rate": "auto"}


def test_early_stopping_needs_enough_clean_rows_to_hold_some_out() -> None:
    X, y = load_digits(return_X_y=True)
    model = make("cc", epochs=1, callbacks=[EarlyStopping(holdout=0.25)])
    with pytest.raises(ValueError, match="early-stopping"):
        model.fit(X[:60], np.eye(10, dtype=bool)[y[:60]], X_val=X[60:64], y_val=y[60:64])
