"""What several sources are worth together: votes, confusion matrices, opinions and the exponents that weigh them.

An opinion is a logarithm for each row and label, `(n, K)`. That of annotators is `Σ log P(what was said | truth)` over
those who said something, with one confusion matrix for each annotator; that of scores is their logarithm to a power
found on the clean rows. Opinions are multiplied, each to an exponent `t ≥ 0` under which the labels of the clean rows
are most probable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.special import gammaln, log_softmax, softmax

from mogd.evidence import Evidence

SHRINKAGES = np.geomspace(1.0, 1000.0, 13)  # votes that the common matrix may be worth in each annotator's own
ROWS_PER_CLASS = 30  # rows of guessed truth that count at least, for each class, however few clean rows there are
HALF_VOTE = 0.5  # what nobody said is not impossible
EXPONENT_PENALTY = 1.0  # pulls an exponent to 1 about as hard as two undecided clean rows pull it elsewhere
POWER_PENALTY = 0.1  # the same for standardised scores, whose right power nobody knows beforehand
# shares of the annotators' opinion beside that of the count; the least only breaks ties
MIXES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
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


def posterior(logs: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The softmax over the allowed labels of each row."""
    return softmax(np.where(allowed, logs, -np.inf), axis=1)


def combine(opinions: Sequence[np.ndarray], exponents: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The product of the opinions, each to its exponent, as a distribution over the allowed labels of each row."""
    return posterior(np.tensordot(exponents, np.stack(opinions), axes=1), allowed)


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


def count_opinion(evidence: Evidence, n_classes: int) -> np.ndarray:
    """The logarithm of each label's share of the votes, half a vote more for each; whoever said it counts alike."""
    counted = evidence.totals(n_classes) + HALF_VOTE
    return np.log(counted / counted.sum(axis=1, keepdims=True))


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


def score_opinion(evidence: Evidence, candidates: np.ndarray) -> np.ndarray:
    """The logarithm of each candidate's score, its mean over the row's candidates taken off; 0 elsewhere.

    A candidate without a score has the smallest that occurs; a row without any has no opinion.
    """
    totals = evidence.totals(candidates.shape[1])
    least = totals[totals > 0].min() if (totals > 0).any() else 1.0
    logs = np.log(np.maximum(totals, least))
    return _centred(np.where(totals.any(axis=1, keepdims=True), logs, 0.0), candidates)


def score_power(opinion: np.ndarray, y: np.ndarray, allowed: np.ndarray) -> float:
    """The power of scores in any unit that makes the clean rows' labels most probable; 1 where nothing can be learned.

    It is found on scores of unit spread, so that percentages and similarities that hardly differ are treated alike.
    """
    spread = np.sqrt(np.mean(opinion[allowed] ** 2)) if allowed.any() else 0.0
    if not len(y) or spread == 0:
        return 1.0
    return float(fit_exponents([opinion / spread], y, allowed, POWER_PENALTY)[0] / spread)


def fit_exponents(
    opinions: Sequence[np.ndarray],
    y: np.ndarray,
    allowed: np.ndarray,
    penalty: float = EXPONENT_PENALTY,
    base: np.ndarray | None = None,
) -> np.ndarray:
    """The exponents `t ≥ 0` under which the labels `y` of clean rows are most probable, one for each opinion.

    The opinions must not have been learned from these very rows (see `Confusions.held_out_opinion`). The logarithm of
    the likelihood is concave; a quadratic penalty pulls to 1, the exponent of an independent and calibrated opinion, so
    that a few rows make none certain. A row whose label is not allowed says nothing of the exponents. `base` is what
    stands beside the opinions as it is, an opinion whose exponent is settled.
    """
    usable = np.flatnonzero(allowed[np.arange(len(y)), y])
    allowed, rows, truth = allowed[usable], np.arange(len(usable)), y[usable]
    logs = np.stack([_centred(opinion[usable], allowed) for opinion in opinions])
    settled = 0.0 if base is None else base[usable]

    def loss(t: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = log_softmax(np.where(allowed, np.tensordot(t, logs, axes=1) + settled, -np.inf), axis=1)
        expected = np.einsum("snk,nk->s", logs, np.exp(log_p))
        value = 0.5 * penalty * ((t - 1.0) ** 2).sum() - log_p[rows, truth].sum()
        return float(value), penalty * (t - 1.0) + expected - logs[:, rows, truth].sum(axis=1)

    start, bounds = np.ones(len(logs)), [(0.0, None)] * len(logs)
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"gtol": 1e-8, "ftol": 1e-14}).x


