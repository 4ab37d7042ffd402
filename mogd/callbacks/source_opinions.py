"""SourceOpinions: annotators, their count, or scores beside the network, each worth what the clean rows say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mogd import crowd, pooling
from mogd.callbacks.base import Callback, Entry, Run
from mogd.evidence import Evidence
from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import forward_in_chunks

LEAST_JUDGES = 30  # clean rows with votes of their own: the exponents of fewer are noise, and their labels teach more
MOST_JUDGES = 200  # more make the exponents hardly surer, and train better by their labels
# docs/studies/annotators.md: the network learned from the sources, so that it breaks ties after them all, and has more
# only where the sources without it are two standard errors less likely
NETWORK_MIXES, NETWORK_ERRORS = (0.03, *pooling.MIXES), 2.0
UNLEARNED = {"network": 1.0, "annotators": 1.0, "count": 0.0, "scores": 1.0}  # exponents where no clean rows judge


class SourceOpinions(Callback):
    """A confidence is a product of opinions: the network's, and the annotators' and their count's, or the scores'.

    `w ∝ Π_s opinion_s^{t_s}` on the candidates. The annotators' opinion is the probability of what they said, by
    confusion matrices from the clean rows and, anew after every epoch, from the confidences. The exponents are those
    under which the labels of clean rows are most probable, found anew after every epoch. What is less simple must earn
    its worth, and only breaks ties otherwise: of the mixtures of annotators and count, the nearest to the count within
    one standard error of the best is taken; then of those of the network, which learned from the sources, and the
    sources, the nearest to the sources within two. Before the first epoch the network has 0.
    The clean rows that judge so train as partial rows, by their own sets and votes, and guide no meta step: what the
    network makes of them is then worth what it makes of all others.

    Where fewer than thirty clean rows have votes of their own, every opinion has the exponent 1, and the count 0.
    """

    weighs_network = True

    def refusal(self, method: Method, model: nn.Module, data: TrainingData) -> str | None:
        if not method.uses_log_prior:
            return "it takes no opinions beside its network's"
        if not isinstance(data.candidates, Tensor):
            return "it keeps an opinion on every row and class, which are too many"
        if data.evidence is None:
            return "there is nothing beside the candidate sets, such as votes, one column per annotator, or scores"
        return None

    def start(self, run: Run) -> None:
        data = run.data
        assert data.evidence is not None
        assert isinstance(data.candidates, Tensor)
        self.sources_ = Votes(data) if data.evidence.kind == "votes" else Scores(data)
        judges = torch.empty(0, dtype=torch.long)
        if data.clean_evidence is not None:
            y = data.clean_y.cpu().numpy()
            can_judge = self.sources_.allowed[np.arange(len(y)), y] & (np.diff(data.clean_evidence.starts) > 0)
            judges = torch.from_numpy(np.flatnonzero(can_judge))  # something was said of them, and of their label
        if len(judges) > MOST_JUDGES:
            judges = judges[torch.randperm(len(judges), generator=run.generator)[:MOST_JUDGES]]
        judges = judges[: len(judges) if len(judges) >= LEAST_JUDGES else 0]
        self.judges_ = judges.numpy()
        self.x_, self.y_ = data.clean_x[judges.to(data.clean_x.device)], data.clean_y.cpu().numpy()[self.judges_]
        self.rows_ = data.clean_rows[judges.to(data.clean_rows.device)] if len(data.clean_rows) else data.clean_rows
        self.judging_ = torch.zeros_like(data.is_clean)
        if len(self.rows_):
            assert data.clean_candidates is not None
            data.candidates = data.candidates.clone()
            data.candidates[self.rows_] = data.clean_candidates[judges.to(data.candidates.device)]
            self.judging_[self.rows_] = True
            data.judges = torch.zeros_like(data.clean_y, dtype=torch.bool)
            data.judges[judges.to(data.clean_y.device)] = True
        self.exponents_ = {"network": 0.0, **{name: UNLEARNED[name] for name in self.sources_.names}}
        self._ask(data)
        if len(self.y_):
            self.exponents_ |= self._best()

    def on_batch(self, batch: Batch) -> Batch:
        return replace(batch, is_clean=batch.is_clean & ~self.judging_[batch.index])

    def on_output(self, out: Output, batch: Batch) -> None:
        out.network_exponent = self.exponents_["network"]
        for name, opinion in self.opinions_.items():
            out.log_prior = out.log_prior + self.exponents_[name] * opinion[batch.index]

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        assert isinstance(run.confidence, Tensor)
        self.sources_.update(run.confidence)
        self._ask(run.data)
        self.exponents_["network"] = UNLEARNED["network"]
        if len(self.y_):
            self.exponents_ = self._best(forward_in_chunks(run.model, self.x_).double().cpu().numpy())
        entry["exponents"] = dict(self.exponents_)

    def findings(self) -> dict[str, Any]:
        found = {"exponents": dict(self.exponents_), "judges": len(self.y_), **self.sources_.findings()}
        return {"sources": found}

    def _ask(self, data: TrainingData) -> None:
        """The opinion of each source on every row that trains, and on the judges as if they had not been counted."""
        of_partial, of_clean = self.sources_.opinions(), self.sources_.clean_opinions()
        self.of_judges_ = {name: opinion[self.judges_] for name, opinion in of_clean.items()}
        self.opinions_: dict[str, Tensor] = {}
        for name, opinion in of_partial.items():
            whole = torch.zeros(data.candidates.shape, dtype=data.weight.dtype, device=data.weight.device)
            whole[: len(opinion)] = torch.from_numpy(opinion).to(whole)
            if len(self.rows_):
                whole[self.rows_] = torch.from_numpy(self.of_judges_[name]).to(whole)
            self.opinions_[name] = whole

    def _best(self, logits: np.ndarray | None = None) -> dict[str, float]:
        """The exponents that suit the judges: those of the sources and, where it has learned, the network's."""
        opinions, allowed = [*self.of_judges_.values()], self.sources_.allowed[self.judges_]
        fit = pooling.mix_exponents if len(opinions) == 2 else pooling.fit_exponents
        of_sources, network = fit(opinions, self.y_, allowed), 0.0
        if logits is not None:
            both = [logits, np.tensordot(of_sources, opinions, axes=1)]
            network, scale = pooling.mix_exponents(both, self.y_, allowed, NETWORK_MIXES, NETWORK_ERRORS)
            of_sources = scale * of_sources
        return {"network": float(network), **dict(zip(self.of_judges_, of_sources.tolist(), strict=True))}


