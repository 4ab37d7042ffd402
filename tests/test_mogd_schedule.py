"""MoGD over a run: head start, warm-up, the clean rows' later weight, finish."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mogd_tools import begin, problem
from torch import nn
from torch.nn.functional import cross_entropy

from mogd.datasets.corrupt import binomial
from mogd.methods.base import Batch, TrainingData
from mogd.methods.mogd import MoGD
from mogd.nets import linear, mlp

pytestmark = pytest.mark.usefixtures("same_weights")


@pytest.mark.parametrize(("method", "warm", "done"), [(MoGD(), 4, 6), (MoGD(warmup=0.3, finish=0.0), 3, 8)])
def test_the_loss_goes_from_one_vs_all_over_cross_entropy_to_squared_error(method: MoGD, warm: int, done: int) -> None:
    """Σ_k log(1 + e^z_k) − Σ_j w_j z_j of rows that weigh alike, then cross entropy with the rows' weights, at last
    finish_scale · Σ_k (p_k − w_k)²: a half, a quarter and a quarter of the epochs unless the user says otherwise."""
    model = linear((6,), 4).double()
    x, candidates, clean_x, clean_y = problem(0)
    weight = torch.ones(len(x), dtype=torch.float64)
    weight[-3:] = 5.0
    method.start(model, TrainingData(x, candidates, weight, clean_x, clean_y, epochs=8), torch.Generator())
    batch = Batch(torch.arange(len(x)), x, candidates, method.init_confidence(candidates), weight)
    z = model(x).detach()
    for epoch in range(8):
        losses: list[torch.Tensor] = []
        w = method.train_batch(model, batch, losses.append)
        if epoch < warm:
            expected, weighs = torch.log1p(z.exp()) - w * z, torch.ones_like(weight)
        elif epoch < done:
            expected, weighs = -w * torch.log_softmax(z, dim=1), weight
        else:
            expected, weighs = method.finish_scale * (torch.softmax(z, dim=1) - w) ** 2, weight
        mean = (weighs * expected.sum(dim=1)).sum() / weighs.sum()
        assert float(losses[0].detach()) == pytest.approx(float(mean)), epoch
        method.epoch_end(model, epoch)


def test_warmup_is_for_linear_models_and_shorter_where_rows_are_many() -> None:
    for net, n, share in ((linear((6,), 4), 400, 0.5), (linear((6,), 4), 8020, 0.125), (mlp((6,), 4), 400, 0.0)):
        method = MoGD()
        begin(method, net.double(), n=n, m=20)
        assert method.warmup_ == pytest.approx(share)


def sets_of(size: int, n_rows: int) -> torch.Tensor:
    """Candidates of four classes: single ones, or the fixed pairs {0, 1} and {2, 3}."""
    single = torch.eye(4, dtype=torch.bool).repeat(n_rows // 4, 1)
    return single | single[:, [1, 0, 3, 2]] if size == 2 else single


@pytest.mark.parametrize(
    ("net", "m", "missing", "size", "share"),
    [
        (linear, 20, False, 2, 0.0),
        (mlp, 20, False, 2, 0.5),
        (mlp, 20, False, 1, 0.0),
        (mlp, 80, False, 2, 0.0),
        (mlp, 20, True, 2, 0.0),
    ],
)
def test_few_clean_rows_come_first_in_a_deeper_network(net, m: int, missing: bool, size: int, share: float) -> None:
    """One clean row in forty, labels in fixed pairs: steps on the clean rows alone, half as many as the run has."""
    method, model = MoGD(), net((6,), 4).double()
    x, _, clean_x, clean_y = problem(0, n=800 + m, m=m)
    candidates = sets_of(size, len(x))
    clean_y[clean_y == 3] = 0 if missing else 3
    weight = torch.ones(len(x), dtype=torch.float64)
    method.start(model, TrainingData(x, candidates, weight, clean_x, clean_y, epochs=10), torch.Generator())
    assert method.head_start_ == pytest.approx(share)
    batch = Batch(torch.arange(41), x[:41], candidates[:41], method.init_confidence(candidates)[:41], weight[:41])
    model.eval()  # no dropout, no batch statistics: the loss of a step can be told from the network alone
    ahead = cross_entropy(model(clean_x), clean_y)
    losses: list[torch.Tensor] = []
    for _ in range(2):
        method.train_batch(model, batch, losses.append)
    n_ahead = round(share * 10 * 820 / 41)
    assert len(losses) == n_ahead + 2
    for loss in losses[:n_ahead]:
        torch.testing.assert_close(loss, ahead)


@pytest.mark.parametrize("q", [0.1, 0.7])
def test_no_head_start_to_speak_of_where_wrong_candidates_are_drawn_at_random(q: float) -> None:
    rng = np.random.default_rng(0)
    y = rng.choice(10, size=3000, p=np.arange(1, 11) / 55)  # frequent labels are everybody's companions
    candidates = torch.tensor(binomial(y, 10, q, rng))
    data = TrainingData(torch.zeros(3000, 6), candidates, torch.ones(3000), torch.zeros(20, 6), torch.arange(20) % 10)
    method = MoGD()
    method.start(mlp((6,), 10), data, torch.Generator())
    assert method.head_start_ < 0.01


def test_a_long_run_visits_each_clean_row_1500_times_at_most_in_the_head_start() -> None:
    x, _, clean_x, clean_y = problem(0, n=820, m=20)
    method = MoGD()
    data = TrainingData(x, sets_of(2, 820), torch.ones(820, dtype=torch.float64), clean_x, clean_y, epochs=1000)
    method.start(mlp((6,), 4).double(), data, torch.Generator())
    assert method.rows_ahead_ == pytest.approx(1500 * 20)


def test_a_single_clean_row_gives_no_head_start_and_the_user_may_set_its_length() -> None:
    for m, steps in ((1, 0), (2, 3)):
        method, model, losses = MoGD(head_start=3.0), mlp((6,), 4).double(), []
        batch, _ = begin(method, model, m=m)
        method.train_batch(model, batch, losses.append)
        assert len(losses) == steps + 1


def test_a_deeper_network_ends_as_it_began() -> None:
    method = MoGD()
    begin(method, mlp((6,), 4).double())
    assert method.finish_ == 0
    begin(method, linear((6,), 4).double())
    assert method.finish_ == 0.25


def test_clean_images_weigh_no_more_than_others_in_the_first_half() -> None:
    """A network on images learns rows by heart that weigh more from the start; a table's rows keep their weight."""
    for shape, heavy in (((6,), [0, 1, 2, 3]), ((1, 2, 3), [2, 3])):
        x, candidates, clean_x, clean_y = problem(0)
        model = nn.Sequential(nn.Flatten(), mlp((6,), 4)).double().eval()
        weight = torch.ones(len(x), dtype=torch.float64)
        weight[:5] = 5.0
        method = MoGD(strength=0.0, set_task=0.0)
        data = TrainingData(x.reshape(-1, *shape), candidates, weight, clean_x.reshape(-1, *shape), clean_y, epochs=4)
        method.start(model, data, torch.Generator())
        batch = Batch(torch.arange(len(x)), data.x, candidates, method.init_confidence(candidates), weight)
        log_p = torch.log_softmax(model(data.x), dim=1)
        share = torch.softmax(log_p.masked_fill(~candidates, -torch.inf), dim=1)
        each = -(share * log_p).sum(dim=1).detach()
        for epoch in range(4):
            losses: list[torch.Tensor] = []
            method.train_batch(model, batch, losses.append)
            own = weight if epoch in heavy else torch.ones_like(weight)
            assert float(losses[-1].detach()) == pytest.approx(float((own * each).sum() / own.sum())), (shape, epoch)
            method.epoch_end(model, epoch)
