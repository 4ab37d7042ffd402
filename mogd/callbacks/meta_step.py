"""MetaStep: MoGD's step for the other methods."""

from __future__ import annotations

from numbers import Real

from torch import nn

from mogd.callbacks.base import Callback, Entry, Run
from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import ends_in_linear
from mogd.methods.meta import MetaObjective
from mogd.methods.steps import StepRule


class MetaStep(Callback):
    """The clean rows' gradient says which candidate lowers their loss: one more opinion beside the network's.

    The step of `MoGD`, over the last layer alone, which costs one product of matrices; CC with it is MoGD with
    `meta="head"`, on a linear model and on kernel features to the last digit.

    Parameters
    ----------
    strength : a typical step in logits, whatever the features' scale, before it is shrunk by how far two halves of the
        clean rows agree; 0 is no step.
    """

    wants_features = True
    starts_last = True

    def __init__(self, strength: float = 1.0) -> None:
        self.strength = strength

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if not isinstance(self.strength, Real) or isinstance(self.strength, bool) or not self.strength >= 0:
            return f"its strength must be a number of 0 or more; got {self.strength!r}"
        if "meta" in method.get_params():
            return "it has that step already"
        if not method.uses_log_prior:
            return "its confidences are not made of its network's opinion"
        if not len(data.clean_y):
            return "there are no clean rows: pass X_val and y_val (in the shell --clean)"
        if not ends_in_linear(model, data.x):
            return "its network does not end in a linear layer, over which the gradient is taken"
        return None

    def start(self, run: Run) -> None:
        self.model = run.model
        guided = self.strength > 0 and len(run.data.guides[1]) > 0
        self.meta_ = MetaObjective(run.model, run.data, run.generator, head=True, halves=True) if guided else None
        self.step_ = StepRule(self.strength, None, True, run.data, self.meta_.every if self.meta_ else 1)

    def on_output(self, out: Output, batch: Batch) -> None:
        # 1 is after training: the posterior is reported as it is
        if self.meta_ is not None and batch.progress < 1:
            out.log_prior = out.log_prior + self.step_(self.meta_.beside(self.model, out), batch)

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        if self.meta_ is not None and "phase" not in entry:
            entry |= self.step_.history()

    def end(self, run: Run) -> None:
        del self.model
        self.meta_ = None  # it knows the rows
