"""The meta step: one forward-mode pass against the literal look-ahead, which lives here as the oracle."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, log_softmax

from mogd.methods.meta import COMPARE_EVERY, alignment
from mogd.methods.mogd import MoGD
from mogd.methods.tangent import align, head_gradients, head_tangent, with_features
from mogd.nets import linear, mlp

CLASSES = 5


def small_conv() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, CLASSES),
    )


def case(name: str, dtype: torch.dtype) -> tuple[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    with torch.random.fork_rng():
        torch.random.manual_seed(1)
        shape = (3, 8, 8) if name == "conv" else (7,)
        model = {
            "linear": lambda: linear(shape, CLASSES),
            "mlp": lambda: mlp(shape, CLASSES, hidden=(16, 16), dropout=0.3),
            "conv": small_conv,
        }[name]()
    x = torch.randn(12, *shape, generator=generator, dtype=torch.float64)
    clean_x = torch.randn(6, *shape, generator=generator, dtype=torch.float64)
    clean_y = torch.randint(CLASSES, (6,), generator=generator)
    return model.to(dtype).train(), x.to(dtype), clean_x.to(dtype), clean_y


def literal(model: nn.Module, x: torch.Tensor, clean_x: torch.Tensor, clean_y: torch.Tensor, seed: int) -> torch.Tensor:
    """Build θ̂(w), take the loss of the clean rows there, differentiate it at w = 0 (Eq. 5 and 6 as printed, α = 1)."""
    parameters = {k: v.detach().clone().requires_grad_() for k, v in model.named_parameters()}
    buffers = {k: v.clone() for k, v in model.named_buffers()}
    clean_state = torch.random.get_rng_state()
    torch.random.manual_seed(seed)
    g_state = torch.random.get_rng_state()
    w = torch.zeros(len(x), CLASSES, dtype=x.dtype, requires_grad=True)
    # the clean pass comes first in `alignment`: draw its dropout masks first here too
    probe = functional_call(model, {**parameters, **{k: v.clone() for k, v in buffers.items()}}, (clean_x,))
    logits = functional_call(model, {**parameters, **{k: v.clone() for k, v in buffers.items()}}, (x,))
    loss = -(w * log_softmax(logits, dim=1)).sum()
    steps = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
    ahead = {k: p - s for (k, p), s in zip(parameters.items(), steps, strict=True)}
    torch.random.set_rng_state(g_state)
    meta = cross_entropy(functional_call(model, {**ahead, **buffers}, (clean_x,)), clean_y)
    del probe
    (slope,) = torch.autograd.grad(meta, w)
    torch.random.set_rng_state(clean_state)
    return -slope


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("name", ["linear", "mlp", "conv"])
def test_alignment_is_the_literal_look_ahead(name: str, dtype: torch.dtype, tolerance: float) -> None:
    model, x, clean_x, clean_y = case(name, dtype)
    with torch.random.fork_rng():
        expected = literal(model, x, clean_x, clean_y, seed=11)
        torch.random.manual_seed(11)
        logits, found = alignment(model, x, clean_x, clean_y)
    assert (found - expected).norm() / expected.norm() <= tolerance
    assert logits.requires_grad


def test_logits_are_the_forward_that_is_back_propagated() -> None:
    model, x, clean_x, clean_y = case("conv", torch.float64)
    target = torch.zeros(12, dtype=torch.long)
    logits, _ = alignment(model, x, clean_x, clean_y)
    through = torch.autograd.grad(cross_entropy(logits, target), list(model.parameters()))
    plain = torch.autograd.grad(cross_entropy(model(x), target), list(model.parameters()))
    for a, b in zip(through, plain, strict=True):
        torch.testing.assert_close(a, b)


def test_running_statistics_are_moved_by_the_batch_alone() -> None:
    model, x, clean_x, clean_y = case("conv", torch.float64)
    reference, *_ = case("conv", torch.float64)
    alignment(model, x, clean_x * 100 + 50, clean_y)
    reference(x)
    for (name, moved), plain in zip(model.named_buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(moved, plain, msg=name)


class NoForwardDerivative(torch.autograd.Function):
    """Doubles its input; knows its backward, which can be differentiated again, but no forward derivative."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:
        return 2 * g


class Awkward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(7), nn.Linear(7, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return NoForwardDerivative.apply(self.head(self.norm(x)))


def test_a_module_without_forward_derivative_falls_back_with_one_message() -> None:
    _, x, clean_x, clean_y = case("linear", torch.float64)
    model = Awkward().double().train()
    expected = literal(model, x, clean_x, clean_y, seed=0)
    with pytest.warns(UserWarning, match="without a forward derivative"):
        logits, found = alignment(model, x, clean_x, clean_y)
    torch.testing.assert_close(found, expected)
    assert int(model.norm.num_batches_tracked) == 1
    logits.sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alignment(model, x, clean_x, clean_y)


@pytest.mark.parametrize("name", ["linear", "mlp", "conv"])
def test_head_form_is_the_alignment_of_the_last_layer(name: str) -> None:
    model, x, clean_x, clean_y = case(name, torch.float64)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    before = {k: v.clone() for k, v in model.named_buffers()}
    (gradient,) = head_gradients(model, clean_x, clean_y)
    for k, v in model.named_buffers():
        torch.testing.assert_close(v, before[k])
    last = [m for m in model.modules() if isinstance(m, nn.Linear)][-1]
    for p in model.parameters():
        p.requires_grad_(p is last.weight or p is last.bias)
    logits, features = with_features(model, x)
    found = align(logits, head_tangent(model, features, gradient))
    _, expected = alignment(model, x, clean_x, clean_y)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_default_method_keeps_halves_consistent_with_the_whole(name: str) -> None:
    """The mean of the two halves' alignments is the alignment with the whole clean set, dropout and all.

    In closed form it lacks a constant of the row, and serves until the halves are compared again.
    """
    from mogd.methods.base import Batch, TrainingData

    model, x, clean_x, clean_y = case(name, torch.float64)
    for module in model.modules():
        if isinstance(module, (nn.Dropout, nn.BatchNorm1d)):
            module.eval()
    candidates = torch.ones(12, CLASSES, dtype=torch.bool)
    weight = torch.ones(12, dtype=torch.float64)
    method = MoGD()
    data = TrainingData(x, candidates, weight, clean_x, clean_y)
    method.start(model, data, torch.Generator().manual_seed(0))
    batch = Batch(torch.arange(12), x, candidates, candidates / CLASSES, weight)

    def whole() -> torch.Tensor:
        found = alignment(model, x, clean_x, clean_y)[1]
        return found - found.mean(dim=1, keepdim=True) if name == "linear" else found

    def given() -> torch.Tensor:
        found = method.forward(model, batch).alignments
        mean = sum(found) / len(found)
        return mean - mean.mean(dim=1, keepdim=True) if name == "linear" else mean

    before = whole()
    torch.testing.assert_close(given(), before)
    with torch.no_grad():
        model.get_parameter("head.bias").add_(torch.randn(CLASSES))
    assert not torch.allclose(before, whole())
    for _ in range(COMPARE_EVERY - 1):
        torch.testing.assert_close(given(), before if name == "linear" else whole())
    torch.testing.assert_close(given(), whole())
