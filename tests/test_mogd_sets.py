"""MoGD's second task: the features must tell a row's candidate set."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mogd_tools import begin, problem
from torch import nn

from mogd import PartialLabelClassifier
from mogd.datasets.corrupt import binomial
from mogd.methods.base import Batch, TrainingData
from mogd.methods.common import with_features
from mogd.methods.mogd import MoGD
from mogd.methods.tangent import clean_gradient, logits_and_tangent
from mogd.nets import cnn, linear, mlp

pytestmark = pytest.mark.usefixtures("same_weights")


def small_mlp() -> nn.Module:
    return mlp((6,), 4, hidden=(8,), dropout=0.0).double()


@pytest.mark.parametrize("meta", ["all", "head"])
def test_the_second_head_pays_for_every_label_of_a_partial_row(meta: str) -> None:
    """0.7 Σ_k [log(1 + e^a_k) − S_k a_k] on top of the weighted cross entropy, but not for clean rows that joined."""
    model = small_mlp()
    method = MoGD(meta=meta, set_task=0.7, head_start=0.0)
    batch, _ = begin(method, model, n=24, m=10)
    assert method.set_head_ is not None
    assert all(not p.any() for p in method.parameters())
    with torch.no_grad():
        for p in method.parameters():
            p.copy_(torch.linspace(-1, 1, p.numel(), dtype=p.dtype).reshape(p.shape))
    losses: list[torch.Tensor] = []
    confidence = method.train_batch(model, batch, losses.append)
    with torch.no_grad():
        logits, features = with_features(model, batch.x)
    log_p, told = torch.log_softmax(logits, dim=1), method.set_head_(features).detach()
    total = 0.0
    for i in range(24):
        for k in range(4):
            total -= float(confidence[i, k] * log_p[i, k])
            if i < 24 - 10:
                total += 0.7 * float(torch.log1p(told[i, k].exp()) - batch.candidates[i, k] * told[i, k])
    assert float(losses[0].detach()) == pytest.approx(total / 24)


class Composed(nn.Module):
    """An operation without a forward derivative: MoGD falls back to double backward."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.Twice.apply(torch.tanh(self.body(x))))


@pytest.mark.filterwarnings("ignore:Composed has an operation")
@pytest.mark.parametrize(
    ("net", "shape"), [(small_mlp, (6,)), (lambda: cnn((1, 4, 4), 4).double(), (1, 4, 4)), (Composed().double, (6,))]
)
def test_features_of_the_meta_pass_are_those_that_the_step_back_propagates(net, shape: tuple[int, ...]) -> None:
    model = net()
    x = torch.randn(12, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = torch.arange(12) % 4
    logits, _, features = logits_and_tangent(model, x, clean_gradient(model, x, y))
    expected_logits, expected = with_features(model, x)
    torch.testing.assert_close(logits, expected_logits)
    assert features is not None
    torch.testing.assert_close(features, expected)
    body = next(model.parameters())
    (found,) = torch.autograd.grad(features.square().sum() + logits.sum(), body)
    (wanted,) = torch.autograd.grad(expected.square().sum() + expected_logits.sum(), body)
    torch.testing.assert_close(found, wanted)


def weight_of(method: MoGD, model: nn.Module, candidates: torch.Tensor) -> float:
    n = len(candidates)
    data = TrainingData(torch.zeros(n, 6), candidates, torch.ones(n), torch.zeros(20, 6), torch.arange(20) % 4)
    method.start(model, data, torch.Generator())
    assert (method.set_head_ is None) == (method.set_task_ == 0)
    return method.set_task_


def test_by_default_sets_are_told_where_labels_keep_company() -> None:
    pairs = torch.eye(4, dtype=torch.bool).repeat(100, 1)
    pairs |= pairs[:, [1, 0, 3, 2]]
    rng = np.random.default_rng(0)
    random = torch.tensor(binomial(rng.integers(4, size=4000), 4, 0.4, rng))
    assert weight_of(MoGD(), mlp((6,), 4), pairs) == pytest.approx(0.3)
    assert weight_of(MoGD(), mlp((6,), 4), random) < 0.02
    assert weight_of(MoGD(set_task=0.0), mlp((6,), 4), pairs) == 0
    assert weight_of(MoGD.paper(), mlp((6,), 4), pairs) == 0
    assert weight_of(MoGD(), linear((6,), 4), pairs) == 0  # its features are the row itself


def test_a_network_without_a_last_linear_layer_has_no_second_head() -> None:
    class Sums(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * x[:, :4]

    pairs = torch.eye(4, dtype=torch.bool).repeat(30, 1)
    pairs |= pairs[:, [1, 0, 3, 2]]
    assert weight_of(MoGD(), Sums(), pairs) == 0
    with pytest.raises(ValueError, match=r"Sums has no nn\.Linear"):
        weight_of(MoGD(set_task=0.3), Sums(), pairs)


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
    assert not hasattr(models[1].method_, "set_head_")


def test_same_seed_same_bits_with_and_without_a_single_row_batch() -> None:
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
    batch, _ = begin(method, model, n=24, m=10)
    rows = batch.index[-10:]
    clean = Batch(rows, batch.x[rows], batch.candidates[rows], batch.confidence[rows], batch.weight[rows])
    losses: list[torch.Tensor] = []
    method.train_batch(model, clean, losses.append)
    losses[0].backward()
    assert all(not p.grad.any() for p in method.parameters())
