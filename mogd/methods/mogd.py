"""MoGD: meta objective guided disambiguation (Zou, Xie and Huang, 2022), as printed and in the form that wins.

A step on the weighted loss Σ_ij w_ij h_ij lowers the loss of the clean set by ⟨∇h_ij, ∇L_meta⟩ for each unit of w_ij.
MoGD sets the confidences from these alignments: `w ∝ prior · exp(strength · s · alignment / rms)` on the candidates. On
images a second head may have its say in the prior (`settask`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from mogd.methods.base import Batch, Method, Step, TrainingData
from mogd.methods.common import one_vs_all, posterior, weighted_cross_entropy, with_features
from mogd.methods.settask import SetTask, ends_in_linear
from mogd.methods.shrinkage import Shrinkage, centre
from mogd.methods.tangent import (
    Gradient,
    align,
    clean_gradient,
    head_gradients,
    head_tangent,
    logits_and_tangent,
    rng_state_of,
    tangent_again,
)

_NUMBERS = ("strength", "beta", "head_start", "set_task")
_SHARES = ("prior_momentum", "warmup", "finish")
_WHOLE = ("meta_every", "clean_batch_size")


def alignment(model: nn.Module, x: Tensor, clean_x: Tensor, clean_y: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of a batch, ready to be back-propagated, and `alignment[i, j] = ⟨∇_θ h_ij, ∇_θ L_meta⟩`.

    One gradient on the clean rows and one forward-mode pass on the batch; BatchNorm's running statistics are moved by
    the batch alone.
    """
    logits, tangent, _ = logits_and_tangent(model, x, clean_gradient(model, clean_x, clean_y))
    return logits, align(logits, tangent)


