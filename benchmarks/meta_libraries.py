"""The same meta step by libraries that differentiate through an optimizer's step: `pip install 'mogd[bench]'`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax

from mogd.methods.base import Batch, TrainingData
from mogd.methods.common import posterior, weighted_cross_entropy

Step = Callable[[Tensor], None]


def _finish(model: nn.Module, batch: Batch, slope: Tensor, step: Step) -> None:
    confidence = posterior((-slope).clamp(min=0), batch.candidates)
    step(batch.mean(weighted_cross_entropy(model(batch.x), confidence)))


def by_higher(model: nn.Module, batch: Batch, data: TrainingData, step: Step) -> None:
    import higher  # type: ignore[import-not-found, import-untyped, unused-ignore]

    w = torch.zeros(batch.candidates.shape, requires_grad=True)
    with higher.innerloop_ctx(model, torch.optim.SGD(model.parameters(), lr=1.0)) as (ahead, inner):
        inner.step(-(w * log_softmax(ahead(batch.x), dim=1)).sum())
        (slope,) = torch.autograd.grad(cross_entropy(ahead(data.clean_x), data.clean_y), w)
    _finish(model, batch, slope, step)


def by_torchopt(model: nn.Module, batch: Batch, data: TrainingData, step: Step) -> None:
    import torchopt  # type: ignore[import-not-found, import-untyped, unused-ignore]

    w = torch.zeros(batch.candidates.shape, requires_grad=True)
    before = torchopt.extract_state_dict(model, by="reference")
    inner = torchopt.MetaSGD(model, lr=1.0)
    inner.step(-(w * log_softmax(model(batch.x), dim=1)).sum())
    (slope,) = torch.autograd.grad(cross_entropy(model(data.clean_x), data.clean_y), w)
    torchopt.recover_state_dict(model, before)
    _finish(model, batch, slope, step)


LIBRARIES: dict[str, Callable[[nn.Module, Batch, TrainingData, Step], None]] = {
    "higher": by_higher,
    "torchopt": by_torchopt,
}
