"""What a deep method is, and what it is shown: `TrainingData` once, then a `Batch` at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

from mogd.evidence import Evidence
from mogd.methods.common import weighted_cross_entropy, with_features
from mogd.methods.rows import Rows

if TYPE_CHECKING:
    from mogd.callbacks.base import Callback

Step = Callable[[Tensor], Any]
Surrogate = Callable[[Tensor, Tensor], Tensor]  # from logits and confidence to one loss per row


@dataclass
class TrainingData:
    """The whole training set as tensors on the device, made once."""

    x: Tensor  # or what gives tensors when it is indexed: CompressedRows, StreamedRows
    candidates: Rows  # (n, K) bool, compressed where it is large; batches are dense
    weight: Tensor  # (n,) weight of each row in the loss
    clean_x: Tensor
    clean_y: Tensor  # class indices
    epochs: int = 1  # of the whole run, for what is scheduled over it
    is_clean: Tensor = field(default=None)  # type: ignore[assignment]  # (n,) which of the rows are clean ones
    clean_rows: Tensor = field(default=None)  # type: ignore[assignment]  # where clean_x stands in x; empty if it guides
    evidence: Evidence | None = None  # who said what of the rows given to `fit`, which come first
    clean_evidence: Evidence | None = None  # and of the clean ones, by the same sources
    clean_candidates: Tensor | None = None  # (n_clean, K) bool, the clean rows' own sets where they are known
    judges: Tensor | None = None  # (n_clean,) bool, the clean rows that judge opinions and must not have shaped them

    def __post_init__(self) -> None:
        if self.is_clean is None:
            self.is_clean = torch.zeros(len(self.x), dtype=torch.bool, device=self.x.device)
        if self.clean_rows is None:
            self.clean_rows = self.is_clean.nonzero().flatten()

    def keep_clean(self, kept: Tensor) -> None:
        """Forget all clean rows but the positions `kept`; those that train stay among the rows."""
        self.clean_x, self.clean_y = self.clean_x[kept], self.clean_y[kept]
        if len(self.clean_rows):
            self.clean_rows = self.clean_rows[kept]
        if self.clean_candidates is not None:
            self.clean_candidates = self.clean_candidates[kept]
        if self.clean_evidence is not None:
            self.clean_evidence = self.clean_evidence.take(kept.cpu().numpy())
        if self.judges is not None:
            self.judges = self.judges[kept]

    @property
    def guides(self) -> tuple[Tensor, Tensor]:
        """The clean rows that may guide by a gradient, and their labels: those that do not judge."""
        if self.judges is None:
            return self.clean_x, self.clean_y
        return self.clean_x[~self.judges], self.clean_y[~self.judges]

    @property
    def n_classes(self) -> int:
        return self.candidates.shape[1]

    @property
    def n_partial(self) -> int:
        return len(self.x) - int(self.is_clean.sum())


@dataclass
class Batch:
    """The rows of one step; `index` says which rows of the training set they are."""

    index: Tensor
    x: Tensor
    candidates: Tensor  # (b, K) bool
    confidence: Tensor  # (b, K), zero off the candidates
    weight: Tensor  # (b,)
    is_clean: Tensor = field(default=None)  # type: ignore[assignment]  # (b,)
    progress: float = 0.0  # how much of the run's epochs is over, from 0 to 1
    surrogate: Surrogate = weighted_cross_entropy  # the loss of a method that leaves its choice open
    wants_features: bool = False  # whether somebody reads what enters the last layer

    def __post_init__(self) -> None:
        if self.is_clean is None:
            self.is_clean = torch.zeros(len(self.x), dtype=torch.bool, device=self.x.device)

    def mean(self, losses: Tensor) -> Tensor:
        """The weighted mean of one loss per row."""
        return (self.weight * losses).sum() / self.weight.sum().clamp(min=1e-12)


@dataclass
class Output:
    """What a forward pass gave, and what callbacks add to it."""

    logits: Tensor
    features: Tensor | None = None  # what entered the last layer, where the batch wants it
    # ⟨∇h_ij, ∇L_meta⟩, for a method that asks the clean rows; where only differences count, less a constant of the row
    alignments: list[Tensor] = field(default_factory=list)
    log_prior: Tensor | float = 0.0  # opinions on the labels beside the network's, as logarithms
    network_exponent: float = 1.0  # what the network's own opinion is worth beside them
    losses: Tensor | None = None  # further losses, one per row

    @property
    def opinion(self) -> Tensor:
        """All opinions on the labels together, the network's and those beside it, as logarithms."""
        return self.network_exponent * self.logits.detach() + self.log_prior

    def add_losses(self, losses: Tensor) -> None:
        self.losses = losses if self.losses is None else self.losses + losses


