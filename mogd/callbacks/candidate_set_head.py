"""CandidateSetHead: a second head predicts the candidate set; its weight in the prior is fitted on clean rows."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from mogd.callbacks.base import Callback, Entry, Run
from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import ends_in_linear, frozen_buffers, is_closed_form, last_linear, one_vs_all, with_features

MOST_EXPONENT = 10.0
ROWS_AT_ONCE = 256


class CandidateSetHead(Callback):
    """A second linear head on the same features predicts, label by label, whether it is a candidate of the row.

    It trains the body, and its probabilities m are a second opinion on the label: the true one is in every set, a wrong
    one only in some. They enter the confidence as m^t. The prior exponent t is the one under which the clean labels,
    on which this head is not trained, are the most probable; it is chosen anew after every epoch. A method that takes
    no opinions has the second task alone. The head is dropped after training.

    Parameters
    ----------
    weight : of the second task in the loss.
    """

    wants_features = True
    has_task = True

    def __init__(self, weight: float = 0.3) -> None:
        self.weight = weight

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if is_closed_form(model):
            return "its network has no layer before the last, which a second head could train"
        if not ends_in_linear(model, data.x):
            return f"it needs a network whose last nn.Linear gives the logits, which {type(model).__name__} has not"
        return None

    def start(self, run: Run) -> None:
        layer = last_linear(run.model)
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        self.head_ = nn.utils.skip_init(nn.Linear, layer.in_features, run.data.n_classes, **like)
        for parameter in self.head_.parameters():
            nn.init.zeros_(parameter)  # no class is preferred, and no random number drawn
        self.exponent_ = 0.0

    def parameters(self) -> Iterable[nn.Parameter]:
        return self.head_.parameters()

    def on_output(self, out: Output, batch: Batch) -> None:
        assert out.features is not None
        set_logits = self.head_(out.features)
        out.log_prior = out.log_prior + self.exponent_ * logsigmoid(set_logits.detach())
        is_partial = ~batch.is_clean
        out.add_losses(self.weight * is_partial * one_vs_all(set_logits, batch.candidates.to(set_logits.dtype)))

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        if len(run.data.clean_y):
            self.exponent_ = self.best_exponent(run.model, run.data.clean_x, run.data.clean_y)
        entry["prior_exponent"] = self.exponent_

    @torch.no_grad()
    def best_exponent(self, model: nn.Module, clean_x: Tensor, clean_y: Tensor) -> float:
        """The t under which the clean labels are the most probable, P(y) ∝ m_y^t, by bisection.

        The likelihood is concave in t, and its slope Σ (log m_y − E_t[log m]).
        """
        with frozen_buffers(model, single=True) as buffers:  # in evaluation mode, so that rows may come in parts
            features = torch.cat([with_features(model, part, buffers)[1] for part in clean_x.split(ROWS_AT_ONCE)])
        opinion = logsigmoid(self.head_(features)).double()
        own = opinion.gather(1, clean_y[:, None]).sum()
        low, high = 0.0, 2 * MOST_EXPONENT
        while high - low > 0.01:
            middle = (low + high) / 2
            slope = own - (torch.softmax(middle * opinion, dim=1) * opinion).sum()
            low, high = (middle, high) if slope > 0 else (low, middle)
        return min(low, MOST_EXPONENT)
