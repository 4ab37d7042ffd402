"""Opinions multiplied, and the exponents that weigh them (a logarithmic opinion pool).

An opinion is a logarithm for each row and label, `(n, K)`. Opinions are multiplied, each to an exponent `t ≥ 0` under
which the labels of the clean rows are most probable. That of a count is the share of the votes, that of scores their
logarithm to a power found on the clean rows; that of annotators is in `mogd.crowd`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from mogd.evidence import Evidence

HALF_VOTE = 0.5  # what nobody said is not impossible
EXPONENT_PENALTY = 1.0  # pulls an exponent to 1 about as hard as two undecided clean rows pull it elsewhere
POWER_PENALTY = 0.1  # the same for standardised scores, whose right power nobody knows beforehand
# shares of the less simple of two opinions, who said it beside how many did; the least only breaks ties
MIXES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)


def posterior(logs: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The softmax over the allowed labels of each row."""
    return softmax(np.where(allowed, logs, -np.inf), axis=1)


def combine(opinions: Sequence[np.ndarray], exponents: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The product of the opinions, each to its exponent, as a distribution over the allowed labels of each row."""
    return posterior(np.tensordot(exponents, np.stack(opinions), axes=1), allowed)


def count_opinion(evidence: Evidence, n_classes: int) -> np.ndarray:
    """The logarithm of each label's share of the votes, half a vote more for each; whoever said it counts alike."""
    counted = evidence.totals(n_classes) + HALF_VOTE
    return np.log(counted / counted.sum(axis=1, keepdims=True))


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
    opinions: Sequence[np.ndarray], y: np.ndarray, allowed: np.ndarray, penalty: float = EXPONENT_PENALTY
) -> np.ndarray:
    """The exponents `t ≥ 0` under which the labels `y` of clean rows are most probable, one for each opinion.

    The opinions must not have been learned from these very rows (see `Confusions.held_out_opinion`). The logarithm of
    the likelihood is concave; a quadratic penalty pulls to 1, the exponent of an independent and calibrated opinion, so
    that a few rows make none certain. A row whose label is not allowed says nothing of the exponents.
    """
    usable = np.flatnonzero(allowed[np.arange(len(y)), y])
    allowed, rows, truth = allowed[usable], np.arange(len(usable)), y[usable]
    logs = np.stack([_centred(opinion[usable], allowed) for opinion in opinions])

    def loss(t: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = log_softmax(np.where(allowed, np.tensordot(t, logs, axes=1), -np.inf), axis=1)
        expected = np.einsum("snk,nk->s", logs, np.exp(log_p))
        value = 0.5 * penalty * ((t - 1.0) ** 2).sum() - log_p[rows, truth].sum()
        return float(value), penalty * (t - 1.0) + expected - logs[:, rows, truth].sum(axis=1)

    start, bounds = np.ones(len(logs)), [(0.0, None)] * len(logs)
    return minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"gtol": 1e-8, "ftol": 1e-14}).x


def mix_exponents(
    opinions: Sequence[np.ndarray],
    y: np.ndarray,
    allowed: np.ndarray,
    shares: Sequence[float] = MIXES,
    errors: float = 1.0,
) -> np.ndarray:
    """The exponents of two opinions, the second of which is the simpler one, by the labels `y` of clean rows.

    Both are calibrated on the clean rows and mixed. Of the mixtures that are at most so many standard `errors` less
    likely than the best, the first one is taken, with the least of the `shares` of the less simple opinion: it must
    earn its worth, and breaks ties in any case.
    """
    if not allowed[np.arange(len(y)), y].any():
        return np.array([1.0, 0.0])
    calibrated = [fit_exponents([opinion], y, allowed)[0] for opinion in opinions]
    found = []
    for share in shares:
        mix = np.array([share, 1.0 - share]) * calibrated
        found.append(fit_exponents([np.tensordot(mix, opinions, axes=1)], y, allowed)[0] * mix)
    likelihood = np.stack([_log_likelihood(opinions, exponents, y, allowed) for exponents in found])
    behind = likelihood[likelihood.sum(axis=1).argmax()] - likelihood
    error = behind.std(axis=1) * np.sqrt(behind.shape[1])
    return found[int(np.argmax(behind.sum(axis=1) <= errors * error))]


def _log_likelihood(
    opinions: Sequence[np.ndarray], exponents: np.ndarray, y: np.ndarray, allowed: np.ndarray
) -> np.ndarray:
    """That of each row whose label is allowed."""
    usable = np.flatnonzero(allowed[np.arange(len(y)), y])
    opinions = [_centred(opinion[usable], allowed[usable]) for opinion in opinions]
    return np.log(combine(opinions, exponents, allowed[usable])[np.arange(len(usable)), y[usable]])


def _centred(opinion: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    kept = np.where(allowed, opinion, 0.0)
    return np.where(allowed, kept - kept.sum(axis=1, keepdims=True) / allowed.sum(axis=1, keepdims=True), 0.0)
