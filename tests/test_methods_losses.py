"""The losses and confidence updates of the deep rivals against loops in float64 that share no code with them."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from forms_tools import sets_of
from torch import nn

from mogd import PartialLabelClassifier
from mogd.methods.base import Batch, Output, TrainingData
from mogd.methods.cc import CC
from mogd.methods.common import fresh_logits
from mogd.methods.crosel import CroSel
from mogd.methods.d2cnn import D2CNN
from mogd.methods.exp import EXP
from mogd.methods.ga import GA, valid_prior
from mogd.methods.lws import LWS
from mogd.methods.mse import MSE
from mogd.methods.pce import PCE
from mogd.methods.pop import POP
from mogd.methods.proden import PRODEN
from mogd.methods.rc import RC
from mogd.methods.rows import by_rows
from mogd.methods.valen import VALEN

N, D, K = 12, 5, 4
ALL = [CC, RC, PRODEN, LWS, VALEN, MSE, EXP, GA, D2CNN, POP, CroSel]


def make_problem(seed=0, classes=None):
    """Rows of every kind (one candidate, several, all of them), unequal row weights and unequal class frequencies."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    share = torch.tensor([0.7, 0.5, 0.3, 0.1])
    candidates = torch.rand(N, K, generator=generator) < share
    candidates[torch.arange(N), torch.randint(K, (N,), generator=generator)] = True
    candidates[0] = True
    candidates[1] = torch.tensor([False, False, True, False])
    weight = torch.rand(N, generator=generator, dtype=torch.float64) + 0.5
    net = nn.Linear(D, K, dtype=torch.float64)
    with torch.no_grad():
        net.weight.copy_(torch.randn(K, D, generator=generator, dtype=torch.float64))
        net.bias.copy_(torch.randn(K, generator=generator, dtype=torch.float64))
        if classes is not None:
            net.weight.copy_(net.weight[classes].clone())
            net.bias.copy_(net.bias[classes].clone())
            candidates = candidates[:, classes]
    data = TrainingData(x, sets_of(candidates), weight, x[:0], torch.empty(0, dtype=torch.long))
    return net, data


def make_batch(method, data, index):
    confidence = by_rows(method.init_confidence, data.candidates).to(torch.float64)
    return Batch(index, data.x[index], data.candidates[index], confidence[index], data.weight[index])


def run(method, classes=None, index=None, learning_rate=0.3):
    """One `train_batch` with a plain gradient step: the loss, the new confidence, the network and the batch."""
    net, data = make_problem(classes=classes)
    torch.manual_seed(3)
    method.start(net, data, torch.Generator().manual_seed(0))
    batch = make_batch(method, data, torch.arange(N) if index is None else index)
    losses = []

    def step(loss):
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= learning_rate * p.grad

    confidence = method.train_batch(net, batch, step)
    assert len(losses) == 1
    return losses[0], confidence.numpy(), net, batch


def probabilities(z):
    top = max(z)
    e = [math.exp(v - top) for v in z]
    return [v / sum(e) for v in e]


def before_and_after(net_after):
    """Logits of all rows before the step and after it, as lists."""
    net, data = make_problem()
    with torch.no_grad():
        return net(data.x).tolist(), net_after(data.x).tolist(), data.candidates[:].tolist(), data.weight.tolist()


def weighted_mean(values, weight):
    return sum(v * w for v, w in zip(values, weight, strict=True)) / sum(weight)


def normalised(z, mask):
    p = probabilities(z)
    mass = sum(v for v, m in zip(p, mask, strict=True) if m)
    return [v / mass if m else 0.0 for v, m in zip(p, mask, strict=True)]


@pytest.mark.usefixtures("both_forms")
def test_cc_steps_along_the_gradient_of_minus_the_log_of_the_candidate_mass():
    _, _, after, _ = run(CC(), learning_rate=0.3)
    net, data = make_problem()
    mass = (torch.softmax(net(data.x), dim=1) * data.candidates[:]).sum(dim=1)
    assert mass[0].item() == pytest.approx(1)  # a row with all candidates
    ((data.weight * -mass.log()).sum() / data.weight.sum()).backward()
    for before, now in zip(net.parameters(), after.parameters(), strict=True):
        torch.testing.assert_close(now, before - 0.3 * before.grad, rtol=1e-10, atol=1e-12)


