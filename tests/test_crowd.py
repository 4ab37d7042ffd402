"""The mathematics of annotators against loops, a convex solver and genuine raters."""

from __future__ import annotations

import os
from collections.abc import Callable
from math import lgamma, log
from pathlib import Path
from typing import Any, NoReturn

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

from benchmarks.annotators import METHODS, Rated, read_rated, resolved
from mogd import as_candidates, crowd, pooling
from mogd.candidates import Candidates
from mogd.evidence import Evidence


def votes_of(y: np.ndarray, matrices: np.ndarray, rng: np.random.Generator, missing: float = 0.0) -> Candidates:
    """Votes of annotators with these confusion matrices; some say nothing, but one of them always speaks."""
    said = np.stack([[rng.choice(len(m), p=m[truth]) for truth in y] for m in matrices], axis=1).astype(float)
    said[:, 1:][rng.random((len(y), len(matrices) - 1)) < missing] = np.nan
    return as_candidates(said, form="annotators", classes=np.arange(matrices.shape[1]), unseen="keep")


def annotators(n: int, n_classes: int, rng: np.random.Generator, skill: float = 6.0) -> np.ndarray:
    return np.stack([[rng.dirichlet(1 + skill * np.eye(n_classes)[j]) for j in range(n_classes)] for _ in range(n)])


@pytest.fixture
def small() -> tuple[Candidates, Candidates, np.ndarray, np.ndarray]:
    """Partial and clean rows with weighted votes; some annotators speak twice of a row."""
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=30)
    found = votes_of(y, annotators(4, 3, rng, 2.0), rng, missing=0.4)
    assert found.evidence is not None
    part = found.evidence
    row = np.concatenate([part.row, part.row[:9]])
    order = np.argsort(row, kind="stable")
    source, label = (np.concatenate([values, values[:9]])[order] for values in (part.source, part.label))
    weight = rng.uniform(0.5, 2.0, size=len(row))
    evidence = Evidence(row[order], label, source, weight, part.sources, 30)
    both = Candidates(found.matrix, found.classes, evidence)
    return both[:18], both[18:], y[18:], rng.dirichlet(np.ones(3), size=18)


def evidence_of(candidates: Candidates) -> Evidence:
    assert candidates.evidence is not None
    return candidates.evidence


def loop(evidence: Evidence) -> list[tuple[int, int, int, float]]:
    parts = evidence.row, evidence.source, evidence.label, evidence.weight
    return list(zip(*(part.tolist() for part in parts), strict=True))


def matrices_by_loops(counts: np.ndarray, shrinkage: float) -> np.ndarray:
    n_sources, n_classes, _ = counts.shape
    found = np.empty_like(counts)
    for j in range(n_classes):
        common = [sum(counts[:, j, label]) + (j == label) + 1 / n_classes for label in range(n_classes)]
        for s in range(n_sources):
            for label in range(n_classes):
                mean = common[label] / sum(common)
                found[s, j, label] = (counts[s, j, label] + shrinkage * mean) / (sum(counts[s, j]) + shrinkage)
    return found


def counts_by_loops(evidence: Evidence, confidence: np.ndarray) -> np.ndarray:
    counts = np.zeros((len(evidence.sources), confidence.shape[1], confidence.shape[1]))
    for row, source, label, weight in loop(evidence):
        for j in range(confidence.shape[1]):
            counts[source, j, label] += weight * confidence[row, j]
    return counts


def opinion_by_loops(evidence: Evidence, matrices: np.ndarray) -> np.ndarray:
    found = np.zeros((len(evidence), matrices.shape[1]))
    for row, source, label, weight in loop(evidence):
        for j in range(matrices.shape[1]):
            found[row, j] += weight * log(matrices[source, j, label])
    return found


def test_majority_with_weights_and_ties() -> None:
    votes = pd.DataFrame({"task": [0, 0, 0, 1, 1, 2, 2, 2], "worker": list("abcabcab"), "label": list("xyyxyxxy")})
    votes["weight"] = [1.0, 0.5, 0.4, 0.1 + 0.2, 0.3, 1.0, 1.0, 1.5]  # the sums of row 1 differ by rounding alone
    found = as_candidates(votes)
    evidence = evidence_of(found).take(np.array([0, 1, 2, -1]))  # nothing was said of the last row
    both = np.ones((4, 2), dtype=bool)
    shares = [[1 / 1.9, 0.9 / 1.9], [0.5, 0.5], [4 / 7, 3 / 7], [0.5, 0.5]]
    np.testing.assert_allclose(crowd.vote_shares(evidence, both), shares)
    np.testing.assert_array_equal(crowd.majority(evidence, both), [[1, 0], [0.5, 0.5], [1, 0], [0.5, 0.5]])
    only = np.array([[False, True]] * 4)  # a set that holds less than what was said
    np.testing.assert_array_equal(crowd.majority(evidence, only), only)


