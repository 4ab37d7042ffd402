"""POP: progressive purification (Xu et al., ICML 2023). PRODEN whose candidate sets shrink over the epochs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import posterior, restricted
from mogd.methods.rows import Rows, by_rows

STEADY = 1e-4  # share of all labels: where a purification removes fewer, the next one is stricter
LARGEST = 0.4  # threshold, above which it does not grow


class POP(Method):
    """Cross entropy weighted as in PRODEN; every `window` epochs the labels that stayed unlikely leave their sets.

    Parameters
    ----------
    threshold : a candidate goes whose mean confidence is below this part of the row's most probable candidate's.
    growth : the threshold is multiplied by 1 + growth after a purification that removes hardly any label.
    window : epochs over which confidences are averaged, and between two purifications.
    warmup_epochs : epochs of PRODEN before the first purification.
    """

    updates_confidence = True
    is_posterior = True
    uses_log_prior = True

    def __init__(self, threshold: float = 1e-3, growth: float = 1e-3, window: int = 5, warmup_epochs: int = 20) -> None:
        self.threshold = threshold
        self.growth = growth
        self.window = window
        self.warmup_epochs = warmup_epochs

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        if self.window < 1:
            raise ValueError(f"window must be a whole number of at least 1; got {self.window!r}")
        self.data_ = data
        self.sum_ = self._zeros()  # of the window's confidences
        self.threshold_ = self.threshold

    def row_state(self) -> list[Rows]:
        return [self.sum_]

    def confidence(self, out: Output, batch: Batch) -> Tensor:
        return restricted(batch.confidence, batch.candidates)  # the set may have shrunk since the last visit

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        new = posterior(out.opinion, batch.candidates)  # as in PRODEN
        self.sum_[batch.index] += new
        return new

    def epoch_end(self, model: nn.Module, epoch: int) -> dict[str, float]:
        if epoch % self.window == 0:  # the sum holds the last `window` epochs
            if epoch >= self.warmup_epochs:
                self._purify()
            self.sum_ = self._zeros()
        return {"candidates_per_row": float(self.data_.candidates.sum(dim=1).double().mean())}

    def _purify(self) -> None:
        before = self.data_.candidates
        kept = by_rows(self._kept, before, self.sum_)
        self.data_.candidates = kept  # a new matrix: the caller's own is left as it was
        removed = int(before.sum(dim=1).sum() - kept.sum(dim=1).sum())
        if self.threshold_ < LARGEST and removed < STEADY * before.numel():
            self.threshold_ *= 1 + self.growth

    def _kept(self, before: Tensor, total: Tensor) -> Tensor:
        mean = total * before
        return before & (mean >= self.threshold_ * mean.amax(dim=1, keepdim=True))  # never empty: the largest stays

    def _zeros(self) -> Rows:
        return by_rows(torch.zeros_like, self.data_.candidates).to(self.data_.weight.dtype)
