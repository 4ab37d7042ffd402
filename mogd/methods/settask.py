"""A second task for the body of a network: tell the candidate set of a row. The clean rows say what it is worth."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from mogd.methods.common import last_linear, one_vs_all, still, with_features


class SetTask:
    """A second head beside the last layer, that tells for every label whether it is a candidate.

    A true label is in every set and a wrong one only in some, so that the head's probabilities m are a second opinion
    on the label, and this head is not trained on clean ones. `trust` is the exponent with which they enter the prior.
    """

    most_trust = 10.0

    def __init__(self, model: nn.Module, n_classes: int, weight: float) -> None:
        layer = last_linear(model)
        like = {"device": layer.weight.device, "dtype": layer.weight.dtype}
        self.head = nn.utils.skip_init(nn.Linear, layer.in_features, n_classes, **like)
        for parameter in self.head.parameters():
            nn.init.zeros_(parameter)  # no class is preferred, and no random number drawn
        self.weight = weight
        self.trust = 0.0

    def losses(self, set_logits: Tensor, candidates: Tensor) -> Tensor:
        """What each row costs, label by label."""
        return self.weight * one_vs_all(set_logits, candidates.to(set_logits.dtype))

    def log_prior(self, set_logits: Tensor) -> Tensor:
        return self.trust * logsigmoid(set_logits.detach())

    @torch.no_grad()
    def calibrate(self, model: nn.Module, clean_x: Tensor, clean_y: Tensor) -> float:
        """The trust t under which the clean labels are the most probable, P(y) ∝ m_y^t, by bisection.

        The likelihood is concave in t, and its slope Σ (log m_y − E_t[log m]).
        """
        with still(model, single=True) as buffers:  # in evaluation mode, so that rows may come in parts
            features = torch.cat([with_features(model, part, buffers)[1] for part in clean_x.split(256)])
        opinion = logsigmoid(self.head(features)).double()
        own = opinion.gather(1, clean_y[:, None]).sum()
        low, high = 0.0, 2 * self.most_trust
        while high - low > 0.01:
            middle = (low + high) / 2
            slope = own - (torch.softmax(middle * opinion, dim=1) * opinion).sum()
            low, high = (middle, high) if slope > 0 else (low, middle)
        self.trust = min(low, self.most_trust)
        return self.trust


@torch.no_grad()
def ends_in_linear(model: nn.Module, x: Tensor) -> bool:
    """Whether the logits are what the last linear layer makes of one vector for each row."""
    try:
        with still(model, single=True) as buffers:
            logits, features = with_features(model, x[:1], buffers)
    except (IndexError, ValueError):  # that layer is not used, or there is none
        return False
    return features.ndim == 2 and torch.equal(last_linear(model)(features), logits)