def test_counts_matrices_and_opinions(small: Any) -> None:
    partial, _, _, confidence = small
    evidence = evidence_of(partial)
    counts = crowd.vote_counts(evidence, confidence)
    np.testing.assert_allclose(counts, counts_by_loops(evidence, confidence))
    confusions = crowd.Confusions(counts, 7.0)
    np.testing.assert_allclose(confusions.matrices, matrices_by_loops(counts, 7.0))
    np.testing.assert_allclose(confusions.matrices.sum(axis=2), 1)
    np.testing.assert_allclose(confusions.opinion(evidence), opinion_by_loops(evidence, confusions.matrices))
    prior = np.array([0.5, 0.2, 0.3])
    right = [sum(prior[j] * confusions.matrices[s, j, j] for j in range(3)) for s in range(4)]
    np.testing.assert_allclose(confusions.reliability(prior), right)


def test_an_annotator_who_said_little_has_the_common_matrix() -> None:
    counts = np.zeros((3, 2, 2))
    counts[0], counts[1] = [[90, 10], [20, 80]], [[1, 0], [0, 0]]
    matrices = crowd.Confusions(counts, 30.0).matrices
    np.testing.assert_allclose(matrices[2], crowd.common_matrix(counts))
    assert np.abs(matrices[1] - matrices[2]).max() < 0.01
    assert np.abs(matrices[0] - counts[0] / 100).max() < 0.01


def test_held_out_opinions_are_those_without_the_row(small: Any) -> None:
    partial, clean, y, confidence = small
    known = np.eye(3)[y]
    base = 0.3 * crowd.vote_counts(evidence_of(partial), confidence)
    confusions = crowd.Confusions(base + crowd.vote_counts(evidence_of(clean), known), 5.0)
    found = confusions.held_out_opinion(evidence_of(clean), y)
    for i in range(len(y)):
        others = np.delete(np.arange(len(y)), i)
        without = crowd.Confusions(base + crowd.vote_counts(evidence_of(clean)[others], known[others]), 5.0)
        np.testing.assert_allclose(found[i], without.opinion(evidence_of(clean)[[i]])[0], atol=1e-12)


def test_expectation_maximisation_by_loops(small: Any) -> None:
    partial, clean, y, _ = small
    evidence, gold = evidence_of(partial), counts_by_loops(evidence_of(clean), np.eye(3)[y])
    confidence = np.zeros(partial.shape)
    for row, _, label, weight in loop(evidence):
        confidence[row, label] += weight
    confidence /= confidence.sum(axis=1, keepdims=True)
    for _ in range(400):
        matrices = matrices_by_loops(0.5 * counts_by_loops(evidence, confidence) + gold, 4.0)
        prior = 0.5 * confidence.sum(axis=0) + np.bincount(y, minlength=3) + 1
        scores = np.exp(opinion_by_loops(evidence, matrices)) * prior * partial.matrix
        confidence = scores / scores.sum(axis=1, keepdims=True)
    fit = crowd.dawid_skene(evidence, partial.matrix, evidence_of(clean), y, weight=0.5, shrinkage=4.0)
    np.testing.assert_allclose(fit.confidence, confidence, atol=1e-4)
    np.testing.assert_allclose(fit.confusions.matrices, matrices, atol=1e-4)
    np.testing.assert_allclose(fit.prior, prior / prior.sum(), atol=1e-4)


def test_the_most_probable_shrinkage() -> None:
    rng = np.random.default_rng(0)
    common = np.array([[0.8, 0.2], [0.3, 0.7]])
    alike = np.stack([[rng.multinomial(50, row) for row in common] for _ in range(20)]).astype(float)
    unlike = np.stack([[rng.multinomial(50, rng.dirichlet(3 * row)) for row in common] for _ in range(20)]).astype(
        float
    )
    assert crowd.best_shrinkage(alike) > 100
    assert 1 < crowd.best_shrinkage(unlike) < 10

    def by_loops(counts: np.ndarray, strength: float) -> float:
        mean, total = crowd.common_matrix(counts), 0.0
        for s, j in np.ndindex(counts.shape[:2]):
            total += lgamma(strength) - lgamma(strength + counts[s, j].sum())
            total += sum(
                lgamma(c + strength * m) - lgamma(strength * m) for c, m in zip(counts[s, j], mean[j], strict=True)
            )
        return total

    assert crowd.best_shrinkage(unlike) == max(crowd.SHRINKAGES, key=lambda strength: by_loops(unlike, strength))


