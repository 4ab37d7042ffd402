"""SharperTargets: the network's opinion counts for more than it says, once it has seen the rows a few times."""

from __future__ import annotations

from torch import nn

from mogd.callbacks.base import Callback
from mogd.methods.base import Batch, Method, Output, TrainingData


class SharperTargets(Callback):
    """After the first `start_fraction` of the epochs the confidences are made of p^(1/T) instead of p.

    p are the network's probabilities and T the `temperature`: below 1 the confidences are nearer to one label, as in
    MixMatch (Berthelot et al., 2019) and CroSel (Tian et al., 2024). Opinions beside the network's, and MoGD's step,
    are as they were.

    Parameters
    ----------
    temperature : above 0; 1 changes nothing.
    start_fraction : of the epochs, the first ones, in which the network's opinion is taken as it is.
    """

    def __init__(self, temperature: float = 0.5, start_fraction: float = 0.2) -> None:
        self.temperature = temperature
        self.start_fraction = start_fraction

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if not self.temperature > 0:
            return f"its temperature must be a number above 0; got {self.temperature!r}"
        if "temperature" in method.get_params():
            return "its targets have a temperature of their own"
        if not method.uses_log_prior:
            return "its confidences are not made of its network's opinion"
        if data.evidence is not None:
            return "what the network's opinion is worth beside the sources' is found on the clean rows"
        return None

    def on_output(self, out: Output, batch: Batch) -> None:
        if self.start_fraction <= batch.progress < 1:  # 1 is after training: the posterior is reported as it is
            out.network_exponent = out.network_exponent / self.temperature
