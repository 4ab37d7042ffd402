"""Every term of VALEN against a value computed by hand, in float64."""

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma, gammaln
from sklearn.neighbors import NearestNeighbors
from torch import nn
from torch.distributions import Dirichlet, kl_divergence
from torch.nn.functional import binary_cross_entropy_with_logits, log_softmax

import mogd
from mogd.methods import valen
from mogd.methods.base import Batch, TrainingData
from mogd.methods.proden import PRODEN
from mogd.methods.valen import VALEN

N, D, K = 30, 5, 4


def make_problem(seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    candidates = torch.rand(N, K, generator=generator) < 0.5
    candidates[torch.arange(N), torch.randint(K, (N,), generator=generator)] = True
    candidates[0] = True
    weight = torch.rand(N, generator=generator, dtype=torch.float64) + 0.5
    torch.manual_seed(seed)
    net = nn.Linear(D, K, dtype=torch.float64)
    return net, TrainingData(x, candidates, weight, x[:0], torch.empty(0, dtype=torch.long))


def begin(**params):
    """A method in its main phase whose encoder and targets are away from where they began, and one batch."""
    net, data = make_problem()
    method = VALEN(warmup_epochs=0, **params)
    method.start(net, data, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in method.encoder_.parameters():
            p += torch.randn(p.shape, generator=generator, dtype=torch.float64)
    index = torch.randperm(N, generator=generator)[:10]
    random = torch.rand(N, K, generator=generator, dtype=torch.float64) * data.candidates
    method.distribution_ = random / random.sum(dim=1, keepdim=True)
    confidence = torch.rand(10, K, generator=generator, dtype=torch.float64) * data.candidates[index]
    confidence = confidence / confidence.sum(dim=1, keepdim=True)
    return method, net, Batch(index, data.x[index], data.candidates[index], confidence, data.weight[index])


def test_concentration_and_its_gradient():
    method, _, batch = begin()
    encoded = method.encoder_(batch.x).detach().requires_grad_()
    found = valen.concentration(encoded, batch.candidates)
    direction = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    (gradient,) = torch.autograd.grad((found * direction).sum(), encoded)
    for i, row in enumerate(encoded.tolist()):
        p = np.exp(row) / np.exp(row).sum()
        inside = batch.candidates[i].numpy()
        np.testing.assert_allclose(found[i].detach(), p * inside / p[inside].sum() + 0.01, rtol=1e-12)
        # the denominator is a constant: d π_j / d a_k = p_j (δ_jk − p_k) / Σ_S p
        jacobian = (np.diag(p) - np.outer(p, p)) * inside[:, None] / p[inside].sum()
        np.testing.assert_allclose(gradient[i], direction[i].numpy() @ jacobian, rtol=1e-9, atol=1e-12)


def test_samples_have_the_mean_of_their_dirichlet_and_finite_gradients():
    encoded = torch.tensor([[0.0, 2.0, -1.0, 60.0]], dtype=torch.float32).repeat(20000, 1).requires_grad_()
    candidates = torch.tensor([[True, True, False, False]]).repeat(20000, 1)
    torch.manual_seed(0)
    sample = valen.sample_labels(encoded, candidates)
    share = math.exp(2) / (1 + math.exp(2))
    expected = np.array([1 - share + 0.01, share + 0.01, 0.01, 0.01]) / 1.04
    np.testing.assert_allclose(sample.detach().mean(dim=0), expected, atol=0.01)
    (gradient,) = torch.autograd.grad(sample.square().sum(), encoded)
    assert torch.isfinite(gradient).all()


def test_divergence_from_the_flat_dirichlet():
    alpha = torch.tensor([[0.01, 1.0, 30.0, 2.5], [1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    rows = []
    for a in alpha.tolist():
        total = sum(a)
        value = gammaln(total) - sum(gammaln(v) for v in a) - gammaln(K)
        rows.append(value + sum((v - 1) * (digamma(v) - digamma(total)) for v in a))
    np.testing.assert_allclose(valen.flat_divergence(alpha)[0], rows, rtol=1e-10, atol=1e-12)
    assert rows[1] == pytest.approx(0, abs=1e-12)


def test_graph_of_a_batch_is_the_slice_of_the_whole():
    method, _, batch = begin(neighbours=3)
    x = make_problem()[1].x.numpy()
    whole = NearestNeighbors(n_neighbors=3).fit(x).kneighbors_graph().toarray() + np.eye(N)
    whole /= whole.sum(axis=1, keepdims=True)
    index = batch.index.numpy()
    assert (whole[np.ix_(index, index)] > 0).sum() > len(index)  # some rows of the batch are neighbours
    np.testing.assert_allclose(method.adjacency(batch.index), whole[np.ix_(index, index)], atol=1e-15)
    assert (method.position_ == N).all()


def test_neighbours_may_be_fewer_than_asked_for():
    assert valen.nearest(torch.zeros(3, 2), 5).shape == (3, 3)  # the row itself and the two others
    assert valen.nearest(torch.zeros(1, 2), 5).tolist() == [[0]]


def by_hand(method, net, batch, sample):
    """The six terms of the loss by loops."""
    x, sets, weight = batch.x.tolist(), batch.candidates.tolist(), batch.weight.tolist()
    outputs, encoded = net(batch.x).tolist(), method.encoder_(batch.x).tolist()
    rebuilt, d = method.decoder_(sample).tolist(), sample.tolist()
    adjacency = method.adjacency(batch.index).tolist()
    target, before = method.distribution_[batch.index].tolist(), batch.confidence.tolist()
    b = len(x)

    def cross_entropy(z, w):
        total = math.log(sum(math.exp(v) for v in z))
        return -sum(c * (v - total) for c, v in zip(w, z, strict=True))

    def mean(rows):
        return sum(w * r for w, r in zip(weight, rows, strict=True)) / sum(weight)

    alpha = [[min(30, max(0.01, math.exp(v / 4))) for v in row] for row in encoded]
    divergence = [
        gammaln(sum(a))
        - sum(gammaln(v) for v in a)
        - gammaln(K)
        + sum((v - 1) * (digamma(v) - digamma(sum(a))) for v in a)
        for a in alpha
    ]
    of_labels = [
        sum(-math.log(1 / (1 + math.exp(-v if m else v))) for v, m in zip(row, s, strict=True)) / K
        for row, s in zip(d, sets, strict=True)
    ]
    similar = [[1 / (1 + math.exp(-np.dot(d[i], d[j]))) for j in range(b)] for i in range(b)]
    soft = [[math.exp(v) / sum(math.exp(u) for u in row) for v in row] for row in similar]
    return {
        "classifier": mean([cross_entropy(z, t) for z, t in zip(outputs, target, strict=True)]),
        "encoder": mean([cross_entropy(z, o) for z, o in zip(encoded, before, strict=True)]),
        "divergence": mean(divergence),
        "row": mean([np.square(np.subtract(r, o)).mean() for r, o in zip(rebuilt, x, strict=True)]),
        "labels": 0.01 * mean(of_labels),
        "graph": sum((soft[i][j] - adjacency[i][j]) ** 2 for i in range(b) for j in range(b)) / b**2,
    }


@pytest.mark.parametrize(
    ("beta", "gamma", "reconstruction", "kappa"), [(0.0, 0.0, 0.0, 1.0), (0.3, 0.0, 0.0, 0.2), (0.1, 7.0, 0.5, 0.5)]
)
def test_main_loop_loss_and_targets(beta, gamma, reconstruction, kappa):
    method, net, batch = begin(beta=beta, gamma=gamma, reconstruction=reconstruction, kappa=kappa)
    torch.manual_seed(11)
    sample = valen.sample_labels(method.encoder_(batch.x), batch.candidates).detach()
    terms = by_hand(method, net, batch, sample)
    expected = terms["classifier"] + gamma * terms["encoder"] + beta * terms["divergence"]
    expected += reconstruction * terms["row"] + terms["labels"] + terms["graph"]
    losses = []
    torch.manual_seed(11)
    confidence = method.train_batch(net, batch, losses.append)
    assert losses[0].item() == pytest.approx(expected, rel=1e-10)

    inside = batch.candidates.numpy()
    drawn = sample.numpy() * inside
    drawn /= drawn.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        method.distribution_[batch.index], kappa * drawn + (1 - kappa) * batch.confidence.numpy(), rtol=1e-10
    )
    p = np.exp(net(batch.x).detach().numpy()) * inside
    np.testing.assert_allclose(confidence, p / p.sum(axis=1, keepdims=True), rtol=1e-10)
    losses[0].backward()
    assert all(p.grad.abs().sum() > 0 for p in [*net.parameters(), *method.encoder_.parameters()])
    assert all((p.grad.abs().sum() > 0) == (reconstruction > 0) for p in method.decoder_.parameters())


@pytest.mark.parametrize("spread", [1.0, 30.0])  # the second takes α past its bounds
def test_derivatives_are_those_that_torch_records(spread):
    params = {"beta": 0.3, "gamma": 2.0, "reconstruction": 0.7}
    method, net, batch = begin(**params)
    with torch.no_grad():
        method.encoder_.weight *= spread
    tensors = [*net.parameters(), *method.encoder_.parameters(), *method.decoder_.parameters()]
    torch.manual_seed(3)
    outputs, encoded = net(batch.x), method.encoder_(batch.x)
    log_p = log_softmax(encoded, dim=1)
    inside = log_p.masked_fill(~batch.candidates, -torch.inf)
    pi = (inside - inside.logsumexp(dim=1, keepdim=True).detach()).exp() + 0.01
    sample = Dirichlet(pi).rsample()
    alpha = (encoded / 4).exp().clamp(0.01, 30)
    assert ((alpha == 0.01) | (alpha == 30)).any() == (spread > 1)
    rows = -(method.distribution_[batch.index] * log_softmax(outputs, dim=1)).sum(dim=1)
    rows = rows - 2.0 * (batch.confidence * log_p).sum(dim=1)
    rows = rows + 0.3 * kl_divergence(Dirichlet(alpha), Dirichlet(torch.ones_like(alpha)))
    rows = rows + 0.7 * (method.decoder_(sample) - batch.x).square().mean(dim=1)
    labels = batch.candidates.double()
    rows = rows + 0.01 * binary_cross_entropy_with_logits(sample, labels, reduction="none").mean(dim=1)
    graph = torch.softmax(torch.sigmoid(sample @ sample.T), dim=1) - method.adjacency(batch.index)
    expected = torch.autograd.grad(batch.mean(rows) + graph.square().mean(), tensors)

    losses = []
    torch.manual_seed(3)
    method.train_batch(net, batch, losses.append)
    found = torch.autograd.grad(3 * losses[0], tensors)  # and the loss may be scaled
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, 3 * b, rtol=1e-8, atol=1e-12)


def test_permuting_the_classes_permutes_everything(monkeypatch):
    """The sample is replaced by its mean: a random draw is the one thing that does not follow the classes."""

    def mean(encoded, candidates):
        pi = valen.concentration(encoded, candidates)
        return pi / pi.sum(dim=1, keepdim=True)

    monkeypatch.setattr(valen, "sample_labels", mean)
    order = torch.tensor([2, 0, 3, 1])
    method, net, batch = begin()
    plain = []
    confidence = method.train_batch(net, batch, plain.append)
    targets = method.distribution_.clone()

    method, net, batch = begin()
    with torch.no_grad():
        for layer in (net, method.encoder_):
            layer.weight.copy_(layer.weight[order].clone())
            layer.bias.copy_(layer.bias[order].clone())
        method.decoder_[0].weight.copy_(method.decoder_[0].weight[:, order].clone())
    method.distribution_ = method.distribution_[:, order].clone()
    batch.candidates, batch.confidence = batch.candidates[:, order], batch.confidence[:, order]
    permuted = []
    torch.testing.assert_close(method.train_batch(net, batch, permuted.append), confidence[:, order])
    torch.testing.assert_close(permuted[0], plain[0])
    torch.testing.assert_close(method.distribution_, targets[:, order])


def test_warm_up_is_proden_and_leaves_the_encoder_alone():
    net, data = make_problem()
    method = VALEN(warmup_epochs=2)
    method.start(net, data, torch.Generator())
    confidence = method.init_confidence(data.candidates)
    batch = Batch(torch.arange(N), data.x, data.candidates, confidence, data.weight)
    ours, theirs = [], []
    found = method.train_batch(net, batch, ours.append)
    torch.testing.assert_close(found, PRODEN().train_batch(net, batch, theirs.append))
    assert ours[0].item() == theirs[0].item()
    torch.testing.assert_close(method.distribution_, found)  # what the main loop begins with
    ours[0].backward()
    assert all(p.grad is None for p in method.parameters())
    assert method.encoder_.training
    method.epoch_end(net, 0)
    assert not method.main_
    method.epoch_end(net, 1)
    assert method.main_


def test_images_as_bytes_any_backbone_and_the_encoder_of_the_warm_up():
    random = np.random.default_rng(0)
    y = random.integers(3, size=120)
    images = random.integers(0, 60, size=(120, 1, 6, 6), dtype=np.uint8)
    images[np.arange(120), 0, y] += 150
    candidates = np.eye(3, dtype=bool)[y] | (random.random((120, 3)) < 0.3)
    model = mogd.make("valen", backbone="mlp", warmup_epochs=3, epochs=15, encoder_after_warmup=True, random_state=0)
    model.fit(images, candidates)
    assert (model.predict(images) == y).mean() > 0.95
    assert np.isfinite([entry["loss"] for entry in model.history_]).all()


def test_an_unknown_graph_is_refused():
    with pytest.raises(ValueError, match="graph must be 'auto', 'input' or 'features'; got 'knn'"):
        mogd.make("valen", graph="knn", epochs=1).fit(np.eye(4), np.arange(4))