def test_cc_survives_candidates_whose_probability_underflows():
    logits = torch.tensor([[0.0, 1000.0, 2000.0]], requires_grad=True)
    batch = Batch(torch.tensor([0]), logits, torch.tensor([[True, False, False]]), torch.ones(1, 3), torch.ones(1))
    out = Output(logits)
    loss = CC().losses(out, CC().confidence(out, batch), batch)
    loss.sum().backward()
    assert loss.item() == pytest.approx(2000)
    assert logits.grad.tolist() == [[-1, 0, 1]]


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize(("method", "fresh"), [(PRODEN, False), (RC, True)])
def test_proden_and_rc_differ_only_in_when_they_look(method, fresh):
    loss, confidence, after, _ = run(method())
    z, z_after, sets, weight = before_and_after(after)
    rows = []
    for r, s in zip(z, sets, strict=True):
        p = probabilities(r)
        rows.append(-sum(math.log(p[j]) / sum(s) for j in range(K) if s[j]))
    assert loss == pytest.approx(weighted_mean(rows, weight), rel=1e-12)
    expected = [normalised(r, s) for r, s in zip(z_after if fresh else z, sets, strict=True)]
    np.testing.assert_allclose(confidence, expected, rtol=1e-10, atol=1e-14)
    assert not np.allclose(confidence, [normalised(r, s) for r, s in zip(z if fresh else z_after, sets, strict=True)])


@pytest.mark.usefixtures("both_forms")
def test_proden_never_loses_a_candidate_for_good():
    net, data = make_problem()
    method = PRODEN()
    batch = make_batch(method, data, torch.arange(N))
    batch.confidence = torch.where(batch.candidates.cumsum(1) == 1, batch.candidates.double(), 0.0)
    assert (method.train_batch(net, batch, lambda loss: None)[batch.candidates] > 0).all()


@pytest.mark.parametrize(("beta", "surrogate"), [(1.0, "sigmoid"), (2.0, "sigmoid"), (2.0, "cross-entropy")])
def test_lws_weighs_both_sides_and_normalises_each(beta, surrogate):
    method = LWS(beta=beta, surrogate=surrogate)
    loss, confidence, after, batch = run(method)
    z, z_after, sets, weight = before_and_after(after)

    def sigmoid(v):
        return 1 / (1 + math.exp(-v))

    def row(r, s, w):
        if surrogate == "cross-entropy":
            p = probabilities(r)
            return sum(-w[j] * math.log(p[j]) if s[j] else -beta * w[j] * math.log(1 - p[j]) for j in range(K))
        return sum(w[j] * sigmoid(-r[j]) if s[j] else beta * w[j] * sigmoid(r[j]) for j in range(K))

    first = [row(r, s, [1 / K] * K) for r, s in zip(z, sets, strict=True)]
    assert loss == pytest.approx(weighted_mean(first, weight), rel=1e-12)
    expected = [normalised(r, s) for r, s in zip(z_after, sets, strict=True)]
    np.testing.assert_allclose(confidence, expected, rtol=1e-10, atol=1e-14)

    off = [normalised(r, [not m for m in s]) if not all(s) else [0.0] * K for r, s in zip(z_after, sets, strict=True)]
    second = [row(r, s, np.add(a, b)) for r, s, a, b in zip(z_after, sets, expected, off, strict=True)]
    with torch.no_grad():
        rows = method.losses(Output(after(batch.x)), batch.confidence, batch)
    assert torch.isfinite(method.weight_).all()
    np.testing.assert_allclose(rows, second, rtol=1e-10)


def test_lws_holds_its_equal_weights_for_the_warm_up():
    method = LWS(warmup_epochs=2)
    run(method)
    assert (method.weight_ == 1 / K).all()
    method.epoch_end(None, 0)
    net, data = make_problem()
    method.train_batch(net, make_batch(method, data, torch.arange(N)), lambda loss: None)
    assert (method.weight_ != 1 / K).any(dim=1).all()


