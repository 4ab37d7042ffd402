"""The candidate-set head: a second task for the body, and a second opinion on the label."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mogd_tools import problem
from test_alignment import Awkward
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mogd import PartialLabelClassifier
from mogd.callbacks.base import Run
from mogd.callbacks.candidate_set_head import CandidateSetHead
from mogd.callbacks.clean_pretraining import CleanPretraining
from mogd.methods.base import Batch, Method, TrainingData
from mogd.methods.cc import CC
from mogd.methods.common import with_features
from mogd.methods.mogd import MoGD
from mogd.methods.tangent import clean_gradient, logits_and_tangent
from mogd.nets import cnn, linear, mlp
from mogd.training import Settings

pytestmark = pytest.mark.usefixtures("same_weights")
SETTINGS = Settings(1, 6, "sgd", 0.1, 0.0, False, 0.0, "constant", 50, 0.5)


def small_mlp() -> nn.Module:
    return mlp((6,), 4, hidden=(8,), dropout=0.0).double()


def begun(model: nn.Module, head: CandidateSetHead, method: Method | None = None) -> tuple[Batch, Run]:
    """Fourteen partial rows, and ten clean ones that joined them as the last, with which the run has begun."""
    x, candidates, clean_x, clean_y = problem(0, n=14, m=10)
    x, candidates = torch.cat([x, clean_x]), torch.cat([candidates, torch.eye(4, dtype=torch.bool)[clean_y]])
    weight, is_clean = torch.ones(24, dtype=torch.float64), torch.arange(24) >= 14
    data = TrainingData(x, candidates, weight, clean_x, clean_y, is_clean=is_clean)
    run = Run(model, method or CC(), data, SETTINGS, torch.Generator().manual_seed(0), [head])
    head.start(run)
    run.method.start(model, data, run.generator)
    return run.batch(torch.arange(24), run.method.init_confidence(candidates), 0.0), run


@pytest.mark.parametrize("method", [CC(), MoGD(meta="all"), MoGD(meta="head")], ids=["cc", "mogd", "mogd-head"])
def test_the_second_head_pays_for_every_label_of_a_partial_row(method: Method) -> None:
    """0.7 Σ_k [log(1 + e^a_k) − S_k a_k] on top of the weighted cross entropy, but not for clean rows that joined."""
    model, head = small_mlp(), CandidateSetHead(0.7)
    batch, _ = begun(model, head, method)
    assert all(not p.any() for p in head.parameters())
    with torch.no_grad():
        for p in head.parameters():
            p.copy_(torch.linspace(-1, 1, p.numel(), dtype=p.dtype).reshape(p.shape))
    losses: list[torch.Tensor] = []
    confidence = method.train_batch(model, batch, losses.append, [head])
    with torch.no_grad():
        logits, features = with_features(model, batch.x)
    log_p, set_logits = torch.log_softmax(logits, dim=1), head.head_(features).detach()
    total = 0.0
    for i in range(24):
        for k in range(4):
            total -= float(confidence[i, k] * log_p[i, k])
            if i < 14:
                total += 0.7 * float(torch.log1p(set_logits[i, k].exp()) - batch.candidates[i, k] * set_logits[i, k])
    assert float(losses[0].detach()) == pytest.approx(total / 24)


@pytest.mark.filterwarnings("ignore:Awkward has an operation")
@pytest.mark.parametrize(
    ("net", "shape"),
    [(small_mlp, (6,)), (lambda: cnn((1, 4, 4), 4).double(), (1, 4, 4)), (lambda: Awkward().double(), (7,))],
)
def test_features_of_the_meta_pass_are_those_that_the_step_back_propagates(net, shape: tuple[int, ...]) -> None:
    model = net()
    x = torch.randn(12, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(12) % 4
    logits, _, features = logits_and_tangent(model, x, clean_gradient(model, x, y), features=True)
    expected_logits, expected = with_features(model, x)
    torch.testing.assert_close(logits, expected_logits)
    assert features is not None
    torch.testing.assert_close(features, expected)
    body = next(model.parameters())
    (found,) = torch.autograd.grad(features.square().sum() + logits.sum(), body)
    (wanted,) = torch.autograd.grad(expected.square().sum() + expected_logits.sum(), body)
    torch.testing.assert_close(found, wanted)


class Sums(nn.Module):
    """Logits without a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x.flatten(1)[:, :4]


