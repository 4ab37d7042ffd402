"""CroSel: cross selection of confident pseudo-labels (Tian et al., CVPR 2024), without the views of images.

Two networks. Each picks the rows of whose label it was sure for several epochs; the other one learns them as labelled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import forward_in_parts, posterior, weighted_cross_entropy
from mogd.methods.rows import Rows, for_rows


class CroSel(Method):
    """Two networks that select confident rows for each other, and a mixing term on all rows.

    The second network is trained beside the model and dropped after training: the model alone predicts.

    Parameters
    ----------
    threshold : mean probability, over the memory, above which a row's label is confident.
    memory : past epochs, in all of which the prediction must be the same candidate.
    consistency : weight of the mixing term, times the share of rows that are not selected.
    temperature : of its targets; below 1 they are sharper than the posterior.
    mixing : both parameters of the Beta distribution of the mixing weight; 0 mixes nothing.
    warmup_epochs : epochs of CC before the first selection.
    """

    updates_confidence = True
    uses_log_prior = True
    one_process = "it mixes rows of a whole batch in pairs, and these would be in different processes"

    def __init__(
        self,
        threshold: float = 0.9,
        memory: int = 3,
        consistency: float = 2.0,
        temperature: float = 0.5,
        mixing: float = 0.75,
        warmup_epochs: int = 10,
    ) -> None:
        self.threshold = threshold
        self.memory = memory
        self.consistency = consistency
        self.temperature = temperature
        self.mixing = mixing
        self.warmup_epochs = warmup_epochs

    def start(self, model: nn.Module, data: TrainingData, generator: torch.Generator) -> None:
        if self.memory < 1:
            raise ValueError(f"memory must be a whole number of at least 1; got {self.memory!r}")
        self.data_, self.generator_ = data, generator
        second = copy.deepcopy(model).train()
        for head in [m for m in second.modules() if isinstance(m, nn.Linear)][-1:]:
            nn.init.xavier_uniform_(head.weight)  # the head alone: a body may have been trained before
        self.networks_ = (model, second)
        self.banks_ = (MemoryBank(self.memory, data), MemoryBank(self.memory, data))
        self.main_ = self.warmup_epochs <= 0

    def parameters(self) -> Iterable[nn.Parameter]:
        return self.networks_[1].parameters()

    def objective(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        self.logits_ = (out.logits, self.networks_[1](batch.x))
        # each network learns what the other one selected
        parts = zip(self.networks_, self.logits_, reversed(self.banks_), strict=True)
        return torch.stack([self._loss(*part, out.log_prior, batch) for part in parts]).sum()

    def updated(self, model: nn.Module, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        first, second = (
            posterior(out.network_exponent * logits.detach() + out.log_prior, batch.candidates)
            for logits in self.logits_
        )
        return (first + second) / 2

    def epoch_end(self, model: nn.Module, epoch: int) -> dict[str, float]:
        for network, bank in zip(self.networks_, self.banks_, strict=True):
            found = [torch.softmax(logits, dim=1).max(dim=1) for _, logits in forward_in_parts(network, self.data_.x)]
            bank.note(torch.cat([part.values for part in found]), torch.cat([part.indices for part in found]))
            bank.select(self.data_.candidates, self.threshold)
        self.main_ = epoch + 1 >= self.warmup_epochs
        return {"selected": sum(bank.ratio for bank in self.banks_) / 2}

    def _loss(
        self, network: nn.Module, logits: Tensor, bank: MemoryBank, log_prior: Tensor | float, batch: Batch
    ) -> Tensor:
        """The loss of one network, with the rows that the other one selected."""
        opinion = logits.detach() + log_prior
        if not self.main_:
            return batch.mean(weighted_cross_entropy(logits, posterior(opinion, batch.candidates)))  # CC's gradient
        label, weight = bank.target[batch.index], batch.weight * bank.selected[batch.index]
        supervised = (weight * cross_entropy(logits, label, reduction="none")).sum() / weight.sum().clamp(min=1e-12)
        target = posterior(opinion / self.temperature, batch.candidates)
        return supervised + (1 - bank.ratio) * self.consistency * self._mixed(network, batch, target)

    def _mixed(self, network: nn.Module, batch: Batch, target: Tensor) -> Tensor:
        """Cross entropy of rows mixed in pairs against their targets mixed alike, each with its row's weight."""
        drawn = float(torch.distributions.Beta(self.mixing, self.mixing).sample()) if self.mixing > 0 else 1.0
        other = torch.randperm(len(batch.x), generator=self.generator_).to(batch.x.device)
        share = torch.full_like(batch.weight, max(drawn, 1 - drawn))
        share[batch.weight[other] == 0] = 1.0  # a row without weight is no part of a mixture
        share[batch.weight == 0] = 0.0
        x, weighted = batch.x.to(target.dtype), batch.weight[:, None] * target
        logits = network(torch.lerp(x[other], x, share.reshape(-1, *[1] * (x.ndim - 1))))
        losses = weighted_cross_entropy(logits, torch.lerp(weighted[other], weighted, share[:, None]))
        return losses.sum() / batch.weight.sum().clamp(min=1e-12)


class MemoryBank:
    """What one network predicted in the last epochs, and the rows whose label it is sure of.

    Of the probabilities only the largest of a row and its label are compared, and so only these are kept.
    """

    def __init__(self, length: int, data: TrainingData) -> None:
        shape, device = (length, len(data.x)), data.x.device
        self.label = torch.full(shape, -1, device=device)
        self.top = torch.zeros(shape, device=device, dtype=data.weight.dtype)
        self.selected = torch.zeros(shape[1], device=device, dtype=torch.bool)
        self.target = torch.zeros(shape[1], device=device, dtype=torch.long)
        self.ratio = 0.0

    def note(self, top: Tensor, label: Tensor) -> None:
        """The oldest epoch goes, this one comes: each row's largest probability and its label."""
        self.top, self.label = torch.cat([self.top[1:], top[None]]), torch.cat([self.label[1:], label[None]])

    def select(self, candidates: Rows, threshold: float) -> None:
        """Rows with one label in every epoch of the memory, a candidate, whose mean probability is above `threshold`.

        A row with one candidate needs no selection: its label is known.
        """
        last = self.label[-1]
        steady = (self.label == last).all(dim=0)
        inside = for_rows(lambda sets, label: sets.gather(1, label[:, None])[:, 0], candidates, last)
        known = candidates.sum(dim=1) == 1
        self.selected = known | (steady & inside & (self.top.mean(dim=0) > threshold))
        self.ratio = float(self.selected.double().mean())
        self.target = torch.where(known, for_rows(lambda sets: sets.int().argmax(dim=1), candidates), last)
