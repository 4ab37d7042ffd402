"""CandidateNoise: the truth may lie outside the set; labels that nobody named keep a small prior."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mogd.callbacks.base import Callback, Run
from mogd.methods.base import Batch, Method, Output, TrainingData


class CandidateNoise(Callback):
    """A label outside a row's set S has the prior `ε / (K − |S|)`, one inside `(1 − ε) / |S|`.

    With votes the sets are opened only: the annotators' confusion matrices speak of every label.

    Parameters
    ----------
    rate : ε, how often the truth lies outside; "auto" measures it on the clean rows whose own sets are known.
    """

    def __init__(self, rate: float | str = "auto") -> None:
        self.rate = rate

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if not (self.rate == "auto" or (isinstance(self.rate, (int, float)) and 0 < self.rate < 1)):
            return f"its rate must be 'auto' or a number between 0 and 1; got {self.rate!r}"
        if not method.uses_log_prior:
            return "it takes no opinions beside its network's"
        if not isinstance(data.candidates, Tensor):
            return "it opens every set to all classes, which are too many for as many rows"
        if self.rate == "auto" and data.clean_candidates is None:
            return "no clean rows have sets of their own to measure the rate on: give candidates_val, or a number"
        return None

    def start(self, run: Run) -> None:
        data = run.data
        assert isinstance(data.candidates, Tensor)
        self.rate_ = measured_rate(data) if self.rate == "auto" else float(self.rate)
        self.log_prior_: Tensor | None = None
        if data.evidence is None or data.evidence.kind != "votes":
            size = data.candidates.sum(dim=1, keepdim=True).to(data.weight.dtype)
            outside = (data.n_classes - size).clamp(min=1)
            odds = self.rate_ / (1 - self.rate_) * size / outside
            self.log_prior_ = torch.where(data.candidates, torch.zeros_like(odds), odds.log())
        partial = ~data.is_clean
        data.candidates = data.candidates.clone()
        data.candidates[partial] = True
        if data.clean_candidates is not None:
            data.clean_candidates = torch.ones_like(data.clean_candidates)

    def on_output(self, out: Output, batch: Batch) -> None:
        if self.log_prior_ is not None:
            out.log_prior = out.log_prior + self.log_prior_[batch.index]

    def findings(self) -> dict[str, Any]:
        return {"candidate_noise": self.rate_}


def measured_rate(data: TrainingData) -> float:
    """The share of clean rows whose own set lacks their label, half a row more on either side."""
    assert data.clean_candidates is not None
    missed = ~data.clean_candidates.gather(1, data.clean_y[:, None])
    return (float(missed.sum()) + 0.5) / (len(missed) + 1)