def test_what_a_guessed_row_counts() -> None:
    assert crowd.partial_weight(5000, 0, 3) == 1
    assert crowd.partial_weight(5000, 100, 3) == 100 / 5000
    assert crowd.partial_weight(5000, 10, 3) == 90 / 5000
    assert crowd.partial_weight(50, 100, 3) == 1


def test_exponents_against_a_convex_solver() -> None:
    rng = np.random.default_rng(3)
    y, allowed = rng.integers(4, size=60), rng.random((60, 4)) < 0.7
    allowed[np.arange(50), y[:50]] = True  # the label of some of the last rows is not allowed: they say nothing
    opinions = rng.normal(size=(3, 60, 4)) + np.array([2, 0, -1])[:, None, None] * np.eye(4)[y]
    t = cp.Variable(3, nonneg=True)
    usable = [i for i in range(60) if allowed[i, y[i]]]
    logs = []
    for i in usable:
        score = t @ opinions[:, i, :]
        logs.append(score[y[i]] - cp.log_sum_exp(score[np.flatnonzero(allowed[i])]))
    cp.Problem(cp.Maximize(cp.sum(cp.hstack(logs)) - 0.5 * 1.5 * cp.sum_squares(t - 1))).solve(solver=cp.CLARABEL)
    found = pooling.fit_exponents(opinions, y, allowed, penalty=1.5)
    np.testing.assert_allclose(found, t.value, atol=1e-4)
    assert found[0] > 1
    assert found[2] == 0  # an opinion that is wrong where it is sure counts for nothing
    mixed = pooling.combine(opinions, found, allowed)
    scores = np.exp(sum(f * o for f, o in zip(found, opinions, strict=True))) * allowed
    np.testing.assert_allclose(mixed, scores / scores.sum(axis=1, keepdims=True))


def test_exponents_without_rows_are_one() -> None:
    none = np.empty((0, 3))
    assert pooling.fit_exponents([none, none], np.empty(0, dtype=int), none.astype(bool)).tolist() == [1, 1]


def test_held_out_opinions_do_not_make_their_own_exponent_overconfident() -> None:
    """Forty annotators who guess: by the matrices that hold the row they look wise, held out they do not."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=60)
    clean = votes_of(y, np.full((40, 3, 3), 1 / 3), rng)
    confusions = crowd.Confusions(crowd.vote_counts(evidence_of(clean), np.eye(3)[y]), 3.0)
    everything = np.ones((60, 3), dtype=bool)
    own = pooling.fit_exponents([confusions.opinion(evidence_of(clean))], y, everything)
    held_out = pooling.fit_exponents([confusions.held_out_opinion(evidence_of(clean), y)], y, everything)
    assert own[0] > 1
    assert held_out[0] < 0.1


@pytest.mark.parametrize("unit", [1.0, 0.05, 8.0])
def test_scores_in_any_unit_are_calibrated(unit: float) -> None:
    """Scores are probabilities to some power: the power found undoes it."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=2000)
    y = np.array([rng.choice(4, p=row) for row in p])
    candidates = as_candidates(100 * p**unit, form="scores")
    opinion = pooling.score_opinion(evidence_of(candidates), candidates.matrix)
    np.testing.assert_allclose(opinion, unit * (np.log(p) - np.log(p).mean(axis=1, keepdims=True)), atol=1e-9)
    power = pooling.score_power(opinion, y, candidates.matrix)
    np.testing.assert_allclose(power * unit, 1, atol=0.08)
    assert pooling.score_power(opinion[:0], y[:0], candidates.matrix[:0]) == 1


def test_a_row_without_scores_has_no_opinion() -> None:
    candidates = as_candidates([{"a": 3.0, "b": 1.0}, {}], empty="all")
    opinion = pooling.score_opinion(evidence_of(candidates), candidates.matrix)
    np.testing.assert_allclose(opinion, [[log(3) / 2, -log(3) / 2], [0, 0]])


@pytest.mark.parametrize("bad", ["random", "malicious"])
def test_a_bad_annotator_costs_little(bad: str) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1500)
    good = np.stack([np.full((3, 3), 0.12) + 0.64 * np.eye(3)] * 3)
    other = np.full((3, 3), 1 / 3) if bad == "random" else np.eye(3)[[1, 2, 0]]
    three, four = (
        votes_of(y, good, np.random.default_rng(1)),
        votes_of(y, np.stack([*good, other]), np.random.default_rng(1)),
    )
    right = []
    for found in (three, four):
        clean, partial = found[:100], found[100:]
        weight = crowd.partial_weight(1400, 100, 3)
        fit = crowd.dawid_skene(evidence_of(partial), partial.matrix, evidence_of(clean), y[:100], weight=weight)
        right.append(np.mean(fit.confidence.argmax(axis=1) == y[100:]))
    assert right[1] > right[0] - 0.01
    reliability = fit.confusions.reliability(fit.prior)
    assert reliability[:3].min() > 0.65
    assert abs(reliability[3] - (1 / 3 if bad == "random" else 0.05)) < 0.1
    if bad == "malicious":
        assert right[1] > right[0] + 0.05