class Votes:
    """Who said it (by confusion matrices), and how many did."""

    names = ("annotators", "count")

    def __init__(self, data: TrainingData) -> None:
        assert data.evidence is not None
        self.evidence, self.clean_evidence = data.evidence, data.clean_evidence
        self.y, self.n_classes = data.clean_y.cpu().numpy(), data.n_classes
        self.known = np.eye(self.n_classes)[self.y[: 0 if self.clean_evidence is None else None]]
        self.weight = crowd.partial_weight(len(self.evidence), len(self.known), self.n_classes)
        sets = data.candidates[: len(self.evidence)].cpu().numpy()
        gold = (self.clean_evidence, self.y) if self.clean_evidence is not None else (None, None)
        found = crowd.dawid_skene(self.evidence, sets, *gold, weight=self.weight)
        self.confusions, self.prior = found.confusions, found.prior
        self.allowed = np.ones(self.known.shape, dtype=bool)  # the labels among which the clean rows judge

    def update(self, confidence: Tensor) -> None:
        """Count the confusion matrices and the classes anew."""
        guessed = confidence[: len(self.evidence)].double().cpu().numpy()
        gold = (self.clean_evidence, self.y) if self.clean_evidence is not None else (None, None)
        self.confusions = crowd.estimate_confusions(self.evidence, guessed, *gold, weight=self.weight)
        prior = self.weight * guessed.sum(axis=0) + self.known.sum(axis=0) + 1.0
        self.prior = prior / prior.sum()

    def opinions(self) -> dict[str, np.ndarray]:
        who = self.confusions.opinion(self.evidence) + np.log(self.prior)
        return {"annotators": who, "count": pooling.count_opinion(self.evidence, self.n_classes)}

    def clean_opinions(self) -> dict[str, np.ndarray]:
        if self.clean_evidence is None:
            return dict.fromkeys(self.names, np.empty((0, self.n_classes)))
        who = self.confusions.held_out_opinion(self.clean_evidence, self.y) + np.log(self.prior)
        return {"annotators": who, "count": pooling.count_opinion(self.clean_evidence, self.n_classes)}

    def findings(self) -> dict[str, Any]:
        names = [str(name) for name in self.evidence.sources.tolist()]
        reliability = self.confusions.reliability(self.prior).tolist()
        return {"kind": "votes", "reliability": dict(zip(names, reliability, strict=True))}


class Scores:
    """The logarithm of the scores to the power that suits the clean rows."""

    names = ("scores",)

    def __init__(self, data: TrainingData) -> None:
        assert data.evidence is not None
        self.opinion, _ = _scores(data.evidence, data.n_classes)
        self.clean_opinion, self.allowed = np.empty((0, data.n_classes)), np.empty((0, data.n_classes), dtype=bool)
        if data.clean_evidence is not None:
            self.clean_opinion, self.allowed = _scores(data.clean_evidence, data.n_classes)
        y = data.clean_y.cpu().numpy()[: len(self.allowed)]
        self.power = pooling.score_power(self.clean_opinion, y, self.allowed)

    def update(self, confidence: Tensor) -> None:
        """Scores do not depend on confidences."""

    def opinions(self) -> dict[str, np.ndarray]:
        return {"scores": self.power * self.opinion}

    def clean_opinions(self) -> dict[str, np.ndarray]:
        return {"scores": self.power * self.clean_opinion}

    def findings(self) -> dict[str, Any]:
        return {"kind": "scores", "power": self.power}


def _scores(evidence: Evidence, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """The opinion of the scores, and the labels that have one; all of them in a row without any."""
    scored = evidence.totals(n_classes) > 0
    scored |= ~scored.any(axis=1, keepdims=True)
    return pooling.score_opinion(evidence, scored), scored
