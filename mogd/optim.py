"""Muon for convolutions beside SGD for everything else, as one optimizer (Jordan, 2024: airbench and Muon).

torch's own `torch.optim.Muon` takes matrices alone and refuses a convolution's weight of four dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients: quick to come near, not exact
# learning rates beside Muon's, in airbench's recipe: 0.67 for the head and 0.053 for biases where Muon has 0.24
HEAD_FACTOR, BIAS_FACTOR = 2.8, 0.22


class Muon(torch.optim.Optimizer):
    """Momentum whose step for a convolution is made orthogonal; Nesterov's SGD for matrices and biases.

    A convolution's weight, as a matrix with a row for each output channel, moves by `lr` times an orthogonal matrix and
    is kept at the norm of one with rows of length 1: a BatchNorm behind it makes its length meaningless, and so the
    step size is an angle. `momentum` is SGD's; Muon has its own, which is shorter.
    """

    muon_momentum = 0.6

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.85, weight_decay: float = 0.0
    ) -> None:
        params = list(params)
        groups: list[dict[str, Any]] = [
            {"params": [p for p in params if p.ndim == 4], "orthogonal": True, "factor": 1.0},
            {"params": [p for p in params if p.ndim in (2, 3)], "orthogonal": False, "factor": HEAD_FACTOR},
            {"params": [p for p in params if p.ndim < 2], "orthogonal": False, "factor": BIAS_FACTOR},
        ]
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__([group for group in groups if group["params"]], defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            momentum = self.muon_momentum if group["orthogonal"] else group["momentum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad if group["orthogonal"] else p.grad.add(p, alpha=group["weight_decay"])
                if p not in self.state:
                    self.state[p]["buffer"] = torch.zeros_like(p)
                buffer = self.state[p]["buffer"].mul_(momentum).add_(grad)
                update = grad.add(buffer, alpha=momentum)  # Nesterov's
                if group["orthogonal"]:
                    update = orthogonalize(update.flatten(1)).reshape(update.shape)
                    p.mul_(len(p) ** 0.5 / p.norm())
                p.add_(update, alpha=-group["lr"] * group["factor"])


def orthogonalize(matrix: Tensor, steps: int = 3) -> Tensor:
    """Near to `U Vᵀ` of the matrix's singular value decomposition, by Newton–Schulz iterations in bfloat16."""
    a, b, c = NEWTON_SCHULZ
    x = matrix.bfloat16()
    tall = len(x) > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return (x.T if tall else x).to(matrix.dtype)
