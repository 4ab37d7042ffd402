"""MoGD: its formula, the paper's form, the convergence theorem, and any clean set a user may bring."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mogd_tools import begin
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

from mogd import PartialLabelClassifier
from mogd.compressed import take_dense
from mogd.methods.base import Batch
from mogd.methods.cc import CC
from mogd.methods.meta import MOST_CLEAN_ROWS, alignment
from mogd.methods.mogd import MoGD
from mogd.methods.steps import StepRule
from mogd.nets import linear, mlp

pytestmark = pytest.mark.usefixtures("same_weights", "both_forms")


def test_paper_form_by_hand() -> None:
    """Eq. 6 to 9 written out with loops on one batch."""
    model = linear((6,), 4).double()
    method = MoGD.paper(beta=3.0)
    batch, data = begin(method, model)
    losses: list[torch.Tensor] = []
    confidence = method.train_batch(model, batch, losses.append)
    logits, align = alignment(model, batch.x, data.clean_x, data.clean_y)
    log_p = torch.log_softmax(logits.detach(), dim=1)
    total = 0.0
    for i in range(len(batch.x)):
        members = [j for j in range(4) if batch.candidates[i, j]]
        raised = [np.exp(max(3.0 * float(align[i, j]), 0.0)) for j in members]
        for j, value in zip(members, raised, strict=True):
            assert float(confidence[i, j]) == pytest.approx(value / sum(raised))
            total -= value / sum(raised) * float(log_p[i, j])
        assert float(confidence[i][~batch.candidates[i]].abs().sum()) == 0.0
    assert float(losses[0].detach()) == pytest.approx(total / len(batch.x))
    assert not method.train_on_clean


def shrunk_by_hand(batch: Batch, halves: list[torch.Tensor]) -> tuple[float, float]:
    """How far the halves agree, and the root mean square of their mean, over the candidates of partial rows."""
    a, b, count = 0.0, 0.0, 0
    for i in range(len(batch.x)):
        members = batch.candidates[i]
        if members.sum() > 1:
            first, second = (h[i][members] - h[i][members].mean() for h in halves)
            a += float((first * second).sum())
            b += float((((first + second) / 2) ** 2).sum())
            count += int(members.sum())
    s = min(max(a / b, 0.0), 1.0)
    assert 0 < s <= 1
    return s, (b / count) ** 0.5


def test_default_form_by_hand() -> None:
    """w ∝ posterior · exp(strength · s · share · alignment / rms), with s and rms from the two halves, share 1.5."""
    with torch.random.fork_rng():
        torch.random.manual_seed(2)
        model = mlp((6,), 4, hidden=(8,), dropout=0.0, batch_norm=False).double()
    method = MoGD(strength=0.7)
    batch, data = begin(method, model, m=40)
    confidence = method.train_batch(model, batch, lambda loss: None)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    halves = [alignment(model, batch.x, data.clean_x[h], data.clean_y[h])[1] for h in (order[:20], order[20:])]
    logits = model(batch.x)
    s, rms = shrunk_by_hand(batch, halves)
    both = [(first + second) / 2 for first, second in zip(*halves, strict=True)]
    for i in range(len(batch.x)):
        members = batch.candidates[i]
        expected = torch.softmax((logits[i] + 0.7 * s * 1.5 * both[i] / rms)[members], dim=0)
        torch.testing.assert_close(confidence[i][members], expected)


def test_head_form_by_hand() -> None:
    """The same over the last layer of a deeper network: −F Gᵀ in place of the tangent, F what enters it."""
    with torch.random.fork_rng():
        torch.random.manual_seed(2)
        model = mlp((6,), 4, hidden=(8,), dropout=0.0, batch_norm=False).double()
    method = MoGD(strength=0.7, meta="head")
    batch, data = begin(method, model, m=40)
    confidence = method.train_batch(model, batch, lambda loss: None)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    halves = []
    for part in (order[:20], order[20:]):
        loss = cross_entropy(model(data.clean_x[part]), data.clean_y[part])
        weight, bias = torch.autograd.grad(loss, [*model.head.parameters()])
        halves.append(-(model.body(batch.x) @ weight.T + bias).detach())
    s, rms = shrunk_by_hand(batch, halves)
    for i in range(len(batch.x)):
        members = batch.candidates[i]
        move = 0.7 * s * 1.5 * (halves[0][i] + halves[1][i]) / 2 / rms
        torch.testing.assert_close(confidence[i][members], torch.softmax((model(batch.x)[i] + move)[members], dim=0))


def test_without_strength_the_prior_remains() -> None:
    model = linear((6,), 4).double()
    method = MoGD(strength=0.0)
    batch, _ = begin(method, model)
    confidence = method.train_batch(model, batch, lambda loss: None)
    expected = torch.softmax(model(batch.x).masked_fill(~batch.candidates, -torch.inf), dim=1)
    torch.testing.assert_close(confidence, expected)


def test_running_prior_is_the_posterior_of_the_last_visit() -> None:
    model = linear((6,), 4).double()
    method = MoGD(prior="running", strength=0.0)
    batch, _ = begin(method, model)
    first = method.train_batch(model, batch, lambda loss: None)
    torch.testing.assert_close(first, batch.confidence.double(), rtol=1e-6, atol=1e-6)
    second = method.train_batch(model, batch, lambda loss: None)
    torch.testing.assert_close(second, torch.softmax(model(batch.x).masked_fill(~batch.candidates, -torch.inf), dim=1))


@pytest.mark.parametrize(("m", "step"), [(10, 0.5), (25, 1.25), (100, 1.5)])
def test_a_step_is_as_long_as_clean_rows_are_many(m: int, step: float) -> None:
    """10 clean rows beside 400 count half as much as 20, 25 count 1.25 times, and any number 1.5 times at most."""
    model = linear((6,), 4).double()
    found = []
    for strength, share in ((1.0, None), (step, 1.0)):
        method = MoGD(strength=strength)
        batch, _ = begin(method, model, n=400, m=m)
        assert method.step_.ratio == pytest.approx(m / 20)
        method.step_.ratio = share or method.step_.ratio
        found.append([method.train_batch(model, batch, lambda loss: None) for _ in range(2)][-1])
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[0], torch.softmax(model(batch.x).masked_fill(~batch.candidates, -torch.inf), 1))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_meta_loss_never_rises_under_sum_normalisation(seed: int) -> None:
    """The convergence theorem: full clean batch, small plain steps, a convex model."""
    torch_model = linear((6,), 4).double()
    method = MoGD.paper(normalize="sum")
    batch, data = begin(method, torch_model, seed=seed)
    optimizer = torch.optim.SGD(torch_model.parameters(), lr=0.02)

    def step(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    before = float(cross_entropy(torch_model(data.clean_x), data.clean_y).detach())
    for _ in range(30):
        method.train_batch(torch_model, batch, step)
        after = float(cross_entropy(torch_model(data.clean_x), data.clean_y).detach())
        assert after <= before + 1e-12
        before = after


def test_sum_normalisation_gives_no_weight_to_rows_that_do_not_help() -> None:
    model = linear((6,), 4).double()
    method = MoGD.paper(normalize="sum")
    batch, data = begin(method, model, seed=4, n=200)
    losses: list[torch.Tensor] = []
    confidence = method.train_batch(model, batch, losses.append)
    logits, align = alignment(model, batch.x, data.clean_x, data.clean_y)
    helpful = align.clamp(min=0) * batch.candidates
    useless = helpful.sum(dim=1) == 0
    assert useless.any()
    weights = torch.where(useless[:, None], 0.0, helpful / helpful.sum(dim=1, keepdim=True))
    expected = -(weights * torch.log_softmax(logits, dim=1)).sum() / len(batch.x)
    assert float(losses[0].detach()) == pytest.approx(float(expected.detach()))
    torch.testing.assert_close(confidence.sum(dim=1), torch.ones(200, dtype=torch.float64))


@pytest.mark.parametrize("method", [MoGD.paper(), MoGD.paper(normalize="sum"), MoGD(normalize="sum")])
def test_every_form_trains_and_reports_the_alignment_of_each_epoch(method: MoGD) -> None:
    x, candidates, y = digits()
    model = PartialLabelClassifier(method, epochs=3, random_state=0)
    model.fit(x[100:400], candidates[100:400], X_val=x[:100], y_val=y[:100])
    alignments = [epoch["alignment"] for epoch in model.history_]
    assert len(set(alignments)) == 3
    assert min(alignments) > 0


def digits(q: float = 0.3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    candidates = rng.random((len(y), 10)) < q
    candidates[np.arange(len(y)), y] = True
    return x / 16, candidates, y


@pytest.mark.parametrize("backbone", ["linear", "mlp"])
@pytest.mark.parametrize("m", [1, 2, 5, 700])
def test_any_number_of_clean_rows(m: int, backbone: str) -> None:
    x, candidates, y = digits()
    clean = {"X_val": x[:m], "y_val": y[:m]}
    model = PartialLabelClassifier(backbone=backbone, epochs=8, lr=0.1, random_state=0)
    model.fit(x[800:], candidates[800:], **clean)
    alone = PartialLabelClassifier(MoGD(strength=0), backbone=backbone, epochs=8, lr=0.1, random_state=0)
    alone.fit(x[800:], candidates[800:], **clean)
    assert model.score(x[800:], y[800:]) > alone.score(x[800:], y[800:]) - 0.02
    shrinkage = [entry["shrinkage"] for entry in model.history_]
    assert all(0 <= s <= 1 for s in shrinkage)
    if m == 1:
        assert max(shrinkage) == 0.0


def test_clean_rows_that_lack_classes() -> None:
    x, candidates, y = digits()
    few = np.flatnonzero(y < 3)[:40]
    rest = np.setdiff1d(np.arange(len(y)), few)
    model = PartialLabelClassifier(epochs=15, lr=0.1, random_state=0)
    model.fit(x[rest], candidates[rest], X_val=x[few], y_val=y[few])
    assert model.score(x[rest], y[rest]) > 0.92  # untouched by the meta step: 0.934; trusted on unseen classes: 0.82


def test_noisy_clean_labels_lower_the_shrinkage() -> None:
    x, candidates, y = digits(q=0.5)
    noisy = np.random.default_rng(1).permutation(y[:100])
    trust = {}
    for name, labels in (("true", y[:100]), ("noisy", noisy)):
        method = MoGD(train_on_clean=False)
        model = PartialLabelClassifier(method, epochs=50, lr=0.1, random_state=0)
        model.fit(x[100:], candidates[100:], X_val=x[:100], y_val=labels)
        trust[name] = np.mean([entry["shrinkage"] for entry in model.history_[:25]])
    assert trust["noisy"] < 0.5 * trust["true"]


def test_no_gradient_takes_more_than_so_many_clean_rows() -> None:
    method = MoGD()
    begin(method, linear((6,), 4).double(), m=MOST_CLEAN_ROWS + 5)
    assert method.meta_ is not None
    x, y, halves = method.meta_._draw(compare=True)
    assert len(x) == len(y) == MOST_CLEAN_ROWS
    assert halves is not None
    assert [len(h) for h in halves] == [MOST_CLEAN_ROWS // 2] * 2
    assert len({*map(tuple, (method.meta_._draw(compare=False)[0][:2, 0].tolist() for _ in range(5)))}) > 1


@pytest.mark.parametrize("callbacks", ["auto", ()], ids=["auto", "none"])
@pytest.mark.parametrize("backbone", ["linear", "mlp"])
def test_strength_zero_is_cc_with_the_same_callbacks(backbone: str, callbacks: object) -> None:
    """No meta step: the same bits as CC, whatever the callbacks."""
    x, candidates, y = digits()
    fits = [
        PartialLabelClassifier(method, backbone, epochs=4, random_state=0, callbacks=callbacks).fit(
            x[100:600], candidates[100:600], X_val=x[:20], y_val=y[:20]
        )
        for method in (CC(), MoGD(strength=0), MoGD(beta=0.0))
    ]
    for other in fits[1:]:
        np.testing.assert_array_equal(fits[0].predict_proba(x), other.predict_proba(x))
        assert other.config_["callbacks"] == fits[0].config_["callbacks"]
        assert "alignment" not in other.history_[-1]


def test_the_printed_form_keeps_its_clean_rows_out_of_training() -> None:
    """Whatever form they came in: rows with one candidate that stand in for a clean set do not train either."""
    x, candidates, y = digits()
    single = candidates.sum(axis=1) == 1
    given = PartialLabelClassifier(MoGD.paper(), epochs=3, random_state=0)
    given.fit(x[~single], candidates[~single], X_val=x[single], y_val=y[single])
    with pytest.warns(UserWarning, match="no clean rows were given"):
        assumed = PartialLabelClassifier(MoGD.paper(), epochs=3, random_state=0).fit(x, candidates)
    np.testing.assert_array_equal(given.predict_proba(x), assumed.predict_proba(x))
    np.testing.assert_array_equal(take_dense(assumed.confidence_)[~single], take_dense(given.confidence_))
    np.testing.assert_array_equal(take_dense(assumed.confidence_)[single], candidates[single])
    assert assumed.config_["callbacks"] == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        *(("prior", "flat", "one of .*flat"), ("normalize", "max", "one of .*max"), ("meta", "body", "one of .*body")),
        *(("beta", value, "a number of 0 or more; got") for value in ("abc", -1)),
        *(("strength", value, "a number of 0 or more; got") for value in (-1.0, None, True)),
    ],
)
def test_wrong_choice_or_number_is_named(name: str, value: object, said: str) -> None:
    x, candidates, y = digits()
    model = PartialLabelClassifier(MoGD(**{name: value}), epochs=1)
    with pytest.raises(ValueError, match=f"{name} must be {said}"):
        model.fit(x[10:], candidates[10:], X_val=x[:10], y_val=y[:10])


def test_clean_rows_come_from_rows_with_one_candidate_when_none_are_given() -> None:
    x, candidates, _ = digits()
    single = candidates.sum(axis=1) == 1
    assert single.any()
    with pytest.warns(UserWarning, match=f"no clean rows were given: .* the {single.sum()} rows with one candidate"):
        model = PartialLabelClassifier(epochs=5, lr=0.1, random_state=0).fit(x, candidates)
    assert model.confidence_.shape[0] == len(x)
    with warnings.catch_warnings():  # plain labels, or another method, leave nothing to say
        warnings.simplefilter("error")
        PartialLabelClassifier(epochs=1).fit(x[single], candidates[single].argmax(axis=1))
        PartialLabelClassifier("pce", epochs=1).fit(x, candidates)
    with pytest.raises(ValueError, match="needs clean rows: pass X_val"):
        PartialLabelClassifier(epochs=1).fit(x[~single], candidates[~single])


def test_a_shrunken_step_leaves_classes_without_clean_rows_alone() -> None:
    data = SimpleNamespace(guides=(torch.zeros(3, 1), torch.tensor([0, 1, 1])), n_classes=4, n_partial=2)
    candidates = torch.tensor([[True, True, True, False], [True, True, False, True]])
    halves = [torch.arange(8.0).reshape(2, 4), torch.arange(8.0).reshape(2, 4) ** 2]
    move = StepRule(1.0, 1.0, True, data)(halves, SimpleNamespace(candidates=candidates))  # type: ignore[arg-type]
    assert (move[:, 2:] == 0).all()
    assert (move[:, :2] != 0).all()
    assert torch.allclose(move[:, 0], -move[:, 1])  # less the mean over the two that are compared


def test_a_step_that_is_not_shrunken_is_scaled_by_all_candidates() -> None:
    data = SimpleNamespace(guides=(torch.zeros(3, 1), torch.tensor([0, 1, 1])), n_classes=4, n_partial=2)
    candidates = torch.tensor([[True, True, True, False], [True, True, False, True]])
    values = torch.arange(8.0).reshape(2, 4) ** 2
    move = StepRule(1.0, None, False, data)([values], SimpleNamespace(candidates=candidates))  # type: ignore[arg-type]
    centred = torch.cat([values[i][candidates[i]] - values[i][candidates[i]].mean() for i in range(2)])
    torch.testing.assert_close(move, values / centred.square().mean().sqrt())
