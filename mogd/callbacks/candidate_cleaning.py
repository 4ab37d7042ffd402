"""CandidateCleaning: candidates outside a conformal prediction set leave, calibrated on clean rows (Fuchs, Kalinke)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, floor

import torch
from torch import Tensor, nn

from mogd.callbacks.base import Callback, Entry, Run
from mogd.methods.base import Batch, Method, TrainingData
from mogd.methods.common import forward_in_chunks, restricted
from mogd.methods.rows import by_rows

ROUNDING = 1e-9


class CandidateCleaning(Callback):
    """After each epoch the candidates outside the row's prediction set at level `alpha` leave its candidate set.

    The prediction sets are calibrated on the clean rows. A row all of whose candidates are outside keeps them. What
    leaves may come back: the next epoch's prediction set is applied to all candidates that were given.

    Parameters
    ----------
    alpha : the share of true labels that a prediction set may miss.
    holdout : the part of the clean rows, drawn at random, that calibrates and neither trains nor guides: then 1 − alpha
        holds. With 0 all clean rows calibrate and train too: none is lost, but the network knows them too well.
    start_fraction : of the epochs, the first ones, before whose end nothing is removed.
    """

    def __init__(self, alpha: float = 0.05, holdout: float = 0.0, start_fraction: float = 0.1) -> None:
        self.alpha = alpha
        self.holdout = holdout
        self.start_fraction = start_fraction

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if not (0 < self.alpha < 1 and 0 <= self.holdout <= 1):
            return (
                f"alpha must be above 0 and below 1, and holdout from 0 to 1; got {self.alpha!r} and {self.holdout!r}"
            )
        least, n_clean = ceil(1 / self.alpha - ROUNDING) - 1, len(data.clean_y)
        n_held = round(self.holdout * n_clean)
        if (n_held if self.holdout else n_clean) < least:
            share = f"{self.holdout:.0%} of {n_clean} are {n_held}" if self.holdout else f"there are {n_clean}"
            return f"it needs at least {least} clean rows to calibrate at alpha={self.alpha:g}; {share}"
        if method.needs_clean_set and n_held >= n_clean:
            return "it would take every clean row, and the method needs some; lower its holdout"
        return None

    def start(self, run: Run) -> None:
        data = run.data
        held = run.hold_out(round(self.holdout * len(data.clean_y))) if self.holdout else (data.clean_x, data.clean_y)
        self.held_x, self.held_y = held
        self.removed_ = by_rows(torch.zeros_like, data.candidates)

    def on_batch(self, batch: Batch) -> Batch:
        return replace(batch, confidence=restricted(batch.confidence, batch.candidates))

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        if "phase" in entry:
            return
        data = run.data
        if entry["epoch"] > self.start_fraction * run.settings.epochs - ROUNDING:
            # without what the method itself has given up
            before = by_rows(torch.logical_or, data.candidates, self.removed_)
            least = self._least(run.model)

            def outside(given: Tensor, x: Tensor) -> Tensor:
                out = given & ~(torch.softmax(forward_in_chunks(run.model, x), dim=1) >= least)
                return out & (given != out).any(dim=1, keepdim=True)  # never all of them

            self.removed_ = by_rows(outside, before, data.x)
            # a new matrix: the caller's own is left as it was
            data.candidates = by_rows(lambda given, out: given & ~out, before, self.removed_)
        entry["candidates_per_row"] = float(data.candidates.sum(dim=1).double().mean())

    def _least(self, model: nn.Module) -> Tensor:
        """The probability that a label needs to be in a row's prediction set."""
        of_label = torch.softmax(forward_in_chunks(model, self.held_x), dim=1).gather(1, self.held_y[:, None])[:, 0]
        return least_probability(of_label, self.alpha)


def least_probability(of_label: Tensor, alpha: float) -> Tensor:
    """The probability that a label needs to be in a prediction set, from those of the true labels of other rows.

    With the nonconformity 1 − p a label is inside where its p-value, (1 + #{calibration rows at most as probable}) /
    (n + 1), is above alpha.
    """
    rank = floor(alpha * (len(of_label) + 1) + ROUNDING)
    return of_label.sort().values[rank - 1]
