"""The meta objective: the loss of the clean rows, and how far a step on each candidate would lower it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mogd.methods.base import Batch, Output, TrainingData
from mogd.methods.common import is_closed_form, with_features
from mogd.methods.tangent import (
    Gradient,
    align,
    clean_gradient,
    head_differences,
    head_gradients,
    head_tangent,
    logits_and_tangent,
    replay_tangent,
    rng_state_of,
    without_forward_mode,
)

COMPARE_EVERY = 4  # steps between two comparisons of the halves; in closed form their gradients serve so long, too
MOST_CLEAN_ROWS = 1024  # drawn for one gradient: more change it by less than the halves differ, and cost a larger pass


def alignment(model: nn.Module, x: Tensor, clean_x: Tensor, clean_y: Tensor) -> tuple[Tensor, Tensor]:
    """Logits of a batch, ready to be back-propagated, and `alignment[i, j] = ⟨∇_θ h_ij, ∇_θ L_meta⟩`.

    One gradient on the clean rows and one forward-mode pass on the batch; BatchNorm's running statistics are moved by
    the batch alone.
    """
    logits, tangent, _ = logits_and_tangent(model, x, clean_gradient(model, clean_x, clean_y))
    return logits, align(logits, tangent)


class MetaObjective:
    """The forward pass of a batch with its alignments: one with all clean rows, or one with each of two random halves.

    `head` takes the gradient over the last linear layer alone, in closed form; for a model without other parameters
    that is the whole gradient. With `halves`, whose alignments are compared within each row, the closed form leaves out
    a constant of the row, and a gradient serves for a few steps: both would cost more than all the rest
    (docs/studies/cost.md).
    """

    def __init__(
        self, model: nn.Module, data: TrainingData, generator: torch.Generator, *, head: bool, halves: bool
    ) -> None:
        self.guides = lambda: data.guides  # asked for anew: what is kept here is in checkpoints, which hold no rows
        self.generator = generator
        self.closed_form = head or is_closed_form(model)
        self.halves = halves
        self.every = COMPARE_EVERY if halves and self.closed_form else 1  # steps between two gradients
        self.steps = 0
        self.along: list[Gradient] = []
        self.differentiates_twice = False  # once it was found that the model has no forward derivative

    def __call__(self, model: nn.Module, batch: Batch) -> Output:
        self._look(model)
        if self.closed_form:
            out = Output(*with_features(model, batch.x))
            out.alignments = self._alignments(model, out)
            return out
        if self.differentiates_twice:
            without_forward_mode.add(model)  # a run that goes on shall not try again: that would draw dropout masks
        state = rng_state_of(batch.x) if len(self.along) > 1 else None
        logits, tangent, features = logits_and_tangent(model, batch.x, self.along[0], features=batch.wants_features)
        self.differentiates_twice = model in without_forward_mode
        tangents = [tangent, *(replay_tangent(model, batch.x, g, state) for g in self.along[1:])]
        return Output(logits, features, [align(logits, t) for t in tangents])

    def beside(self, model: nn.Module, out: Output) -> list[Tensor]:
        """The alignments over the last layer, for a pass that was somebody else's and has its features."""
        self._look(model)
        return self._alignments(model, out)

    def _look(self, model: nn.Module) -> None:
        """At the clean rows, where it is time to."""
        if self.steps % self.every == 0:
            self.along = self._gradients(model, self.halves and self.steps % COMPARE_EVERY == 0)
        elif len(self.along) > 1:
            first, second = self.along
            self.along = [{name: (g + second[name]) / 2 for name, g in first.items()}]
        self.steps += 1

    def _alignments(self, model: nn.Module, out: Output) -> list[Tensor]:
        """In closed form, from the features."""
        assert out.features is not None
        if self.every > 1:
            return [head_differences(model, out.features, g) for g in self.along]
        return [align(out.logits, head_tangent(model, out.features, g)) for g in self.along]

    def _gradients(self, model: nn.Module, compare: bool) -> list[Gradient]:
        """∇ L_meta over all clean rows or, to compare them, over each of two halves."""
        x, y, parts = self._draw(compare)
        if self.closed_form:
            return head_gradients(model, x, y, parts)
        pieces = [(x, y)] if parts is None else [(x[rows], y[rows]) for rows in parts]
        return [clean_gradient(model, *piece) for piece in pieces]

    def _draw(self, compare: bool) -> tuple[Tensor, Tensor, list[Tensor] | None]:
        """Clean rows for one gradient and, to compare them, the rows of two random halves."""
        x, y = self.guides()
        many = len(y) > MOST_CLEAN_ROWS
        if not compare and not many:
            return x, y, None
        order = torch.randperm(len(y), generator=self.generator).to(y.device)
        if many:
            order = order[:MOST_CLEAN_ROWS]
            x, y, order = x[order], y[order], torch.arange(MOST_CLEAN_ROWS, device=y.device)
        return x, y, list(order.tensor_split(2)) if compare and len(order) > 1 else None
