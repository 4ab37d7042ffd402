"""What several annotators are worth together: votes, confusion matrices and Dawid–Skene.

The annotators' opinion on a label is `Σ log P(what was said | truth)` over those who said something, with one confusion
matrix for each annotator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from mogd.evidence import Evidence
from mogd.pooling import combine, count_opinion, mix_exponents, posterior

SHRINKAGES = np.geomspace(1.0, 1000.0, 13)  # votes that the common matrix may be worth in each annotator's own
ROWS_PER_CLASS = 30  # rows of guessed truth that count at least, for each class, however few clean rows there are
TOLERANCE, MAX_ITERATIONS, ROUNDS = 1e-6, 500, 3  # of expectation–maximisation, and how often it chooses the shrinkage


def vote_shares(evidence: Evidence, candidates: np.ndarray) -> np.ndarray:
    """The share of the weight behind each candidate; uniform over the candidates where nothing was said."""
    kept = np.where(candidates, evidence.totals(candidates.shape[1]), 0.0)
    silent = ~kept.any(axis=1, keepdims=True)
    kept = np.where(silent, candidates, kept)
    return kept / kept.sum(axis=1, keepdims=True)


def majority(evidence: Evidence, candidates: np.ndarray) -> np.ndarray:
    """1 on the candidate with the greatest weight behind it; where several have it, they share it alike."""
    shares = np.where(candidates, vote_shares(evidence, candidates), -1.0)
    best = shares >= shares.max(axis=1, keepdims=True) - 1e-9  # sums of weights that differ by rounding are a tie
    return best / best.sum(axis=1, keepdims=True)


@dataclass(frozen=True, eq=False)
class Confusions:
    """What each annotator says where a label is true, from counted votes."""

    counts: np.ndarray  # (S, K, K): how often the source said l where j is true, [source, j, l]
    shrinkage: float  # the votes that the common matrix is worth in each row of an annotator's own

    @property
    def matrices(self) -> np.ndarray:
        """P(said l | truth j) of each source, drawn to the common matrix where the source said little of j."""
        common = common_matrix(self.counts)
        return (self.counts + self.shrinkage * common) / (self.counts.sum(axis=2, keepdims=True) + self.shrinkage)

    def opinion(self, evidence: Evidence) -> np.ndarray:
        """`log P(what was said | truth = j)` of each row, `(n, K)`; 0 where nothing was said."""
        n_sources, n_classes, _ = self.counts.shape
        by_statement = np.log(self.matrices).transpose(0, 2, 1).reshape(n_sources * n_classes, n_classes)
        return _statement_matrix(evidence, n_classes) @ by_statement

    def held_out_opinion(self, evidence: Evidence, y: np.ndarray) -> np.ndarray:
        """The opinion on rows with the labels `y` that were counted, on each as if it had not been.

        A row of truth j was counted in the matrices' rows j alone, so that only the opinion on j changes.
        """
        opinion = self.opinion(evidence)
        row, source, label, weight = evidence.row, evidence.source, evidence.label, evidence.weight
        truth = y[row]
        common = self.counts.sum(axis=0) + common_prior(self.counts.shape[1])
        share = common[truth, label] - _own_weight(evidence, label)
        share /= common.sum(axis=1)[truth] - _own_weight(evidence)
        said = self.counts[source, truth, label] - _own_weight(evidence, source, label)
        total = self.counts.sum(axis=2)[source, truth] - _own_weight(evidence, source)
        logs = np.log((np.maximum(said, 0.0) + self.shrinkage * share) / (np.maximum(total, 0.0) + self.shrinkage))
        opinion[np.arange(len(y)), y] = np.bincount(row, weight * logs, len(y))
        return opinion

    def reliability(self, prior: np.ndarray) -> np.ndarray:
        """The probability that each source says the truth, with the classes as frequent as `prior` says."""
        return np.einsum("sjj,j->s", self.matrices, prior)


def vote_counts(evidence: Evidence, confidence: np.ndarray) -> np.ndarray:
    """How often each source said l where j is true, expected under the confidence: `(S, K, K)`, [source, j, l]."""
    n_classes = confidence.shape[1]
    said = _statement_matrix(evidence, n_classes)
    return (said.T @ confidence).reshape(len(evidence.sources), n_classes, n_classes).transpose(0, 2, 1)


def common_prior(n_classes: int) -> np.ndarray:
    """For each class one vote for the truth and one spread over all labels, before anything was counted."""
    return np.eye(n_classes) + 1.0 / n_classes


def common_matrix(counts: np.ndarray) -> np.ndarray:
    """P(said l | truth j) of all sources together."""
    common = counts.sum(axis=0) + common_prior(counts.shape[1])
    return common / common.sum(axis=1, keepdims=True)


def best_shrinkage(counts: np.ndarray) -> float:
    """The shrinkage under which the counts are most probable (Dirichlet–multinomial): large for similar annotators."""
    mean, totals = common_matrix(counts), counts.sum(axis=2)

    def log_probability(strength: float) -> float:
        prior = strength * mean
        of_labels = (gammaln(counts + prior) - gammaln(prior)).sum()
        return float(of_labels + (gammaln(strength) - gammaln(totals + strength)).sum())

    return float(max(SHRINKAGES, key=log_probability))


def partial_weight(n_partial: int, n_clean: int, n_classes: int) -> float:
    """What a row of guessed truth counts beside a clean one, so that all of them count as the clean rows together.

    Guesses are wrong in the same direction everywhere: thousands of them would outvote the clean rows. Without clean
    rows there is nothing to outvote.
    """
    if not n_clean:
        return 1.0
    return min(1.0, max(n_clean, ROWS_PER_CLASS * n_classes) / max(n_partial, 1))


def estimate_confusions(
    evidence: Evidence,
    confidence: np.ndarray,
    clean_evidence: Evidence | None = None,
    clean_y: np.ndarray | None = None,
    *,
    weight: float | None = None,
    shrinkage: float | None = None,
) -> Confusions:
    """The confusion matrices under the confidences of the partial rows, the truth of clean rows known.

    A partial row counts `weight` times, by default `partial_weight`; without a `shrinkage`, the most probable is found.
    """
    n_classes, n_clean = confidence.shape[1], 0 if clean_evidence is None else len(clean_evidence)
    weight = partial_weight(len(evidence), n_clean, n_classes) if weight is None else weight
    guessed, known = vote_counts(evidence, confidence), np.zeros(())
    if clean_evidence is not None:
        known = vote_counts(clean_evidence, np.eye(n_classes)[clean_y])
    if shrinkage is None:  # how far annotators differ is seen in all votes, guessed truth or not
        shrinkage = best_shrinkage(guessed + known)
    return Confusions(weight * guessed + known, shrinkage)


@dataclass(frozen=True, eq=False)
class DawidSkeneFit:
    """What expectation–maximisation found."""

    confidence: np.ndarray  # (n, K), on the candidates
    prior: np.ndarray  # (K,) how frequent the classes are
    confusions: Confusions
    n_iter: int


def dawid_skene(
    evidence: Evidence,
    candidates: np.ndarray,
    clean_evidence: Evidence | None = None,
    clean_y: np.ndarray | None = None,
    *,
    weight: float = 1.0,
    shrinkage: float | None = None,
) -> DawidSkeneFit:
    """Truths and confusion matrices by expectation–maximisation (Dawid and Skene 1979), the truth of clean rows known.

    Clean rows count for the classes' frequencies, and for the matrices where their own votes are given. A partial row
    counts `weight` times. Without a `shrinkage` the most probable one is found.
    """
    clean_y = np.empty(0, dtype=np.int64) if clean_y is None else clean_y
    known = np.bincount(clean_y, minlength=candidates.shape[1])
    confidence, n_iter = vote_shares(evidence, candidates), 0
    sources: dict[str, Any] = {"clean_evidence": clean_evidence, "clean_y": clean_y, "weight": weight}
    for _ in range(ROUNDS if shrinkage is None else 1):
        strength = estimate_confusions(evidence, confidence, **sources, shrinkage=shrinkage).shrinkage
        for _ in range(MAX_ITERATIONS):
            n_iter += 1
            confusions = estimate_confusions(evidence, confidence, **sources, shrinkage=strength)  # maximisation
            prior = weight * confidence.sum(axis=0) + known + 1.0
            prior /= prior.sum()
            before = confidence
            confidence = posterior(confusions.opinion(evidence) + np.log(prior), candidates)  # expectation
            if np.abs(confidence - before).max() < TOLERANCE:
                break
    return DawidSkeneFit(confidence, prior, confusions, n_iter)


def weigh_votes(
    fit: DawidSkeneFit, evidence: Evidence, candidates: np.ndarray, clean_evidence: Evidence, clean_y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Who said it, and how many did: the two opinions' product, and the exponents that the clean rows give them."""
    n_classes, prior = candidates.shape[1], np.log(fit.prior)
    held_out = [
        fit.confusions.held_out_opinion(clean_evidence, clean_y) + prior,
        count_opinion(clean_evidence, n_classes),
    ]
    exponents = mix_exponents(held_out, clean_y, np.ones((len(clean_y), n_classes), dtype=bool))
    opinions = [fit.confusions.opinion(evidence) + prior, count_opinion(evidence, n_classes)]
    return combine(opinions, exponents, candidates), exponents


def _statement_matrix(evidence: Evidence, n_classes: int) -> sp.csr_array:
    """The weight of each statement at its row and at (source, label)."""
    place = evidence.source * n_classes + evidence.label
    shape = (len(evidence), len(evidence.sources) * n_classes)
    return sp.csr_array((evidence.weight, place, evidence.starts), shape=shape)


def _own_weight(evidence: Evidence, *keys: np.ndarray) -> np.ndarray:
    """For each statement, the weight of all statements on its row with the same keys."""
    _, group = np.unique(np.stack([evidence.row, *keys]), axis=1, return_inverse=True)
    return np.bincount(group, evidence.weight)[group]