def complementary_rows(loss_of_label):
    """`Σ_S ℓ − (K−1−s)/s Σ_S̄ ℓ` of each row by loops over the labels; 0 for a row that rules out none."""
    net, data = make_problem()
    rows = []
    for r, s in zip(net(data.x).tolist(), data.candidates[:].tolist(), strict=True):
        p, ruled_out = probabilities(r), K - sum(s)
        if ruled_out == 0:
            rows.append(0.0)
            continue
        inside = sum(loss_of_label(p, j) for j in range(K) if s[j])
        outside = sum(loss_of_label(p, j) for j in range(K) if not s[j])
        rows.append(inside - (K - 1 - ruled_out) / ruled_out * outside)
    return rows, data.weight.tolist()


@pytest.mark.usefixtures("both_forms")
def test_mse_is_the_unbiased_risk_of_the_squared_loss():
    loss, _, _, _ = run(MSE())
    rows, weight = complementary_rows(lambda p, y: sum((p[k] - (k == y)) ** 2 for k in range(K)))
    assert loss == pytest.approx(weighted_mean(rows, weight), rel=1e-12)


@pytest.mark.usefixtures("both_forms")
def test_exp_is_the_exponential_of_the_candidate_mass():
    loss, _, after, _ = run(EXP())
    z, _, sets, weight = before_and_after(after)
    rows = []
    for r, s in zip(z, sets, strict=True):
        mass, ruled_out = sum(p for p, m in zip(probabilities(r), s, strict=True) if m), K - sum(s)
        rows.append(2 * (K - 1) / ruled_out * math.exp(-mass) if ruled_out else 0.0)
    assert loss == pytest.approx(weighted_mean(rows, weight), rel=1e-12)


def ga_by_pairs(z, sets, weight, prior):
    """The risk of each class from an explicit list of (row, ruled-out label) pairs, and the weight of each class."""
    pairs = [(i, j) for i, s in enumerate(sets) for j in range(K) if not s[j]]
    loss = [[-math.log(p) for p in probabilities(r)] for r in z]
    count = [sum(weight[i] for i, j in pairs if j == k) for k in range(K)]

    def mean(j, k):
        return sum(weight[i] * loss[i][k] for i, label in pairs if label == j) / count[j] if count[j] else 0.0

    risk = [-(K - 1) * prior[k] * mean(k, k) + sum(prior[j] * mean(j, k) for j in range(K)) for k in range(K)]
    return risk, count


