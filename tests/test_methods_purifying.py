"""POP and CroSel against loops in float64 that share no code with them."""

import numpy as np
import pytest
import torch
from test_methods_losses import K, N, make_batch, make_problem, normalised, probabilities, weighted_mean
from torch import nn

from mogd.methods import pop
from mogd.methods.crosel import CroSel, MemoryBank
from mogd.methods.pop import POP


def no_step(loss):
    pass


def shift(net, epoch):
    with torch.no_grad():
        net.bias += torch.linspace(-0.6, 0.6, K, dtype=torch.float64).roll(epoch)


def cross_entropy_of(z, weight):
    return -sum(w * np.log(p) for w, p in zip(weight, probabilities(z), strict=True))


@pytest.mark.parametrize("warmup", [3, 4])
@pytest.mark.usefixtures("both_forms")
def test_pop_purifies_by_the_mean_of_a_window_and_never_gives_back(warmup):
    method = POP(threshold=0.15, growth=0.5, window=2, warmup_epochs=warmup)
    net, data = make_problem()
    given = data.candidates[:].clone()
    method.start(net, data, torch.Generator())
    sets, weights, seen, threshold = given.tolist(), None, [], 0.15
    confidence = method.init_confidence(given)
    sizes, thresholds = [], []
    for epoch in range(9):
        batch = make_batch(method, data, torch.arange(N))
        assert batch.candidates.tolist() == sets
        batch.confidence = confidence
        losses = []
        z = net(data.x).tolist()
        confidence = method.train_batch(net, batch, losses.append)
        weights = weights or [[m / sum(s) for m in s] for s in sets]
        weights = [[w * m for w, m in zip(row, s, strict=True)] for row, s in zip(weights, sets, strict=True)]
        rows = [cross_entropy_of(r, [w / sum(row) for w in row]) for r, row in zip(z, weights, strict=True)]
        assert losses[0].item() == pytest.approx(weighted_mean(rows, data.weight.tolist()), rel=1e-10)
        weights = [normalised(r, s) for r, s in zip(z, sets, strict=True)]
        np.testing.assert_allclose(confidence, weights, rtol=1e-10, atol=1e-14)
        seen.append(weights)
        if epoch >= warmup and epoch % 2 == 0:
            mean = [[(a + b) / 2 for a, b in zip(*pair, strict=True)] for pair in zip(*seen[-2:], strict=True)]
            left = [
                [m and v / max(row) >= threshold for v, m in zip(row, s, strict=True)]
                for row, s in zip(mean, sets, strict=True)
            ]
            removed = sum(sum(s) for s in sets) - sum(sum(s) for s in left)
            sets = left
            threshold *= 1.5 if threshold < 0.4 and removed < 1e-4 * N * K else 1
        sizes.append(method.epoch_end(net, epoch)["candidates_per_row"])
        thresholds.append(method.threshold_)
        assert method.threshold_ == pytest.approx(threshold)
        assert data.candidates[:].tolist() == sets
        shift(net, epoch)
    assert sizes[3] > sizes[4] >= sizes[8]  # nothing before the warm-up's end
    assert thresholds[-1] > 0.15
    assert thresholds[-1] <= pop.LARGEST * 1.5
    assert data.candidates[:].any(dim=1).all()
    assert not (data.candidates[:] & ~given).any()


def two_networks(**params):
    net, data = make_problem()
    torch.manual_seed(1)
    method = CroSel(**params)
    method.start(net, data, torch.Generator().manual_seed(0))
    return method, net, method.networks_[1], data


def test_crosel_begins_with_cc_for_two_different_networks():
    method, net, second, data = two_networks()
    assert not torch.equal(net.weight, second.weight)
    losses = []
    confidence = method.train_batch(net, make_batch(method, data, torch.arange(N)), losses.append)
    grads = torch.autograd.grad(losses[0], [net.weight, second.weight])
    for network, grad in zip((net, second), grads, strict=True):
        mass = (torch.softmax(network(data.x), dim=1) * data.candidates).sum(dim=1)
        (expected,) = torch.autograd.grad(-(data.weight * mass.log()).sum() / data.weight.sum(), network.weight)
        torch.testing.assert_close(grad, expected, rtol=1e-10, atol=1e-12)
    rows = zip(net(data.x).tolist(), second(data.x).tolist(), data.candidates.tolist(), strict=True)
    expected = [np.add(normalised(a, s), normalised(b, s)) / 2 for a, b, s in rows]
    np.testing.assert_allclose(confidence, expected, rtol=1e-10, atol=1e-14)