class Method(BaseEstimator):
    """One deep paper: a few small steps, which `train_batch` calls in their order. Override those that differ.

    A method is a scikit-learn parameter object: the constructor stores, `start` builds what the paper keeps, in
    attributes that end in `_`, of which a checkpoint is made. It owns no loop, no optimizer and no device code, so that
    `train_batch(net, batch, step=losses.append)` tests it.
    """

    needs_clean_set = False
    updates_confidence = False  # whether `updated` gives new confidences; otherwise the final posterior is reported
    needs_all_rows = False  # whether it looks at the features of all rows at once
    needs_all_cells = False  # whether it keeps a value for every row and class, candidates or not
    is_posterior = False  # whether the confidences it trains with are the network's posterior
    uses_log_prior = False  # whether opinions beside the network's (`Output.log_prior`) enter the confidence
    takes_class_weight = True  # whether its loss is a mean over rows, each of which may count by its class
    one_process: str = ""  # why several processes cannot share its batches, where they cannot
    train_on_clean: bool = True  # whether clean rows join the training rows with one candidate each

    @property
    def uses_surrogate(self) -> bool:
        """Whether the loss is the batch's surrogate of the confidence, so that a schedule may change it."""
        own = type(self)
        return own.losses is Method.losses and own.objective is Method.objective

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        """Build what the paper keeps; called once, before the optimizer exists."""

    def parameters(self) -> Iterable[nn.Parameter]:
        """What to optimise beside the model."""
        return []

    def row_state(self) -> Sequence[Rows]:
        """What it keeps of every row beside the confidence, as tensors that the row's visits change."""
        return []

    def init_confidence(self, candidates: Tensor) -> Tensor:
        """The confidence before the first step: uniform over each row's candidates. It treats rows one by one."""
        return candidates.double() / candidates.sum(dim=1, keepdim=True)

    def forward(self, model: nn.Module, batch: Batch) -> Output:
        """The pass that the step back-propagates."""
        return Output(*with_features(model, batch.x)) if batch.wants_features else Output(model(batch.x))

    def confidence(self, out: Output, batch: Batch) -> Tensor:
        """The weight of each label in the loss."""
        return batch.confidence

    def losses(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        """One loss per row."""
        return batch.surrogate(out.logits, confidence)

    def objective(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        """The loss of the batch: one number."""
        return batch.mean(self.losses(out, confidence, batch))

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        """The rows' confidence after the step, which they bring to their next visit."""
        return confidence

    def train_batch(self, model: nn.Module, batch: Batch, step: Step, callbacks: Sequence[Callback] = ()) -> Tensor:
        """One step of training: call `step(loss)` and return the rows' new confidence."""
        for callback in callbacks:
            batch = callback.on_batch(batch)
        out = self.forward(model, batch)
        for callback in callbacks:
            callback.on_output(out, batch)
        confidence = self.confidence(out, batch)
        loss = self.objective(out, confidence, batch)
        step(loss if out.losses is None else loss + batch.mean(out.losses))
        return self.updated(model, out, confidence, batch)

    def epoch_end(self, model: nn.Module, epoch: int) -> dict[str, float] | None:
        """Whatever happens between epochs; what is returned is noted in the history."""
        return None
