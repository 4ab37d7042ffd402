"""How the logits of a batch move when the parameters move along the clean gradient: exact, without double backward.

With `g = ∇_θ L_meta`, one forward-mode pass gives `t = d logits / dθ · g`, and every
`⟨∇_θ h_ij, g⟩ = −(t_ij − Σ_k p_ik t_ik)` follows from it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from mogd.methods.common import Buffers, frozen_buffers, last_linear, with_features

Gradient = dict[str, Tensor]  # by parameter name

without_forward_mode: WeakSet[nn.Module] = WeakSet()


def align(logits: Tensor, tangent: Tensor) -> Tensor:
    """`⟨∇h_ij, g⟩` of every row and label from the logits and their tangent along g."""
    p = torch.softmax(logits.detach(), dim=1)
    return (p * tangent).sum(dim=1, keepdim=True) - tangent


def clean_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Gradient:
    """∇_θ L_meta on clean rows (Eq. 3), in the model's mode, its buffers untouched."""
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with frozen_buffers(model, single=len(x) == 1) as buffers:
        loss = cross_entropy(functional_call(model, buffers, (x,)), y)
    found = torch.autograd.grad(loss, list(trainable.values()), allow_unused=True)
    return {name: g for name, g in zip(trainable, found, strict=True) if g is not None}


def logits_and_tangent(
    model: nn.Module, x: Tensor, along: Gradient, *, features: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The forward pass that the real step back-propagates, and its derivative along `along`, by one forward-mode pass.

    Last come, where they are asked for, the features of that pass: what enters the last linear layer.

    Where gradients are recorded, so are the tangent's operations, though nothing asks for them. That costs less than a
    second forward pass in a fully connected net and more in a convolutional one, which therefore has its tangent apart.
    """
    if model not in without_forward_mode:
        saved = [b.clone() for b in model.buffers()]
        try:
            if any(isinstance(m, nn.Conv2d) for m in model.modules()):
                state = rng_state_of(x)
                tangent = replay_tangent(model, x, along, state)
                logits, seen = _forward(model, x, None, features)
                return logits, tangent, seen
            logits, tangent, seen = _dual_pass(model, x, along, None, features)
            return logits, tangent.detach(), seen
        except NotImplementedError as error:
            for buffer, before in zip(model.buffers(), saved, strict=True):  # some may have moved before it failed
                buffer.copy_(before)
            without_forward_mode.add(model)
            warnings.warn(
                f"{type(model).__name__} has an operation without a forward derivative ({str(error).splitlines()[0]}); "
                "MoGD differentiates twice backward instead: the same confidences, about twice as slow",
                stacklevel=2,
            )
    return _double_backward(model, x, along, None, features)


def replay_tangent(model: nn.Module, x: Tensor, along: Gradient, rng_state: Tensor | None) -> Tensor:
    """The tangent along a second gradient, for the same dropout masks; nothing is recorded, no buffer moves."""
    with frozen_buffers(model) as buffers, _replay(x, rng_state):
        if model in without_forward_mode:
            return _double_backward(model, x, along, buffers)[1]
        with torch.no_grad():
            return _dual_pass(model, x, along, buffers)[1]


def rng_state_of(x: Tensor) -> Tensor:
    """The state of the generator that dropout draws from on this device."""
    return torch.cuda.get_rng_state(x.device) if x.is_cuda else torch.get_rng_state()


def head_gradients(model: nn.Module, x: Tensor, y: Tensor, parts: list[Tensor] | None = None) -> list[Gradient]:
    """∇ L_meta over the last linear layer alone, in closed form, for each part of the clean rows (or for all of them).

    One forward pass without a graph serves every part: `G = Rᵀ F / M`, R the residuals p − y and F the features.
    """
    with torch.no_grad():
        if next(model.buffers(), None) is None:  # no statistics to keep as they are
            logits, features = with_features(model, x)
        else:
            with frozen_buffers(model, single=len(x) == 1) as buffers:
                logits, features = with_features(model, x, buffers)
    residual = torch.softmax(logits, dim=1)
    residual.scatter_(1, y[:, None], -1.0, reduce="add")
    if parts is None:
        return [{"weight": residual.T @ features / len(y), "bias": residual.mean(dim=0)}]
    found = []
    for rows in parts:  # a part of the residuals, zero elsewhere, is cheaper to copy than a part of the features
        part = torch.zeros_like(residual).index_copy_(0, rows, residual[rows]) / len(rows)
        found.append({"weight": part.T @ features, "bias": part.sum(dim=0)})
    return found


def head_tangent(model: nn.Module, features: Tensor, along: Gradient) -> Tensor:
    """`t = F Gᵀ + g_b`."""
    features = features.detach()
    if last_linear(model).bias is None:
        return features @ along["weight"].T
    return torch.addmm(along["bias"], features, along["weight"].T)


def head_differences(model: nn.Module, features: Tensor, along: Gradient) -> Tensor:
    """The alignments `−t` less a constant of each row, as `−(G Fᵀ)ᵀ`: half the time of `F Gᵀ` for a few classes."""
    t = along["weight"] @ features.detach().T
    return -(t if last_linear(model).bias is None else t + along["bias"][:, None]).T.contiguous()


def _forward(
    model: nn.Module, x: Tensor, changed: Buffers | None = None, features: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Logits, with some of the module's tensors changed, and the features where they are asked for."""
    return with_features(model, x, changed) if features else (functional_call(model, changed or {}, (x,)), None)


def _dual_pass(
    model: nn.Module, x: Tensor, along: Gradient, buffers: Buffers | None = None, features: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    parameters = dict(model.named_parameters())
    with forward_ad.dual_level():
        duals = {name: forward_ad.make_dual(parameters[name], g) for name, g in along.items()}
        dual, seen = _forward(model, x, {**(buffers or {}), **duals}, features)
        logits, tangent = forward_ad.unpack_dual(dual)
        seen = None if seen is None else forward_ad.unpack_dual(seen).primal
        return logits, torch.zeros_like(logits) if tangent is None else tangent, seen


def _double_backward(
    model: nn.Module, x: Tensor, along: Gradient, buffers: Buffers | None = None, features: bool = False
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same tangent by reverse over reverse: `t = ∂/∂v ⟨∂⟨logits, v⟩/∂θ, g⟩`."""
    logits, seen = _forward(model, x, buffers, features)
    parameters = dict(model.named_parameters())
    v = torch.zeros_like(logits, requires_grad=True)
    pulled = torch.autograd.grad(logits, [parameters[name] for name in along], v, create_graph=True)
    inner = torch.stack([(p * g).sum() for p, g in zip(pulled, along.values(), strict=True)]).sum()
    (tangent,) = torch.autograd.grad(inner, v, retain_graph=True)
    return logits, tangent, seen


@contextmanager
def _replay(x: Tensor, state: Tensor | None) -> Iterator[None]:
    """Draw the same dropout masks again, and leave the generator as it was found."""
    if state is None:
        yield
        return
    setter = (lambda s: torch.cuda.set_rng_state(s, x.device)) if x.is_cuda else torch.set_rng_state
    now = rng_state_of(x)
    setter(state)
    try:
        yield
    finally:
        setter(now)
