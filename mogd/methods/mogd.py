"""MoGD: meta objective guided disambiguation (Zou, Xie and Huang, 2022).

A step on the weighted loss Σ_ij w_ij h_ij lowers the loss of the clean rows by ⟨∇h_ij, ∇L_meta⟩ for each unit of w_ij.
MoGD sets the confidences from these alignments: one exponentiated-gradient step from a prior.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import torch
from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import posterior
from mogd.methods.meta import MetaObjective
from mogd.methods.priors import PRIORS, LastVisit, make_prior
from mogd.methods.steps import StepRule, sum_normalised

CHOICES = {"prior": PRIORS, "normalize": ("softmax", "sum"), "meta": ("auto", "all", "head")}


class MoGD(Method):
    """Confidences from the clean set's gradient: `w ∝ prior · exp(step · alignment)` on the candidates.

    Parameters
    ----------
    prior : where the step starts. "posterior": the network's own probabilities on the candidates; "running": these as
        they were at the row's last visit; "uniform": the paper's.
    strength : a typical step in logits, whatever the features' scale, before `shrink`; 0 is no meta step.
    beta : instead of `strength`, the paper's step size in effective units (αβ/b); 0 is no meta step.
    shrink : multiply the step by how far two random halves of the clean rows agree and by the clean rows' ratio to the
        others (1 where one row in twenty is clean, 1.5 at most); leave alone the candidates of whose class there is no
        clean row. The closed form then has a new clean gradient in every fourth step; else every step has one.
    clip : set negative alignments to zero first (Eq. 7).
    meta : the gradient of "all" parameters or of the last layer ("head", closed form); "auto": head if convolutional.
    normalize : "softmax" (Eq. 8), or "sum" (Ren et al., 2018): `w = max(alignment, 0)` divided by its row's sum; a row
        without a positive alignment carries no weight.
    train_on_clean : let the clean rows train too, with one candidate each.
    """

    needs_clean_set = True
    updates_confidence = True
    uses_log_prior = True

    def __init__(
        self,
        prior: str = "posterior",
        strength: float = 1.0,
        *,
        beta: float | None = None,
        shrink: bool = True,
        clip: bool = False,
        meta: str = "auto",
        normalize: str = "softmax",
        train_on_clean: bool = True,
    ) -> None:
        self.prior = prior
        self.strength = strength
        self.beta = beta
        self.shrink = shrink
        self.clip = clip
        self.meta = meta
        self.normalize = normalize
        self.train_on_clean = train_on_clean

    @classmethod
    def paper(cls, beta: float = 10.0, **changes: Any) -> Self:
        """Algorithm 1 as printed: uniform prior, gradient at w = 0, clip, softmax; the clean rows only guide."""
        printed: Any = {"prior": "uniform", "shrink": False, "clip": True, "meta": "all", "train_on_clean": False}
        return cls(beta=beta, **(printed | changes))

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        self._check()
        self.is_posterior = self.prior != "uniform" and self.normalize == "softmax"  # moved by the meta step
        shrink, head = self.shrink and self.normalize == "softmax", self.meta == "head"  # a sum needs no comparison
        size = self.strength if self.beta is None else self.beta
        with_step = (size > 0 or self.normalize == "sum") and len(data.guides[1]) > 0
        self.meta_ = MetaObjective(model, data, generator, head=head, halves=shrink) if with_step else None
        self.step_ = StepRule(self.strength, self.beta, shrink, data, self.meta_.every if self.meta_ else 1)
        self.prior_ = make_prior(self.prior, data)

    def row_state(self) -> list[Tensor]:
        return [self.prior_.seen] if isinstance(self.prior_, LastVisit) else []

    def forward(self, model: nn.Module, batch: Batch) -> Output:
        if self.meta_ is None:
            return super().forward(model, batch)
        return self.meta_(model, batch)  # Eq. 3 and 5: ⟨∇h_ij, ∇L_meta⟩, exactly

    def confidence(self, out: Output, batch: Batch) -> Tensor:
        log_prior = self.prior_(out, batch) + out.log_prior
        if self.meta_ is None:
            return posterior(log_prior, batch.candidates)
        move = self.step_(out.alignments, batch)  # Eq. 6
        if self.normalize == "sum":
            return sum_normalised(out.alignments, batch)
        if self.clip:
            move = move.clamp(min=0)  # Eq. 7
        return posterior(log_prior + move, batch.candidates)  # Eq. 8; `losses`, the weighted loss, is Eq. 9

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        if self.normalize == "softmax":
            return confidence
        has_weight = confidence.sum(dim=1, keepdim=True) > 0
        return torch.where(has_weight, confidence, posterior(out.logits.detach(), batch.candidates))

    def epoch_end(self, model: nn.Module, epoch: int) -> dict[str, float] | None:
        return None if self.meta_ is None else self.step_.history()

    def _check(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {getattr(self, name)!r}")
        for name, value in (("strength", self.strength), ("beta", 0.0 if self.beta is None else self.beta)):
            if not isinstance(value, Real) or isinstance(value, bool) or not value >= 0:
                raise ValueError(f"{name} must be a number of 0 or more; got {value!r}")