class Unused(Sums):
    """Its linear layer is never called."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 4)


class Tokens(nn.Module):
    """Its linear layer sees three vectors of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(1, 5, (2, 1)), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).flatten(2).transpose(1, 2)).mean(dim=1)


@pytest.mark.parametrize("net", [Sums, Unused, Tokens])
def test_a_network_whose_logits_do_not_come_from_a_linear_layer_has_no_second_head(net: type[nn.Module]) -> None:
    x, y = torch.rand(4, 1, 2, 3), torch.arange(4)
    data = TrainingData(x, torch.eye(4, dtype=torch.bool), torch.ones(4), x, y)
    said = CandidateSetHead().refusal(CC(), net(), data)
    assert said == f"it needs a network whose last nn.Linear gives the logits, which {net.__name__} has not"
    assert logits_and_tangent(net(), x, clean_gradient(net(), x, y))[2] is None
    assert "no layer before the last" in (CandidateSetHead().refusal(CC(), linear((1, 2, 3), 4), data) or "")


def test_the_second_head_trains_the_body_and_is_left_behind() -> None:
    """A trained model is the network alone; what the sets taught is in its body."""
    x, candidates, clean_x, clean_y = (np.asarray(t) for t in problem(3, n=200, m=20))
    models = [
        PartialLabelClassifier("mogd", "mlp", epochs=3, random_state=0, callbacks=callbacks).fit(
            x, candidates, X_val=clean_x, y_val=clean_y
        )
        for callbacks in ([], [CandidateSetHead(0.3)])
    ]
    plain, other = (dict(m.module_.state_dict()) for m in models)
    assert plain.keys() == other.keys()
    assert any(not torch.equal(plain[k], other[k]) for k in plain if k.startswith("body"))
    assert "prior_exponent" not in models[0].history_[0]
    assert all(0 <= entry["prior_exponent"] <= 10 for entry in models[1].history_)


def test_same_seed_same_bits() -> None:
    x, candidates, clean_x, clean_y = (np.asarray(t) for t in problem(4, n=60, m=12))
    given = ["candidate-set-head", {"name": "clean-pretraining", "fraction": 0.5}]
    fits = [
        PartialLabelClassifier("mogd", "mlp", epochs=2, batch_size=7, random_state=1, callbacks=given)
        .fit(x, candidates, X_val=clean_x, y_val=clean_y)
        .predict_proba(x)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*fits)


def test_a_batch_of_clean_rows_alone_predicts_no_set() -> None:
    model, head = small_mlp(), CandidateSetHead(0.3)
    _, run = begun(model, head)
    clean = run.batch(torch.arange(14, 24), run.data.candidates[14:].double(), 0.0)
    losses: list[torch.Tensor] = []
    CC().train_batch(model, clean, losses.append, [head])
    losses[0].backward()
    assert all(not p.grad.any() for p in head.parameters())


def test_pretraining_trains_the_second_head_on_partial_rows_and_ends_with_an_exponent() -> None:
    """Each step: the clean labels' cross entropy and 0.3 times the cost of predicting as many partial sets."""
    model, head = small_mlp().eval(), CandidateSetHead(0.3)
    _, run = begun(model, head)
    with torch.no_grad():
        head.head_.weight.copy_(model.head.weight)
        head.head_.bias.copy_(model.head.bias)
    callback, draws = CleanPretraining(1.0), torch.Generator().manual_seed(0)
    taken = callback._step(run, torch.optim.SGD(model.parameters(), lr=0.0), 6)
    rows, others = torch.randperm(10, generator=draws)[:6], torch.randint(14, (6,), generator=draws)
    known = cross_entropy(model(run.data.clean_x[rows]), run.data.clean_y[rows])
    a, sets = model(run.data.x[others]), run.data.candidates[others].double()
    cost = binary_cross_entropy_with_logits(a, sets, reduction="none").sum(dim=1).mean()
    assert taken == pytest.approx(float((known + 0.3 * cost).detach()))
    callback.before_training(run)
    assert sum(entry["steps"] for entry in run.history) == 4
    assert run.history[-1]["prior_exponent"] == head.exponent_
    assert head.exponent_ == head.best_exponent(model, run.data.clean_x, run.data.clean_y)


