"""A second task for the body of a network: tell the candidate set of a row. The clean rows say what it is worth."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from mogd.methods.common import last_linear, one_vs_all, still, with_features


class SetTask:
    """A second head beside the last layer, that tells for every label whether it is a candidate.

    A true label is in every set and a wrong one only in some, so that the head's probabilities m are a second opinion
    on the label, and the head is shown no clean one. `trust` is the exponent with which they enter the prior.
    """

    most = 10.0  # of the trust

    def __init__(self, model: nn.Module, n_classes: int, weight: float) -> None:
        layer = last_linear(model)
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        self.head = nn.utils.skip_init(nn.Linear, layer.in_features, n_classes, **like)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)  # no class is preferred, and no random number drawn
        self.weight = weight
        self.trust = 0.0

    def losses(self, told: Tensor, candidates: Tensor) -> Tensor:
        """What each row costs, label by label."""
        return self.weight * one_vs_all(told, candidates.to(told.dtype))

    def log_prior(self, told: Tensor) -> Tensor:
        return self.trust * logsigmoid(told.detach())

    @torch.no_grad()
    def calibrate(self, model: nn.Module, clean_x: Tensor, clean_y: Tensor) -> float:
        """The trust t under which the clean labels are the most probable, P(y) ∝ m_y^t, by bisection.

        The likelihood is concave in t, and its slope Σ (log m_y − E_t[log m]).
        """
        with still(model, single=True) as buffers:
            _, features = with_features(model, clean_x, buffers)
        opinion = logsigmoid(self.head(features)).double()
        own = opinion.gather(1, clean_y[:, None]).sum()
        low, high = 0.0, 2 * self.most
        while high - low > 0.01:
            middle = (low + high) / 2
            slope = own - (torch.softmax(middle * opinion, dim=1) * opinion).sum()
            low, high = (middle, high) if slope > 0 else (low, middle)
        self.trust = min(low, self.most)
        return self.trust