class MoGD(Method):
    """Confidences from the clean set's gradient: one exponentiated-gradient step from a prior.

    Parameters
    ----------
    prior : where the step starts. "posterior": the model's own probabilities on the candidates; "running": their
        running mean over the epochs before; "uniform": the paper's.
    strength : a typical step in logits, whatever the features' scale, before `shrink`; 0 leaves the prior as it is.
    beta : instead of `strength`, the paper's step size in effective units (αβ/b): `w ∝ prior · exp(beta · alignment)`.
    shrink : trust the clean set as far as it knows: multiply the alignment by how far two random halves of it agree
        and by its share of the rows (1 where one row in twenty is clean, 3 at most); leave alone the candidates of
        whose class it has no row.
    train_on_clean : let the clean rows train too, with one candidate each. In a deeper network on images a clean row
        weighs no more than others in the first half of the epochs, so as not to be learned by heart.
    clip : set negative alignments to zero first (Eq. 7).
    normalize : "softmax" (Eq. 8), or "sum" (Ren et al., 2018): `w = max(alignment, 0)` divided by its row's sum; a row
        without a positive alignment carries no weight.
    meta : "all" takes the gradient over all parameters, "head" over the last linear layer alone, in closed form.
    meta_every : steps for which one clean gradient is used before it is taken anew.
    clean_batch_size : clean rows drawn for each gradient; None takes them all.
    prior_momentum : of the running prior; 0 is the posterior of the row's last visit.
    head_start : steps on the clean rows' labels alone before all others (and on the other rows' sets, where `set_task`
        has them told), as a share of the run's steps: the first confidences are then what these rows say. None takes
        up to 1, the fewer the clean rows and the closer the company in which labels come, and so next to none where the
        wrong candidates are drawn at random; none for a linear model, where a class has no clean row, or where one row
        in twenty is clean and is heard anyway.
    set_task : weight of a second task for a deeper network: a second head on the same features, left behind after
        training, must tell the row's candidate set, label by label. What it tells enters the prior, with the exponent
        that suits the clean rows best: "trust" in the history. None takes up to 0.3 for images, the closer the company
        in which labels come, and none for tables, where one row in twenty is clean or where a class has no clean row.
    warmup : share of the epochs, the first ones, in which the loss is one-vs-all and a clean row weighs no more than
        others, so that the confidences settle later; None takes a half for a linear model (less where it has more than
        2000 rows, and with them more steps an epoch) and none for a deeper one.
    finish : share of the epochs, the last ones, in which the loss is the squared error of the probabilities: rows that
        the model cannot fit count for less; None takes a quarter for a linear model and none for a deeper one.
    """

    needs_clean_set = True
    keeps_confidence = True
    momentum = 0.98  # of the running means behind the shrinkage and the scale
    finish_scale = 5.0  # of the squared error, whose gradient is the smaller one; 2 and 10 do the same
    most_visits = 1500  # of a clean row in the head start that is taken by default
    compare_every = 4  # gradients between two comparisons of the halves, where a comparison costs a pass

    def __init__(
        self,
        prior: str = "posterior",
        strength: float = 1.0,
        *,
        beta: float | None = None,
        shrink: bool = True,
        train_on_clean: bool = True,
        clip: bool = False,
        normalize: str = "softmax",
        meta: str = "all",
        meta_every: int = 1,
        clean_batch_size: int | None = None,
        prior_momentum: float = 0.0,
        head_start: float | None = None,
        set_task: float | None = None,
        warmup: float | None = None,
        finish: float | None = None,
    ) -> None:
        self.prior = prior
        self.strength = strength
        self.beta = beta
        self.shrink = shrink
        self.train_on_clean = train_on_clean
        self.clip = clip
        self.normalize = normalize
        self.meta = meta
        self.meta_every = meta_every
        self.clean_batch_size = clean_batch_size
        self.prior_momentum = prior_momentum
        self.head_start = head_start
        self.set_task = set_task
        self.warmup = warmup
        self.finish = finish

    @classmethod
    def paper(cls, beta: float = 10.0, **changes: Any) -> Self:
        """Algorithm 1 as printed: uniform prior, gradient at w = 0, clip, softmax; the clean rows only guide."""
        printed: dict[str, Any] = {"prior": "uniform", "shrink": False, "train_on_clean": False, "clip": True}
        ours = dict.fromkeys(("head_start", "set_task", "warmup", "finish"), 0.0)
        return cls(beta=beta, **(printed | ours | changes))

    def clean_weight(self, n_clean: int, n_rows: int) -> float:
        """5 where one row in twenty or more is clean; less where they are few, so as not to learn these by heart."""
        return 1 + 4 * min(1.0, _share(n_clean, n_rows))

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        _check("prior", self.prior, ("posterior", "running", "uniform"))
        _check("normalize", self.normalize, ("softmax", "sum"))
        _check("meta", self.meta, ("all", "head"))
        for name in (*_NUMBERS, *_SHARES, *_WHOLE):
            _check_number(name, getattr(self, name))
        self.x_, self.candidates_, self.generator_ = data.x, data.candidates, generator
        self.clean_x_, self.clean_y_ = data.clean_x, data.clean_y
        self.known_ = torch.bincount(data.clean_y, minlength=data.candidates.shape[1]) > 0
        self.epochs_, self.done_ = data.epochs, 0.0
        n_partial = len(data.x) - (len(data.clean_y) if self.train_on_clean else 0)
        self.share_ = _share(len(data.clean_y), n_partial)
        self.brought_ = _brought_sets(data, n_partial)
        self._choose(model, data, n_partial)
        self.sets_ = SetTask(model, data.candidates.shape[1], self.set_task_) if self.set_task_ else None
        self.running_ = None
        if self.prior == "running":
            self.running_ = self.init_confidence(data.candidates).to(data.weight.dtype)
        self.gradients_: list[Gradient] = []
        self.steps_ = 0
        self.belief_ = Shrinkage(data.weight.device)

    def _choose(self, model: nn.Module, data: TrainingData, n_partial: int) -> None:
        """What the user left to the method: by the kind of network, the number of rows and the clean ones among them,
        and the company in which labels come."""
        linear = _is_all_head(model)
        self.head_ = self.meta == "head" or linear
        own = 0.5 * min(1.0, 2000 / max(n_partial, 1)) if linear else 0.0
        self.warmup_ = self.warmup if self.warmup is not None else own
        self.finish_ = self.finish if self.finish is not None else 0.25 * linear
        self.even_ = self.warmup_ if linear or data.x.ndim == 2 else max(0.5, self.warmup_)
        company = 0.0 if linear else min(1.0, (4 * _companionship(data.candidates)) ** 2)
        scarce = max(0.0, 1 - self.share_)
        most = self.most_visits * len(data.clean_y) / (data.epochs * len(data.x))
        own = min(company * scarce, most) if self.known_.all() else 0.0
        self.head_start_ = self.head_start if self.head_start is not None else own
        self.rows_ahead_ = self.head_start_ * data.epochs * len(data.x) if len(data.clean_y) > 1 else 0.0
        pays = data.x.ndim > 2 and self.known_.all() and company > 0.03  # wrong candidates at random have less
        wanted = self.set_task if self.set_task is not None else 0.3 * company * min(1.0, 3 * scarce) * bool(pays)
        told = bool(wanted) and not linear and ends_in_linear(model, data.x)
        if self.set_task and not linear and not told:
            raise ValueError(
                f"set_task={self.set_task} needs a network whose last nn.Linear gives the logits, which "
                f"{type(model).__name__} has not: pass set_task=0"
            )
        self.set_task_ = wanted if told else 0.0

    def parameters(self) -> Iterable[nn.Parameter]:
        return [] if self.sets_ is None else self.sets_.head.parameters()

    def train_batch(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        if self.steps_ == 0:
            self._start_ahead(model, len(batch.x), step)
        if self.done_ < self.even_:
            batch = replace(batch, weight=batch.weight.clamp(max=1))
        logits, features, estimates = self._alignments(model, batch)
        if self.shrink:
            estimates = [centre(a, batch.candidates & self.known_) for a in estimates]
        mean = estimates[0] if len(estimates) == 1 else (estimates[0] + estimates[1]) / 2
        self.last_ = (estimates, mean, batch.candidates)
        log_prior = self._log_prior(logits.detach(), batch)
        set_logits = None
        if self.sets_ is not None and features is not None:
            set_logits = self.sets_.head(features)
            log_prior = log_prior + self.sets_.log_prior(set_logits)
        if self.normalize == "sum":
            helpful = mean.clamp(min=0) * batch.candidates
            total = helpful.sum(dim=1, keepdim=True)
            weight = torch.where(total > 0, helpful / total, 0.0)
            confidence = torch.where(total > 0, weight, posterior(log_prior, batch.candidates))
        else:
            if self._uses_scale():
                self._note(self.momentum)
            move = self._size() * mean
            if self.clip:
                move = move.clamp(min=0)  # Eq. 7
            weight = confidence = posterior(log_prior + move, batch.candidates)  # Eq. 8
        losses = self._losses(logits, weight)
        if self.sets_ is not None and set_logits is not None:
            losses = losses + self.brought_[batch.index] * self.sets_.losses(set_logits, batch.candidates)
        step(batch.mean(losses))  # Eq. 9
        return confidence

    def epoch_end(self, model: nn.Module, epoch: int) -> dict[str, float]:
        """The alignment's root mean square and the shrinkage s: what the clean set had to say; the trust in sets."""
        self.done_ = (epoch + 1) / self.epochs_
        if not self._uses_scale():
            self._note(0.0)
        noted = {"alignment": float(self.belief_.rms())}
        if self.shrink:
            noted["shrinkage"] = float(self.belief_.factor())
        if self.sets_ is not None:
            noted["trust"] = self.sets_.calibrate(model, self.clean_x_, self.clean_y_)
        return noted

    def _start_ahead(self, model: nn.Module, n_rows: int, step: Step) -> None:
        """The head start: as many clean rows at a time as a batch has rows and, where sets are told, as many others."""
        partial = self.brought_.nonzero().flatten()
        for _ in range(round(self.rows_ahead_ / n_rows)):
            rows = torch.randperm(len(self.clean_y_), generator=self.generator_)[:n_rows].to(self.clean_y_.device)
            if self.sets_ is None or not len(partial):
                step(cross_entropy(model(self.clean_x_[rows]), self.clean_y_[rows]))
                continue
            others = partial[torch.randint(len(partial), (n_rows,), generator=self.generator_).to(partial.device)]
            logits, features = with_features(model, torch.cat([self.clean_x_[rows], self.x_[others]]))
            known = cross_entropy(logits[: len(rows)], self.clean_y_[rows])
            set_logits = self.sets_.head(features[len(rows) :])
            step(known + self.sets_.losses(set_logits, self.candidates_[others]).mean())
        if self.sets_ is not None and self.rows_ahead_:
            self.sets_.calibrate(model, self.clean_x_, self.clean_y_)

    def _is_warming_up(self) -> bool:
        return self.done_ < self.warmup_

    def _losses(self, logits: Tensor, weight: Tensor) -> Tensor:
        """The weighted loss of each row: one-vs-all in the warm-up, squared error at the end, cross entropy between."""
        if self._is_warming_up():
            return one_vs_all(logits, weight)
        if self.done_ > 1 - self.finish_ - 1e-9:
            return self.finish_scale * (torch.softmax(logits, dim=1) - weight).square().sum(dim=1)
        return weighted_cross_entropy(logits, weight)

    def _alignments(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """Logits and features of the batch, and its alignment with each half of the clean set, or with the whole."""
        fresh = self.steps_ % self.meta_every == 0
        self.steps_ += 1
        features: Tensor | None
        if self.head_:
            if fresh:
                self.gradients_ = head_gradients(model, *self._draw(compare=self.shrink))
            logits, features = with_features(model, batch.x)
            return logits, features, [align(logits, head_tangent(model, features, g)) for g in self.gradients_]
        if fresh:  # a second tangent pass costs a forward, so that the halves are compared in some of the steps only
            compare = self.shrink and (self.steps_ - 1) // self.meta_every % self.compare_every == 0
            x, y, parts = self._draw(compare=compare)
            pieces = [(x, y)] if parts is None else [(x[rows], y[rows]) for rows in parts]
            self.gradients_ = [clean_gradient(model, *piece) for piece in pieces]
        state = rng_state_of(batch.x) if len(self.gradients_) > 1 else None
        wanted = self.sets_ is not None
        logits, tangent, features = logits_and_tangent(model, batch.x, self.gradients_[0], features=wanted)
        tangents = [tangent, *(tangent_again(model, batch.x, g, state) for g in self.gradients_[1:])]
        return logits, features, [align(logits, t) for t in tangents]

    def _draw(self, *, compare: bool) -> tuple[Tensor, Tensor, list[Tensor] | None]:
        """Clean rows for one gradient and, to compare them, the rows of two random halves."""
        x, y = self.clean_x_, self.clean_y_
        if not compare and self.clean_batch_size is None:
            return x, y, None
        order = torch.randperm(len(y), generator=self.generator_).to(y.device)
        if self.clean_batch_size is not None:
            order = order[: self.clean_batch_size]
            x, y, order = x[order], y[order], torch.arange(len(order), device=y.device)
        return x, y, list(order.tensor_split(2)) if compare and len(order) > 1 else None

    def _uses_scale(self) -> bool:
        """Whether a step asks for the alignment's running means; else they are only told, once an epoch."""
        return self.normalize == "softmax" and (self.beta is None or self.shrink)

    def _size(self) -> Tensor | float:
        """What the alignment is multiplied by: `beta`, or `strength / rms`; shrunk by s and the clean rows' share."""
        size = self.strength / self.belief_.rms() if self.beta is None else self.beta
        return size * min(3.0, self.share_) * self.belief_.factor() if self.shrink else size

    def _note(self, keep: float) -> None:
        """Running means over the compared candidates: of the halves' product, and of the squared alignment."""
        estimates, mean, candidates = self.last_
        self.belief_.note(estimates, mean, candidates & self.known_ if self.shrink else candidates, keep)

    def _log_prior(self, logits: Tensor, batch: Batch) -> Tensor:
        if self.prior == "uniform":
            return torch.zeros_like(logits)
        if self.running_ is None:
            return log_softmax(logits, dim=1)
        before, keep = self.running_[batch.index], self.prior_momentum
        self.running_[batch.index] = keep * before + (1 - keep) * posterior(logits, batch.candidates)
        return before.clamp(min=1e-12).log()


def _share(n_clean: int, n_rows: int) -> float:
    """How much the clean rows may say beside the others: 1 where one row in twenty is clean."""
    return 20 * n_clean / max(n_rows, 1)


def _brought_sets(data: TrainingData, n_partial: int) -> Tensor:
    """Which rows came with a candidate set: not the clean ones, whether they joined as the last rows or, where none
    were given, are the rows with one candidate."""
    if n_partial == len(data.x):  # the clean rows only guide
        return torch.ones(len(data.x), dtype=torch.bool, device=data.x.device)
    if torch.equal(data.x[n_partial:], data.clean_x):
        return torch.arange(len(data.x), device=data.x.device) < n_partial
    return data.candidates.sum(dim=1) > 1


def _companionship(candidates: Tensor) -> float:
    """How much more often a label's closest companion is in its sets than in all: 0 for wrong labels at random."""
    sets = candidates.float()
    together = sets.T @ sets
    count = together.diagonal()
    closer = together / count.clamp(min=1)[:, None] - count / max(len(sets), 1)
    return float((closer.fill_diagonal_(0).amax(dim=1) * count).sum() / count.sum().clamp(min=1))


def _is_all_head(model: nn.Module) -> bool:
    """Whether the last linear layer holds every parameter, so that its closed form is the whole gradient."""
    heads = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return bool(heads) and {id(p) for p in model.parameters()} == {id(p) for p in heads[-1].parameters()}


def _check_number(name: str, value: Any) -> None:
    least = 1 if name in _WHOLE else 0
    kind = "whole number" if name in _WHOLE else "number"
    most = 1 if name in _SHARES else float("inf")
    optional = name not in ("strength", "prior_momentum", "meta_every")
    fits = isinstance(value, Integral if name in _WHOLE else Real) and not isinstance(value, bool)
    if not (value is None and optional) and not (fits and least <= value <= most):
        span = f"of {least} or more" if most > 1 else "from 0 to 1"
        raise ValueError(f"{name} must be a {kind} {span}; got {value!r}")


def _check(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}; got {value!r}")
