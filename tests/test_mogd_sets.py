"""MoGD's second task: the features must tell a row's candidate set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mogd_tools import begin, problem
from test_alignment import Awkward
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from mogd import PartialLabelClassifier
from mogd.datasets.corrupt import binomial
from mogd.methods.base import Batch, TrainingData
from mogd.methods.common import with_features
from mogd.methods.mogd import MoGD
from mogd.methods.settask import SetTask
from mogd.methods.tangent import clean_gradient, logits_and_tangent
from mogd.nets import cnn, linear, mlp

pytestmark = pytest.mark.usefixtures("same_weights")


def small_mlp() -> nn.Module:
    return mlp((6,), 4, hidden=(8,), dropout=0.0).double()


def joined(method: MoGD, model: nn.Module) -> Batch:
    """Fourteen partial rows, and ten clean ones that joined them as the last."""
    x, candidates, clean_x, clean_y = problem(0, n=14, m=10)
    x, candidates = torch.cat([x, clean_x]), torch.cat([candidates, torch.eye(4, dtype=torch.bool)[clean_y]])
    weight = torch.ones(24, dtype=torch.float64)
    method.start(model, TrainingData(x, candidates, weight, clean_x, clean_y), torch.Generator().manual_seed(0))
    return Batch(torch.arange(24), x, candidates, method.init_confidence(candidates), weight)


@pytest.mark.parametrize("meta", ["all", "head"])
def test_the_second_head_pays_for_every_label_of_a_partial_row(meta: str) -> None:
    """0.7 Σ_k [log(1 + e^a_k) − S_k a_k] on top of the weighted cross entropy, but not for clean rows that joined."""
    model = small_mlp()
    method = MoGD(meta=meta, set_task=0.7, head_start=0.0)
    batch = joined(method, model)
    assert method.sets_ is not None
    assert all(not p.any() for p in method.parameters())
    with torch.no_grad():
        for p in method.parameters():
            p.copy_(torch.linspace(-1, 1, p.numel(), dtype=p.dtype).reshape(p.shape))
    losses: list[torch.Tensor] = []
    confidence = method.train_batch(model, batch, losses.append)
    with torch.no_grad():
        logits, features = with_features(model, batch.x)
    log_p, told = torch.log_softmax(logits, dim=1), method.sets_.head(features).detach()
    total = 0.0
    for i in range(24):
        for k in range(4):
            total -= float(confidence[i, k] * log_p[i, k])
            if i < 14:
                total += 0.7 * float(torch.log1p(told[i, k].exp()) - batch.candidates[i, k] * told[i, k])
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


def weight_of(method: MoGD, model: nn.Module, candidates: torch.Tensor, *shape: int) -> float:
    x, clean_x = (torch.zeros(n, *(shape or (1, 2, 3))) for n in (len(candidates), 20))
    data = TrainingData(x, candidates, torch.ones(len(x)), clean_x, torch.arange(20) % 4)
    method.start(model, data, torch.Generator())
    assert (method.sets_ is None) == (method.set_task_ == 0)
    return method.set_task_


def test_by_default_sets_of_images_are_told_where_labels_keep_company() -> None:
    pairs = torch.eye(4, dtype=torch.bool).repeat(100, 1)
    pairs |= pairs[:, [1, 0, 3, 2]]
    rng = np.random.default_rng(0)
    random = torch.tensor(binomial(rng.integers(4, size=4000), 4, 0.4, rng))
    net = mlp((1, 2, 3), 4)
    assert weight_of(MoGD(), net, pairs.repeat(10, 1)) == pytest.approx(0.3)
    assert weight_of(MoGD(), net, pairs.repeat(2, 1)[:520]) == pytest.approx(0.3 * 3 * (1 - 20 * 20 / 500))
    assert weight_of(MoGD(), net, pairs) == 0  # more than one row in twenty is clean
    assert weight_of(MoGD(), net, random) == 0
    assert weight_of(MoGD(), mlp((6,), 4), pairs.repeat(10, 1), 6) == 0  # a table
    assert weight_of(MoGD(set_task=0.1), mlp((6,), 4), pairs, 6) == 0.1
    assert weight_of(MoGD(set_task=0.0), net, pairs.repeat(10, 1)) == 0
    assert weight_of(MoGD.paper(), net, pairs.repeat(10, 1)) == 0
    assert weight_of(MoGD(), linear((1, 2, 3), 4), pairs.repeat(10, 1)) == 0  # its features are the row itself


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
    pairs = torch.eye(4, dtype=torch.bool).repeat(300, 1)
    pairs |= pairs[:, [1, 0, 3, 2]]
    assert weight_of(MoGD(), net(), pairs) == 0
    with pytest.raises(ValueError, match=rf"last nn\.Linear gives the logits, which {net.__name__} has not"):
        weight_of(MoGD(set_task=0.3), net(), pairs)
    x, y = torch.rand(4, 1, 2, 3), torch.arange(4)
    assert logits_and_tangent(net(), x, clean_gradient(net(), x, y))[2] is None


def test_the_second_head_trains_the_body_and_is_left_behind() -> None:
    """A trained model is the network alone; what the sets taught is in its body."""
    x, candidates, clean_x, clean_y = (np.asarray(t) for t in problem(3, n=200, m=20))
    models = [
        PartialLabelClassifier(MoGD(set_task=t, head_start=0.0), "mlp", epochs=3, random_state=0).fit(
            x, candidates, X_val=clean_x, y_val=clean_y
        )
        for t in (0.0, 0.3)
    ]
    plain, told = (dict(m.module_.state_dict()) for m in models)
    assert plain.keys() == told.keys()
    assert any(not torch.equal(plain[k], told[k]) for k in plain if k.startswith("body"))
    assert not hasattr(models[1].method_, "sets_")
    assert "trust" not in models[0].history_[0]
    assert all(0 <= entry["trust"] <= 10 for entry in models[1].history_)


def test_same_seed_same_bits() -> None:
    x, candidates, clean_x, clean_y = (np.asarray(t) for t in problem(4, n=60, m=12))
    fits = [
        PartialLabelClassifier(MoGD(set_task=0.3), "mlp", epochs=2, batch_size=7, random_state=1)
        .fit(x, candidates, X_val=clean_x, y_val=clean_y)
        .predict_proba(x)
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*fits)


def test_a_batch_of_clean_rows_alone_tells_no_set() -> None:
    method, model = MoGD(set_task=0.3, head_start=0.0, strength=0.0), small_mlp()
    batch = joined(method, model)
    rows = batch.index[-10:]
    clean = Batch(rows, batch.x[rows], batch.candidates[rows], batch.confidence[rows], batch.weight[rows])
    losses: list[torch.Tensor] = []
    method.train_batch(model, clean, losses.append)
    losses[0].backward()
    assert all(not p.grad.any() for p in method.parameters())


def test_rows_that_brought_a_set() -> None:
    """Not the clean rows that joined as the last; where none were given, not the rows with one candidate, which are
    taken for clean; all of them where the clean rows only guide."""
    method = MoGD(set_task=0.3)
    joined(method, small_mlp())
    assert method.brought_.tolist() == [True] * 14 + [False] * 10
    x, candidates, _, _ = problem(0)
    single = candidates.sum(dim=1) == 1
    assert 0 < single.sum() < len(x)
    data = TrainingData(x, candidates, torch.ones(len(x)), x[single], candidates[single].long().argmax(dim=1))
    method.start(small_mlp(), data, torch.Generator())
    assert method.brought_.tolist() == (~single).tolist()
    guided = MoGD(set_task=0.3, train_on_clean=False)
    begin(guided, small_mlp())
    assert guided.brought_.all()


def test_the_head_start_tells_sets_and_ends_with_a_calibration() -> None:
    """Each step: the clean labels' cross entropy and 0.3 times what telling the sets of as many partial rows costs."""
    method, model = MoGD(set_task=0.3, head_start=1.0), small_mlp().eval()
    batch = joined(method, model)
    assert method.sets_ is not None
    with torch.no_grad():
        method.sets_.head.weight.copy_(model.head.weight)
        method.sets_.head.bias.copy_(model.head.bias)
    losses: list[torch.Tensor] = []
    method._start_ahead(model, 6, losses.append)
    draws = torch.Generator().manual_seed(0)
    assert len(losses) == 4
    for loss in losses:
        rows, others = torch.randperm(10, generator=draws)[:6], torch.randint(14, (6,), generator=draws)
        known = cross_entropy(model(method.clean_x_[rows]), method.clean_y_[rows])
        a, told = model(batch.x[others]), batch.candidates[others].double()
        told = binary_cross_entropy_with_logits(a, told, reduction="none").sum(dim=1).mean()
        torch.testing.assert_close(loss, known + 0.3 * told)
    trust, method.sets_.trust = method.sets_.trust, -1.0
    assert trust == method.sets_.calibrate(model, method.clean_x_, method.clean_y_)