def test_counted_and_weighed_votes(small: Any) -> None:
    partial, clean, y, _ = small
    evidence, gold = evidence_of(partial), evidence_of(clean)
    fit = crowd.dawid_skene(evidence, partial.matrix, gold, y, weight=0.5)
    totals = np.zeros(partial.shape)
    for row, _, label, weight in loop(evidence):
        totals[row, label] += weight
    count = pooling.count_opinion(evidence, 3)
    np.testing.assert_allclose(np.exp(count), (totals + 0.5) / (totals + 0.5).sum(axis=1, keepdims=True))
    confidence, exponents = crowd.weigh_votes(fit, evidence, partial.matrix, gold, y)
    held_out = fit.confusions.held_out_opinion(gold, y) + np.log(fit.prior)
    expected = pooling.mix_exponents([held_out, pooling.count_opinion(gold, 3)], y, np.ones((12, 3), dtype=bool))
    np.testing.assert_allclose(exponents, expected)
    product = (np.exp(fit.confusions.opinion(evidence)) * fit.prior) ** exponents[0] * np.exp(count) ** exponents[1]
    product *= partial.matrix
    np.testing.assert_allclose(confidence, product / product.sum(axis=1, keepdims=True))


def test_the_mixture_nearest_to_the_count_within_one_standard_error() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=80)
    everything = np.ones((80, 3), dtype=bool)
    count = 1.5 * np.eye(3)[y] + rng.normal(size=(80, 3))
    for skill in (0.5, 1.5, 2.0, 4.0):
        who = skill * np.eye(3)[y] + rng.normal(size=(80, 3))
        alone = [pooling.fit_exponents([opinion], y, everything)[0] for opinion in (who, count)]
        exponents, likelihood = [], []
        for share in pooling.MIXES:
            mixed = share * alone[0] * who + (1 - share) * alone[1] * count
            scale = pooling.fit_exponents([mixed], y, everything)[0]
            exponents.append([scale * share * alone[0], scale * (1 - share) * alone[1]])
            likelihood.append(
                [log(np.exp(scale * m[j]) / np.exp(scale * m).sum()) for m, j in zip(mixed, y, strict=True)]
            )
        best = max(likelihood, key=sum)
        behind = [np.subtract(best, one) for one in likelihood]
        first = next(i for i, one in enumerate(behind) if one.mean() <= one.std() / np.sqrt(80))
        np.testing.assert_allclose(pooling.mix_exponents([who, count], y, everything), exponents[first], rtol=1e-5)
    assert pooling.mix_exponents([8 * np.eye(3)[y], -count], y, everything)[1] == 0  # a count that misleads has no say
    assert pooling.mix_exponents([who, count], y, ~everything).tolist() == [1, 0]  # nobody can judge


@pytest.fixture(scope="module")
def raters(missing: Callable[[str], NoReturn]) -> Callable[..., Rated]:
    """A reader of the genuine raters."""
    folders = os.environ.get("MOGD_DATA", "").split(os.pathsep)
    if not any(Path(folder, "nyt.csv").is_file() and Path(folder, "tweets.csv").is_file() for folder in folders):
        missing("this needs the genuine raters of nyt.csv and tweets.csv: set MOGD_DATA to their folder")
    return read_rated


@pytest.mark.parametrize(
    ("name", "n_raters", "expected"),
    [
        ("nyt", 3, [73.7, 75.4, 75.4, 75.4]),
        ("nyt", 5, [78.6, 76.4, 78.0, 78.8]),
        ("tweets", 3, [86.3, 86.4, 86.6, 86.6]),
        ("tweets", 5, [89.5, 89.4, 89.5, 89.7]),
    ],
)
def test_genuine_raters(name: str, n_raters: int, expected: list[float], raters: Callable[..., Rated]) -> None:
    """The share of rows resolved to the truth, mean of three draws of 100 clean rows; a useless rater costs little."""
    shares = {}
    for further in ("none", "random"):
        found = [resolved(raters(name, n_raters, further, seed), seed)[0] for seed in range(3)]
        shares[further] = [100 * float(np.mean([row[method] for row in found])) for method in METHODS]
    np.testing.assert_allclose(shares["none"], expected, atol=0.2)
    lost = np.subtract(shares["none"], shares["random"])
    assert lost[0] > 1  # the majority
    assert max(lost[1:]) < 1
    assert shares["none"][-1] >= max(shares["none"]) - 0.05  # the exponents choose as well as the truth could