@pytest.mark.parametrize("method", [CC(), MoGD(strength=0.0)], ids=["cc", "mogd"])
def test_the_exponent_multiplies_the_prior_by_the_second_opinion(method: Method) -> None:
    """w ∝ p · m^t on the candidates, m = 1 / (1 + e^-a)."""
    model, head = small_mlp(), CandidateSetHead(0.3)
    batch, _ = begun(model, head, method)
    with torch.no_grad():
        head.head_.weight.copy_(torch.linspace(-1, 1, 32, dtype=torch.float64).reshape(4, 8))
    head.exponent_ = 2.5
    confidence = method.train_batch(model, batch, lambda loss: None, [head])
    with torch.no_grad():
        logits, features = with_features(model, batch.x)
        p, m = torch.softmax(logits, dim=1), torch.sigmoid(head.head_(features))
    for i in range(len(batch.x)):
        value = [float(p[i, j] * m[i, j] ** 2.5) if batch.candidates[i, j] else 0.0 for j in range(4)]
        np.testing.assert_allclose(confidence[i], np.array(value) / sum(value), rtol=1e-9)


@pytest.mark.parametrize(("scale", "expected"), [(2.0, None), (0.05, 10.0), (-1.0, 0.0)])
def test_the_exponent_is_the_one_under_which_the_clean_labels_are_most_probable(
    scale: float, expected: float | None
) -> None:
    """P(y) ∝ m_y^t, by a search over a fine grid; an opinion that is against the labels counts for nothing."""
    model = linear((4,), 4).double()  # its features are the row
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=60)
    x = torch.tensor(np.eye(4)[np.where(rng.random(60) < 0.8, y, rng.integers(4, size=60))])
    head = CandidateSetHead()
    data = TrainingData(x, torch.ones(60, 4, dtype=torch.bool), torch.ones(60), x, torch.tensor(y))
    head.start(Run(model, CC(), data, SETTINGS, torch.Generator()))
    with torch.no_grad():
        head.head_.weight.copy_(scale * torch.eye(4))
    found = head.best_exponent(model, x, torch.tensor(y))
    log_m = -np.logaddexp(0, -scale * x.numpy())
    grid = np.linspace(0, 10, 1001)
    likelihood = [(t * log_m[range(60), y] - np.log(np.exp(t * log_m).sum(axis=1))).sum() for t in grid]
    assert found == pytest.approx(grid[np.argmax(likelihood)], abs=0.02)
    assert expected is None or found == pytest.approx(expected, abs=0.02)


def test_choosing_the_exponent_leaves_the_network_as_it_was() -> None:
    model, head = small_mlp(), CandidateSetHead()
    _, run = begun(model, head)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    head.best_exponent(model, run.data.clean_x, run.data.clean_y)
    assert modes == [m.training for m in model.modules()]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


def looks_alike(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Six classes on a circle; the two nearest are candidates, and others the likelier the less farther they are."""
    rng = np.random.default_rng(seed)
    y = rng.integers(6, size=n)
    place = y + rng.normal(scale=0.3, size=n)
    x = np.stack([np.cos(place * np.pi / 3), np.sin(place * np.pi / 3)], axis=1)
    distance = np.abs((place[:, None] - np.arange(6) + 3) % 6 - 3)
    candidates = rng.random((n, 6)) < np.exp(-2 * (distance - np.sort(distance, axis=1)[:, [1]]))
    candidates[np.arange(n), y] = True
    return x, candidates, y


def test_sets_made_by_looks_are_worth_an_exponent_and_teach() -> None:
    """The sets of a thousand rows and the labels of eight: with the second head, a point and more in the mean."""
    gains = []
    for seed in range(3):
        (x, candidates, y), (clean_x, _, clean_y) = looks_alike(1000, seed), looks_alike(8, 100 + seed)
        scores = []
        for callbacks in ([], [CandidateSetHead(0.3)]):
            model = PartialLabelClassifier("mogd", "mlp", epochs=10, random_state=0, callbacks=callbacks)
            model.fit(x, candidates, X_val=clean_x, y_val=clean_y)
            scores.append(100 * np.mean(model.predict(x) == y))
        gains.append(scores[1] - scores[0])
        assert model.history_[-1]["prior_exponent"] > 1
    assert np.mean(gains) > 1