def test_trust_multiplies_the_prior_by_what_the_second_head_tells() -> None:
    """w ∝ p · m^trust on the candidates, m = 1 / (1 + e^-a)."""
    method, model = MoGD(set_task=0.3, head_start=0.0, strength=0.0), small_mlp()
    batch, _ = begin(method, model)
    assert method.sets_ is not None
    with torch.no_grad():
        method.sets_.head.weight.copy_(torch.linspace(-1, 1, 32, dtype=torch.float64).reshape(4, 8))
    method.sets_.trust = 2.5
    confidence = method.train_batch(model, batch, lambda loss: None)
    with torch.no_grad():
        logits, features = with_features(model, batch.x)
        p, m = torch.softmax(logits, dim=1), torch.sigmoid(method.sets_.head(features))
    for i in range(len(batch.x)):
        value = [float(p[i, j] * m[i, j] ** 2.5) if batch.candidates[i, j] else 0.0 for j in range(4)]
        np.testing.assert_allclose(confidence[i], np.array(value) / sum(value), rtol=1e-9)


@pytest.mark.parametrize(("scale", "expected"), [(2.0, None), (0.05, 10.0), (-1.0, 0.0)])
def test_trust_is_the_exponent_under_which_the_clean_labels_are_most_probable(
    scale: float, expected: float | None
) -> None:
    """P(y) ∝ m_y^trust, by a search over a fine grid; an opinion that is against the labels counts for nothing."""
    model = linear((4,), 4).double()  # its features are the row
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=60)
    x = torch.tensor(np.eye(4)[np.where(rng.random(60) < 0.8, y, rng.integers(4, size=60))])
    sets = SetTask(model, 4, 0.3)
    with torch.no_grad():
        sets.head.weight.copy_(scale * torch.eye(4))
    found = sets.calibrate(model, x, torch.tensor(y))
    log_m = -np.logaddexp(0, -scale * x.numpy())
    grid = np.linspace(0, 10, 1001)
    likelihood = [(t * log_m[range(60), y] - np.log(np.exp(t * log_m).sum(axis=1))).sum() for t in grid]
    assert found == sets.trust == pytest.approx(grid[np.argmax(likelihood)], abs=0.02)
    assert expected is None or found == pytest.approx(expected, abs=0.02)


def test_calibration_leaves_the_network_as_it_was() -> None:
    model = small_mlp()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [m.training for m in model.modules()]
    SetTask(model, 4, 0.3).calibrate(model, torch.randn(7, 6, dtype=torch.float64), torch.arange(7) % 4)
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


def test_sets_made_by_looks_are_trusted_and_teach() -> None:
    """The sets of a thousand rows and the labels of eight: with the sets told, a point and more in the mean."""
    gains = []
    for seed in range(3):
        (x, candidates, y), (clean_x, _, clean_y) = looks_alike(1000, seed), looks_alike(8, 100 + seed)
        scores = []
        for task in (0.0, 0.3):
            model = PartialLabelClassifier(MoGD(set_task=task, head_start=0.0), "mlp", epochs=10, random_state=0)
            model.fit(x, candidates, X_val=clean_x, y_val=clean_y)
            scores.append(100 * np.mean(model.predict(x) == y))
        gains.append(scores[1] - scores[0])
        assert model.history_[-1]["trust"] > 1
    assert np.mean(gains) > 1