def ga_prior(sets, weight):
    """`π̄_k = (1 − π_k) / (K − 1)` from the shares of the pairs, with no π_k below zero."""
    pairs = [sum(w for s, w in zip(sets, weight, strict=True) if not s[k]) for k in range(K)]
    implied = [max(0, 1 - (K - 1) * v / sum(pairs)) for v in pairs]
    return [(1 - v / sum(implied)) / (K - 1) for v in implied]


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("rows", [range(N), [0, 1, 1], [0, 4, 7, 9]])
def test_ga_risks_match_explicit_pairs(rows):
    index = torch.tensor(list(rows))
    net, data = make_problem()
    method = GA()
    method.start(net, data, torch.Generator())
    prior = ga_prior(data.candidates[:].tolist(), data.weight.tolist())
    assert max(prior) > 1.1 * min(prior)  # the case in which a vector in the place of π̄_j shows
    np.testing.assert_allclose(method.prior_, prior, rtol=1e-12)
    batch = make_batch(method, data, index)
    risk, count = method.risks(net(batch.x), batch)
    expected, expected_count = ga_by_pairs(
        net(batch.x).tolist(), batch.candidates.tolist(), batch.weight.tolist(), prior
    )
    np.testing.assert_allclose(risk.detach(), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(count, expected_count, rtol=1e-12)


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("flat", [True, False])
def test_ga_descends_on_positive_risks_and_ascends_on_negative_ones(flat):
    net, data = make_problem()
    if flat:  # with balanced classes its risks are positive; those of a confident model on unbalanced ones are not
        data.candidates = sets_of(torch.eye(K, dtype=torch.bool).repeat(N // K, 1))
        data.weight[:] = 1
        nn.init.zeros_(net.weight)
        nn.init.zeros_(net.bias)
    method = GA()
    method.start(net, data, torch.Generator())
    batch = make_batch(method, data, torch.arange(N))
    risk, count = method.risks(net(batch.x), batch)
    negative = [r * c for r, c in zip(risk.tolist(), (count / count.mean()).tolist(), strict=True) if r < 0]
    losses = []
    method.train_batch(net, batch, losses.append)
    assert bool(negative) != flat
    assert losses[0].item() == pytest.approx(-sum(negative) if negative else risk.sum().item(), rel=1e-12)
    (gradient,) = torch.autograd.grad(losses[0], net.bias)
    goal = (risk * count / count.mean()).clamp(max=0).sum() if negative else risk.sum()
    (of_goal,) = torch.autograd.grad(goal, net.bias)
    torch.testing.assert_close(gradient, -of_goal if negative else of_goal)


def test_ga_keeps_shares_that_a_class_prior_explains_and_moves_the_others():
    kept = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)  # class priors
    torch.testing.assert_close(valid_prior((1 - kept) / 3), (1 - kept) / 3)
    never = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)  # 0.4 > 1/3: the implied priors are −0.2, 0.1, …
    expected = (1 - torch.tensor([0, 0.1, 0.4, 0.7], dtype=torch.float64) / 1.2) / 3
    torch.testing.assert_close(valid_prior(never), expected)


def test_ga_with_no_ruled_out_label_takes_no_step():
    net, data = make_problem()
    data.candidates[:] = True
    method = GA()
    method.start(net, data, torch.Generator())
    losses = []
    method.train_batch(net, make_batch(method, data, torch.arange(N)), losses.append)
    assert losses[0].item() == 0
    assert all((g == 0).all() for g in torch.autograd.grad(losses[0], list(net.parameters())))


def test_d2cnn_terms_and_running_outputs():
    method = D2CNN(discrimination=0.3, ensembling=2.0, output_momentum=0.6, ramp=4)
    net, data = make_problem()
    method.start(net, data, torch.Generator())
    batch = make_batch(method, data, torch.arange(N))
    target = [[m / sum(s) for m in s] for s in data.candidates[:].tolist()]
    running = np.zeros((N, K))
    for epoch in range(6):
        z, sets = net(data.x).tolist(), data.candidates[:].tolist()
        ramp = math.exp(-5 * (1 - min(1, epoch / 4)) ** 2)
        rows = []
        for r, s, t in zip(z, sets, target, strict=True):
            p = probabilities(r)
            inside = normalised(r, s)
            mass = sum(v for v, m in zip(p, s, strict=True) if m)
            entropy = -sum(v * math.log(v) for v in inside if v > 0)
            drift = sum((a - b) ** 2 for a, b in zip(p, t, strict=True))
            rows.append(-math.log(mass) + 0.3 * entropy + 2.0 * ramp * drift)
        losses = []
        batch.confidence = method.train_batch(net, batch, losses.append)
        assert losses[0].item() == pytest.approx(weighted_mean(rows, data.weight.tolist()), rel=1e-10)
        running = 0.6 * running + 0.4 * np.array([probabilities(r) for r in z])
        corrected = running / (1 - 0.6 ** (epoch + 1)) * np.array(sets)
        target = (corrected / corrected.sum(axis=1, keepdims=True)).tolist()
        np.testing.assert_allclose(batch.confidence, target, rtol=1e-10, atol=1e-14)
        method.epoch_end(net, epoch)
        with torch.no_grad():
            net.bias += torch.linspace(-0.5, 0.5, K)


def test_d2cnn_derivative_is_the_one_that_torch_records():
    method = D2CNN(discrimination=0.3, ensembling=2.0, ramp=1)
    net, data = make_problem()
    method.start(net, data, torch.Generator())
    method.epoch_end(net, 0)  # the temporal term at its full weight
    batch = make_batch(method, data, torch.arange(N))
    log_p = torch.log_softmax(net(data.x), dim=1)
    mass = (log_p.exp() * data.candidates).sum(dim=1)
    inside = torch.where(data.candidates, log_p.exp() / mass[:, None], 1.0)
    drift = (log_p.exp() - batch.confidence).square().sum(dim=1)
    expected = batch.mean(-mass.log() - 0.3 * (inside * inside.log()).sum(dim=1) + 2.0 * drift)
    losses = []
    method.train_batch(net, batch, losses.append)
    parameters = list(net.parameters())
    found = torch.autograd.grad(3 * losses[0], parameters)  # and the loss may be scaled
    for a, b in zip(found, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(a, 3 * b, rtol=1e-10, atol=1e-13)


def test_a_second_pass_leaves_batch_norm_alone_and_uses_batch_statistics():
    net = nn.Sequential(nn.BatchNorm1d(D), nn.Linear(D, K)).double().train()
    x = make_problem()[1].x * 3 + 1
    before = {name: b.clone() for name, b in net.named_buffers()}
    logits = fresh_logits(net, x)
    assert not logits.requires_grad
    assert all(torch.equal(b, before[name]) for name, b in net.named_buffers())
    torch.testing.assert_close(logits, net(x).detach())
    assert not torch.equal(net[0].running_mean, before["0.running_mean"])


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("method", [m for m in ALL if m not in (VALEN, CroSel)])
def test_permuting_the_classes_permutes_everything(method):
    order = torch.tensor([2, 0, 3, 1])
    loss, confidence, net, _ = run(method())
    loss_p, confidence_p, net_p, _ = run(method(), classes=order)
    assert loss == pytest.approx(loss_p, rel=1e-12)
    np.testing.assert_allclose(confidence[:, order], confidence_p, rtol=1e-10, atol=1e-14)
    torch.testing.assert_close(net.weight[order], net_p.weight)


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("method", [*ALL, lambda: VALEN(warmup_epochs=0)])
def test_full_rows_alone_are_accepted_and_finite(method):
    loss, confidence, net, _ = run(method(), index=torch.tensor([0]))
    assert np.isfinite(loss)
    assert np.isfinite(confidence).all()
    assert all(torch.isfinite(p).all() for p in net.parameters())


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("method", ALL)
def test_rows_of_weight_zero_teach_nothing(method):
    def stepped(value):
        net, data = make_problem()
        data.x[5], data.weight[5] = value, 0.0
        m = method()
        m.start(net, data, torch.Generator())
        losses = []
        m.train_batch(net, make_batch(m, data, torch.arange(N)), losses.append)
        return torch.autograd.grad(losses[0], net.weight)[0]

    torch.testing.assert_close(stepped(0.0), stepped(7.0))


def test_ga_makes_no_matrix_of_classes_by_classes():
    """With ten thousand classes each batch would take seconds and gigabytes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                self.seen = max(self.seen, out.numel())
            return out

    n_classes = 500
    method, net = GA(), nn.Linear(D, n_classes)
    candidates = torch.rand(N, n_classes, generator=torch.Generator().manual_seed(0)) < 0.1
    x, weight = torch.ones(N, D), torch.ones(N)
    data = TrainingData(x, candidates, weight, x[:0], torch.empty(0, dtype=torch.long), epochs=1)
    with Largest() as largest:
        method.start(net, data, torch.Generator())
        risk, _ = method.risks(net(x), make_batch(method, data, torch.arange(N)))
        risk.sum().backward()
    assert largest.seen == N * n_classes


def test_lws_cross_entropy_stays_finite_where_a_label_outside_is_certain():
    method = LWS(surrogate="cross-entropy")
    candidates = torch.tensor([[False, True]])
    method.weight_ = torch.ones(1, 2)
    batch = SimpleNamespace(candidates=candidates, index=torch.tensor([0]))
    (loss,) = method.losses(SimpleNamespace(logits=torch.tensor([[200.0, 0.0]])), None, batch)
    assert loss == pytest.approx(200 - np.log(torch.finfo(torch.float32).eps), rel=1e-4)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (PCE(reduction="max"), "reduction must be 'mean' or 'sum'; got 'max'"),
        (LWS(surrogate="hinge"), "surrogate must be 'sigmoid' or 'cross-entropy'; got 'hinge'"),
    ],
)
def test_a_loss_that_is_not_there_is_named(method, said):
    rows, sets = np.eye(3), np.eye(3, dtype=bool)
    with pytest.raises(ValueError, match=said):
        PartialLabelClassifier(method, epochs=1, callbacks=()).fit(rows, sets)