def mix_exponents(opinions: Sequence[np.ndarray], y: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The exponents of two opinions, who said it and how many did, by the labels `y` of clean rows.

    Annotators err together where a row is hard, so that a product over them is too sure and its matrices may mislead;
    the count needs no matrix, but trusts everyone alike. Both are calibrated on the clean rows and mixed. Of the
    mixtures that are at most one standard error less likely than the best, the nearest to the count is taken: the
    matrices must earn their worth, and break ties in any case.
    """
    if not allowed[np.arange(len(y)), y].any():
        return np.array([1.0, 0.0])
    calibrated = [fit_exponents([opinion], y, allowed)[0] for opinion in opinions]
    found = []
    for share in MIXES:
        mix = np.array([share, 1.0 - share]) * calibrated
        found.append(fit_exponents([np.tensordot(mix, opinions, axes=1)], y, allowed)[0] * mix)
    likelihood = np.stack([_log_likelihood(opinions, exponents, y, allowed) for exponents in found])
    behind = likelihood[likelihood.sum(axis=1).argmax()] - likelihood
    error = behind.std(axis=1) * np.sqrt(behind.shape[1])
    return found[int(np.argmax(behind.sum(axis=1) <= error))]


def _log_likelihood(
    opinions: Sequence[np.ndarray], exponents: np.ndarray, y: np.ndarray, allowed: np.ndarray
) -> np.ndarray:
    """That of each row whose label is allowed."""
    usable = np.flatnonzero(allowed[np.arange(len(y)), y])
    opinions = [_centred(opinion[usable], allowed[usable]) for opinion in opinions]
    return np.log(combine(opinions, exponents, allowed[usable])[np.arange(len(usable)), y[usable]])


def exponent_errors(
    opinions: Sequence[np.ndarray],
    exponents: np.ndarray,
    y: np.ndarray,
    allowed: np.ndarray,
    penalty: float = EXPONENT_PENALTY,
) -> np.ndarray:
    """The standard error of each exponent that `fit_exponents` found, from the curvature of the likelihood."""
    usable = np.flatnonzero(allowed[np.arange(len(y)), y])
    opinions, allowed = [opinion[usable] for opinion in opinions], allowed[usable]
    logs = np.stack([_centred(opinion, allowed) for opinion in opinions])
    p = combine(opinions, exponents, allowed)
    mean = np.einsum("snk,nk->sn", logs, p)
    curvature = np.einsum("snk,rnk,nk->sr", logs, logs, p) - mean @ mean.T + penalty * np.eye(len(opinions))
    return np.sqrt(np.diag(np.linalg.inv(curvature)))


def _centred(opinion: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    kept = np.where(allowed, opinion, 0.0)
    return np.where(allowed, kept - kept.sum(axis=1, keepdims=True) / allowed.sum(axis=1, keepdims=True), 0.0)


def _statement_matrix(evidence: Evidence, n_classes: int) -> sp.csr_array:
    """The weight of each statement at its row and at (source, label)."""
    place = evidence.source * n_classes + evidence.label
    shape = (len(evidence), len(evidence.sources) * n_classes)
    return sp.csr_array((evidence.weight, place, evidence.starts), shape=shape)


def _own_weight(evidence: Evidence, *keys: np.ndarray) -> np.ndarray:
    """For each statement, the weight of all statements on its row with the same keys."""
    _, group = np.unique(np.stack([evidence.row, *keys]), axis=1, return_inverse=True)
    return np.bincount(group, evidence.weight)[group]
