"""What was tried on top of MoGD and not kept, in a form that can be run again: `python -m benchmarks.training_folds`.

Each idea is one parameter of `Trial`; what came of it stands on MoGD's page.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mogd.methods.base import Batch, Step, TrainingData
from mogd.methods.common import fresh_logits, one_vs_all, posterior
from mogd.methods.mogd import MoGD
from mogd.methods.shrinkage import centre


class Trial(MoGD):
    """MoGD with another loss, prior or row weight.

    Parameters
    ----------
    surrogate : "cross-entropy", "one-vs-all", "brier" (squared error of the probabilities), "sigmoid" (bounded, as in
        LWS) or "gce" (generalised cross entropy, exponent 0.7); `share` of it, and the rest cross entropy.
    until : the share of the epochs for which the loss is the other one; 1 is the whole run.
    sharpen : exponent of the prior after the warm-up. smooth : label smoothing. slow : momentum of the confidences.
    rows : weight of a row: "" (all alike), "agreement" (Σ_j w_ij²), or "meta" (exp of the row's own alignment).
    teacher : the prior comes from an average of the weights over the steps, with this decay.
    partner : co-training: a second network of the same kind gives the prior, and is given the first one's.
    prune : conformal pruning: a candidate whose share of the row's highest probability is below this quantile of the
        clean rows' true labels (taken after every epoch) is left out.
    mix : mixup: the loss is that of convex combinations of two rows and their confidences, Beta(mix, mix).
    level : a meta model of few parameters: the alignment of a candidate is replaced by its running mean over all
        candidates of its "class", or of its class and the row's most probable candidate ("pair").
    """

    def __init__(
        self,
        prior: str = "posterior",
        strength: float = 1.0,
        *,
        meta: str = "all",
        prior_momentum: float = 0.0,
        head_start: float | None = 0.0,
        warmup: float | None = 0.0,
        finish: float | None = 0.0,
        sharpen: float = 1.0,
        surrogate: str = "cross-entropy",
        share: float = 1.0,
        until: float = 1.0,
        smooth: float = 0.0,
        slow: float = 0.0,
        rows: str = "",
        teacher: float = 0.0,
        partner: bool = False,
        prune: float = 0.0,
        mix: float = 0.0,
        level: str = "candidate",
    ) -> None:
        super().__init__(
            prior,
            strength,
            meta=meta,
            prior_momentum=prior_momentum,
            head_start=head_start,
            set_task=0.0,
            warmup=warmup,
            finish=finish,
        )
        self.sharpen = sharpen
        self.surrogate = surrogate
        self.share = share
        self.until = until
        self.smooth = smooth
        self.slow = slow
        self.rows = rows
        self.teacher = teacher
        self.partner = partner
        self.prune = prune
        self.mix = mix
        self.level = level

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        super().start(model, data, generator)
        self.count_ = 0
        self.draws_ = np.random.default_rng(0)
        self.slow_ = self.init_confidence(data.candidates).to(data.weight.dtype)
        self.teacher_ = copy.deepcopy(model).eval().requires_grad_(False) if self.teacher else None
        self.partner_ = _another(model) if self.partner else None
        self.threshold_ = 0.0
        self.pools_: dict[tuple[int, int], Tensor] = {}

    def parameters(self) -> Iterable[nn.Parameter]:
        return [*super().parameters(), *(self.partner_.parameters() if self.partner_ is not None else [])]

    def train_batch(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        self.batch_, self.model_ = batch, model
        if self.prune and self.threshold_:
            batch = self._pruned(model, batch)
        if self.partner_ is not None:
            return self._with_partner(model, batch, step)
        confidence = super().train_batch(model, batch, step)
        if self.teacher_ is not None:
            self.count_ += 1
            keep = min(self.teacher, (1 + self.count_) / (10 + self.count_))
            with torch.no_grad():
                for old, new in zip(_floats(self.teacher_), _floats(model), strict=True):
                    old.lerp_(new, 1 - keep)
        return confidence

    def _with_partner(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """Each network's candidates are weighed by the other's probabilities; the alignment is the first one's."""
        assert self.partner_ is not None
        other = self.partner_(batch.x)
        self.exchanged_ = other.detach()
        losses: list[Tensor] = []
        confidence = super().train_batch(model, batch, losses.append)
        own = posterior(fresh_logits(model, batch.x), batch.candidates)
        step(losses[0] + batch.mean(self._losses(other, own)))
        return confidence

    def _pruned(self, model: nn.Module, batch: Batch) -> Batch:
        p = posterior(fresh_logits(model, batch.x), batch.candidates)
        kept = batch.candidates & (p >= self.threshold_ * p.amax(dim=1, keepdim=True))
        return replace(batch, candidates=kept)

    def epoch_end(self, model: nn.Module, epoch: int) -> dict[str, float]:
        if self.prune:
            p = torch.softmax(fresh_logits(model, self.clean_x_), dim=1)
            share = p[torch.arange(len(p)), self.clean_y_] / p.amax(dim=1)
            self.threshold_ = float(share.quantile(self.prune))
        return super().epoch_end(model, epoch)

    def _alignments(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        logits, features, estimates = super()._alignments(model, batch)
        if self.level == "candidate":
            return logits, features, estimates
        candidates = batch.candidates & self.known_
        n_classes = candidates.shape[1]
        group = torch.arange(n_classes).repeat(len(logits), 1)
        if self.level == "pair":
            group = group * n_classes + posterior(logits.detach(), batch.candidates).argmax(dim=1, keepdim=True)
        pooled = []
        for number, estimate in enumerate(estimates):
            values = centre(estimate, candidates)[candidates]
            kept = self.pools_.setdefault((number, len(estimates)), values.new_zeros(2, n_classes**2))
            kept.mul_(0.9).index_add_(1, group[candidates], torch.stack([values, torch.ones_like(values)]))
            pooled.append((kept[0] / kept[1].clamp(min=1e-6))[group] * candidates)
        return logits, features, pooled

    def _log_prior(self, logits: Tensor, batch: Batch) -> Tensor:
        if self.teacher_ is not None:
            logits = self.teacher_(batch.x)
        if self.partner_ is not None:
            logits = self.exchanged_
        return (1.0 if self._is_warming_up() else self.sharpen) * super()._log_prior(logits, batch)

    def _losses(self, logits: Tensor, weight: Tensor) -> Tensor:
        confidence = weight
        if self.slow:
            weight = self.slow * self.slow_[self.batch_.index] + (1 - self.slow) * weight
            self.slow_[self.batch_.index] = weight
        if self.smooth:
            weight = (1 - self.smooth) * weight + self.smooth / weight.shape[1]
        if self.mix:
            logits, weight = self._mixed(weight)
        losses = super()._losses(logits, weight)
        if self.surrogate != "cross-entropy" and self.done_ < self.until:
            losses = torch.lerp(losses, self._other(logits, weight), self.share)
        if self.rows == "agreement":
            return losses * confidence.square().sum(dim=1)
        if self.rows == "meta":
            own = (confidence * self.last_[1]).sum(dim=1)
            own = own / own.square().mean().sqrt().clamp(min=1e-12)
            return losses * torch.softmax(self.belief_.factor() * own, dim=0) * len(own)
        return losses

    def _mixed(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        order = torch.randperm(len(weight), generator=self.generator_)
        share = float(self.draws_.beta(self.mix, self.mix))
        share = max(share, 1 - share)
        x = self.batch_.x
        return self.model_(torch.lerp(x[order], x, share)), torch.lerp(weight[order], weight, share)

    def _other(self, logits: Tensor, weight: Tensor) -> Tensor:
        p = torch.softmax(logits, dim=1)
        if self.surrogate == "one-vs-all":
            return one_vs_all(logits, weight)
        if self.surrogate == "brier":
            return (p - weight).square().sum(dim=1)
        if self.surrogate == "gce":
            return (weight * (1 - p.clamp(min=1e-7) ** 0.7)).sum(dim=1) / 0.7
        if self.surrogate == "sigmoid":
            off = posterior(logits.detach(), ~self.batch_.candidates).nan_to_num(0.0)
            return (weight * torch.sigmoid(-logits) + off * torch.sigmoid(logits)).sum(dim=1)
        raise ValueError(f"no such loss: {self.surrogate!r}")


def _another(model: nn.Module) -> nn.Module:
    """A network of the same kind with other weights."""
    other = copy.deepcopy(model)
    for module in other.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d)):
            module.reset_parameters()
    return other


def _floats(model: nn.Module) -> list[Tensor]:
    return [t for t in model.state_dict(keep_vars=False).values() if t.is_floating_point()]


def _trials() -> dict[str, tuple[Trial, dict[str, Any]]]:
    whole: dict[str, tuple[Trial, dict[str, Any]]] = {
        "one-vs-all": (Trial(surrogate="one-vs-all"), {}),
        "one-vs-all, clean ×2": (Trial(surrogate="one-vs-all"), {"clean_weight": 2}),
        "a quarter one-vs-all": (Trial(surrogate="one-vs-all", share=0.25), {}),
        "a quarter one-vs-all, first fifth": (Trial(surrogate="one-vs-all", share=0.25, until=0.2), {}),
        "one-vs-all, first fifth": (Trial(surrogate="one-vs-all", until=0.2), {}),
        "one-vs-all, first half": (Trial(surrogate="one-vs-all", until=0.5), {}),
        "one-vs-all, first fifth, no meta step": (Trial(strength=0.0, surrogate="one-vs-all", until=0.2), {}),
        "brier, lr 0.3": (Trial(surrogate="brier"), {"lr": 0.3}),
        "sigmoid, lr 0.3": (Trial(surrogate="sigmoid"), {"lr": 0.3}),
        "gce, lr 0.2": (Trial(surrogate="gce"), {"lr": 0.2}),
        "label smoothing 0.3": (Trial(smooth=0.3), {}),
        "tempered prior 0.5": (Trial(sharpen=0.5), {}),
        **{f"prior's exponent {g}": (Trial(sharpen=g, warmup=None, finish=None), {}) for g in (1.25, 1.5, 2.0)},
        "prior's exponent 1.5, no meta step": (Trial(strength=0.0, sharpen=1.5), {"clean_weight": 1}),
        "slow confidences 0.9": (Trial(slow=0.9), {}),
        "rows by agreement": (Trial(rows="agreement"), {}),
        "rows by agreement, running prior (momentum 0.5)": (
            Trial(rows="agreement", prior="running", prior_momentum=0.5),
            {},
        ),
        "rows by alignment": (Trial(rows="meta"), {}),
        "averaged weights as prior": (Trial(teacher=0.99), {}),
        "weight decay 3e-3": (Trial(), {"weight_decay": 3e-3}),
        "weight decay 1e-2": (Trial(), {"weight_decay": 1e-2}),
    }
    for meta in ("all", "head"):
        own = "" if meta == "all" else "head, "
        whole |= {
            f"{own}mixup": (Trial(meta=meta, mix=1.0), {}),
            f"{own}mixup 0.3": (Trial(meta=meta, mix=0.3), {}),
            f"{own}co-training": (Trial(meta=meta, partner=True), {}),
            f"{own}co-training, exponent 1.5": (Trial(meta=meta, partner=True, sharpen=1.5), {}),
            f"{own}exponent 1.5": (Trial(meta=meta, sharpen=1.5), {}),
            f"{own}strength 5, exponent 1.5": (Trial(strength=5.0, meta=meta, sharpen=1.5), {}),
            f"{own}averaged weights as prior, exponent 1.5": (Trial(meta=meta, teacher=0.99, sharpen=1.5), {}),
            f"{own}pruning 0.02": (Trial(meta=meta, prune=0.02), {}),
            f"{own}meta model, class": (Trial(meta=meta, level="class"), {}),
            f"{own}meta model, pair": (Trial(meta=meta, level="pair"), {}),
        }
    return {f"idea: {name}": trial for name, trial in whole.items()}


IDEAS = _trials()
