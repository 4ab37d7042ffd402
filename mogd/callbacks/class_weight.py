"""ClassWeight: rows of some classes count more in the loss, where a row's class is what its candidates leave open."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mogd.callbacks.base import Callback, Run
from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import posterior
from mogd.methods.rows import parts_of


class ClassWeight(Callback):
    """A row counts as much as its class: in expectation, by the present posterior on its candidates.

    A row with one candidate has exactly the weight of its class. One with several has at first nearly the mean of their
    weights, and that of the label it is resolved to as the network becomes sure. Weights of the rows are multiplied.

    Parameters
    ----------
    weights : one number for each class, in their order; or "balanced": `n / (K · n_k)`, where `n_k` is the expected
        number of rows of class k when each candidate of a row is equally likely. A class of no set has the weight 1.
    """

    def __init__(self, weights: str | Sequence[float] = "balanced") -> None:
        self.weights = weights

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if not method.takes_class_weight:
            return "its loss counts the rows that rule a class out, not those of a class"
        if isinstance(self.weights, str):
            return None if self.weights == "balanced" else f"its weights must be 'balanced'; got {self.weights!r}"
        if len(self.weights) != data.n_classes:
            return f"it needs one weight for each of the {data.n_classes} classes; got {len(self.weights)}"
        weights = torch.tensor([float(w) for w in self.weights])
        if not (weights.isfinite().all() and (weights >= 0).all() and weights.any()):
            return f"its weights must be 0 or more, finite, and not all 0; got {list(self.weights)}"
        return None

    def start(self, run: Run) -> None:
        like = run.data.weight
        if isinstance(self.weights, str):
            self.weight_ = balanced(run.data)
        else:
            self.weight_ = torch.as_tensor(list(self.weights), dtype=like.dtype, device=like.device)

    def on_output(self, out: Output, batch: Batch) -> None:
        batch.weight = batch.weight * (posterior(out.opinion, batch.candidates) @ self.weight_)


def balanced(data: TrainingData) -> Tensor:
    """`n / (K · n_k)` with expected counts, in which a row counts by its weight, as in scikit-learn."""
    counts = data.weight.new_zeros(data.n_classes)
    for part in parts_of(data.candidates):
        sets = data.candidates[part]
        counts += data.weight[part] @ (sets.to(data.weight.dtype) / sets.sum(dim=1, keepdim=True))
    return torch.where(counts > 0, counts.sum() / (len(counts) * counts.clamp(min=1e-12)), torch.ones_like(counts))