def test_the_memory_selects_rows_with_one_confident_candidate_in_all_its_epochs():
    random = np.random.default_rng(0)
    _, data = make_problem()
    bank, history = MemoryBank(3, data), []
    for epoch in range(8):
        logits = random.normal(size=(N, K)) + 3 * np.eye(K)[(np.arange(N) + (epoch // 4) * (np.arange(N) % 2)) % K]
        history.append([probabilities(row) for row in logits.tolist()])
        bank.note(*torch.tensor(history[-1]).max(dim=1))
        bank.select(data.candidates, 0.7)
        for i, s in enumerate(data.candidates.tolist()):
            past = [h[i] for h in history[-3:]]
            labels = [p.index(max(p)) for p in past]
            confident = np.mean([max(p) for p in past]) > 0.7 and len(past) == 3
            if sum(s) == 1:
                assert (bank.selected[i], bank.target[i]) == (True, s.index(True))
            else:
                assert bool(bank.selected[i]) == (confident and len(set(labels)) == 1 and s[labels[-1]])
                assert bank.target[i] == labels[-1]
        assert bank.ratio == pytest.approx(sum(bank.selected.tolist()) / N)
    known = int((data.candidates.sum(dim=1) == 1).sum())
    assert known < bank.selected.sum() < N


@pytest.mark.parametrize("mixing", [0.0, 0.75])
def test_each_crosel_network_learns_what_the_other_one_selected(mixing):
    method, net, second, data = two_networks(
        threshold=0.5, memory=2, consistency=1.5, temperature=0.4, mixing=mixing, warmup_epochs=2
    )
    data.weight[5] = 0.0
    for epoch in range(2):
        method.train_batch(net, make_batch(method, data, torch.arange(N)), no_step)
        method.epoch_end(net, epoch)
    first_bank, second_bank = method.banks_
    assert first_bank.selected.tolist() != second_bank.selected.tolist()
    assert second_bank.selected.any()
    index = torch.tensor([0, 1, 2, 3, 5, 7, 8, 9])
    batch = make_batch(method, data, index)
    torch.manual_seed(5)
    generator = torch.Generator()
    generator.set_state(method.generator_.get_state())
    losses = []
    method.train_batch(net, batch, losses.append)
    torch.manual_seed(5)
    weight, sets = batch.weight.tolist(), batch.candidates.tolist()
    total = 0.0
    for network, bank in ((net, second_bank), (second, first_bank)):
        share = float(torch.distributions.Beta(mixing, mixing).sample()) if mixing else 1.0
        share = max(share, 1 - share)
        other = torch.randperm(len(index), generator=generator).tolist()
        z = network(batch.x).tolist()
        target = [normalised([v / 0.4 for v in row], s) for row, s in zip(z, sets, strict=True)]
        picked = [i for i, row in enumerate(index.tolist()) if bank.selected[row]]
        of_label = [-np.log(probabilities(z[i])[bank.target[index[i]]]) for i in picked]
        total += weighted_mean(of_label, [weight[i] for i in picked])
        mixed = 0.0
        for i, j in enumerate(other):
            a = 0.0 if weight[i] == 0 else 1.0 if weight[j] == 0 else share
            row = network(a * batch.x[i] + (1 - a) * batch.x[j]).tolist()
            both = [a * weight[i] * p + (1 - a) * weight[j] * q for p, q in zip(target[i], target[j], strict=True)]
            mixed += cross_entropy_of(row, both)
        total += (1 - sum(bank.selected.tolist()) / N) * 1.5 * mixed / sum(weight)
    assert losses[0].item() == pytest.approx(total, rel=1e-9)


def test_crosel_draws_the_second_head_anew_and_keeps_a_body():
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, K)).double()
    _, data = make_problem()
    method = CroSel()
    method.start(net, data, torch.Generator())
    second = method.networks_[1]
    assert torch.equal(second[0].weight, net[0].weight)
    assert not torch.equal(second[2].weight, net[2].weight)
    assert [id(p) for p in method.parameters()] == [id(p) for p in second.parameters()]


@pytest.mark.parametrize(("method", "message"), [(POP(window=0), "window must"), (CroSel(memory=0), "memory must")])
def test_wrong_parameters_are_refused(method, message):
    net, data = make_problem()
    with pytest.raises(ValueError, match=f"{message} be a whole number of at least 1; got 0"):
        method.start(net, data, torch.Generator())
