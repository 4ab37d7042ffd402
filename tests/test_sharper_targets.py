"""SharperTargets: its formula, when it acts, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from mogd_tools import problem
from sklearn.datasets import load_digits

import mogd
from mogd.algorithms import DEEP, make_method
from mogd.callbacks.sharper_targets import SharperTargets
from mogd.evidence import Evidence
from mogd.methods.base import Batch, Output, TrainingData
from mogd.methods.cc import CC
from mogd.methods.mogd import MoGD
from mogd.methods.proden import PRODEN
from mogd.nets import linear, mlp


def rows(**changes: Any) -> tuple[Batch, TrainingData]:
    x, candidates, clean_x, clean_y = problem(0)
    weight = torch.ones(len(x)).double()
    confidence = candidates.double() / candidates.sum(dim=1, keepdim=True)
    batch = Batch(torch.arange(len(x)), x, candidates, confidence, weight, **changes)
    return batch, TrainingData(x, candidates, weight, clean_x, clean_y)


@pytest.mark.parametrize("temperature", [0.5, 0.25, 2.0])
def test_the_networks_probabilities_enter_as_a_power(temperature: float) -> None:
    """w ∝ p^(1/T) · the opinions beside it, and in MoGD · exp(step), neither of which is sharpened."""
    model = linear((6,), 4).double()
    batch, data = rows(progress=0.5)
    beside = torch.tensor([0.0, 1.0, 0.0, -1.0]).double()
    out = Output(model(batch.x), log_prior=beside)
    SharperTargets(temperature).on_output(out, batch)
    expected = torch.softmax(out.logits.detach(), dim=1) ** (1 / temperature) * beside.exp() * batch.candidates
    expected /= expected.sum(dim=1, keepdim=True)
    torch.testing.assert_close(CC().confidence(out, batch), expected)
    torch.testing.assert_close(PRODEN().updated(model, out, batch.confidence, batch), expected)
    guided = MoGD(beta=0.3, shrink=False)
    guided.start(model, data, torch.Generator())
    out.alignments = [torch.arange(4).double().expand(len(batch.x), 4)]
    stepped = expected * (0.3 * out.alignments[0]).exp()
    torch.testing.assert_close(guided.confidence(out, batch), stepped / stepped.sum(dim=1, keepdim=True))


@pytest.mark.parametrize(("progress", "exponent"), [(0.0, 1), (0.19, 1), (0.2, 2), (0.9, 2), (1.0, 1)])
def test_it_begins_after_a_fifth_of_the_epochs_and_leaves_the_final_posterior_alone(
    progress: float, exponent: float
) -> None:
    batch, _ = rows(progress=progress)
    out = Output(torch.zeros(24, 4))
    SharperTargets().on_output(out, batch)
    assert out.network_exponent == exponent


def test_refusals_say_why() -> None:
    model = mlp((6,), 4).double()
    _, data = rows()
    refused = {name for name in DEEP if SharperTargets().refusal(make_method(name), model, data)}
    own = {name for name in DEEP if not make_method(name).uses_log_prior}
    assert own == {"supervised", "pce", "lws", "mse", "exp", "ga", "d2cnn"}
    assert refused == own | {"crosel"}
    assert "temperature of their own" in str(SharperTargets().refusal(make_method("crosel"), model, data))
    assert "above 0; got 0" in str(SharperTargets(0).refusal(CC(), model, data))
    data.evidence = Evidence.__new__(Evidence)
    assert "beside the sources' is found on the clean rows" in str(SharperTargets().refusal(CC(), model, data))


def test_a_fit_on_kernel_features_wears_it_and_repeats_itself() -> None:
    x, y = load_digits(return_X_y=True)
    candidates = np.random.default_rng(0).random((len(y), 10)) < 0.3
    candidates[np.arange(len(y)), y] = True
    given, clean = (x[20:620], candidates[20:620]), {"X_val": x[:20], "y_val": y[:20]}
    first, second, plain = (
        mogd.make("mogd", backbone="rbf", scale="minmax", epochs=5, random_state=0, callbacks=callbacks).fit(
            *given, **clean
        )
        for callbacks in (["auto", "sharper-targets"], ["auto", "sharper-targets"], "auto")
    )
    used = [entry["name"] for entry in first.config_["callbacks"]]
    assert used == ["clean-weight", "loss-schedule", "sharper-targets"]
    assert np.array_equal(first.confidence_, second.confidence_)
    assert first.confidence_.max(axis=1).mean() > plain.confidence_.max(axis=1).mean()
    assert first.score(x[620:], y[620:]) > 0.85
