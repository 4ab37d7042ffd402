"""Whether a difference is more than noise: Wilcoxon over paired runs with Holm's correction, Friedman with Nemenyi.

The folds of one repetition share training rows, so their differences are not independent and p-values of paired runs
are too small; the critical difference is reckoned over whole repetitions instead of folds.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range, wilcoxon

from mogd.experiments.record import Record
from mogd.experiments.summary import REFERENCE


@dataclass(frozen=True)
class Paired:
    """Ours against one rival, over the runs that both have; `difference` is the mean of ours less the rival's."""

    rival: str
    dataset: str | None  # None for all data sets and settings together
    n: int
    difference: float
    wins: int
    losses: int
    p: float
    p_holm: float  # over the rivals of the same data set

    @property
    def significant(self) -> bool:
        return self.p_holm < 0.05


@dataclass(frozen=True)
class CriticalDifference:
    """Average ranks over blocks; two methods closer than `distance` are not distinguished."""

    ranks: dict[str, float]  # best first
    n_blocks: int
    friedman_p: float
    distance: float
    groups: list[list[str]]  # largest runs of methods that are not distinguished


def paired_tests(
    records: Sequence[Record], ours: str = "MoGD", metric: str = "accuracy", *, by_dataset: bool = False
) -> list[Paired]:
    """Wilcoxon's signed-rank test of the label `ours` against every other, on runs with equal data, split and seed."""
    found: list[Paired] = []
    for dataset in dict.fromkeys(r["dataset"] for r in records) if by_dataset else [None]:
        runs = _runs([r for r in records if dataset in (None, r["dataset"])], metric)
        mine = runs.pop(ours, {})
        tested = []
        for rival, theirs in runs.items():
            both = sorted(mine.keys() & theirs.keys())
            if not both:
                continue
            gaps = np.array([mine[run] - theirs[run] for run in both])
            # a gap of rounding is none
            gaps[np.abs(gaps) < 1e-12] = 0.0
            p = float(wilcoxon(gaps).pvalue) if np.any(gaps) else 1.0
            tested.append((rival, gaps, p))
        corrected = holm([p for _, _, p in tested])
        for (rival, gaps, p), p_holm in zip(tested, corrected, strict=True):
            wins, losses = int((gaps > 0).sum()), int((gaps < 0).sum())
            found.append(Paired(rival, dataset, len(gaps), float(gaps.mean()), wins, losses, p, p_holm))
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given."""
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for step, i in enumerate(np.argsort(p_values, kind="stable")):
        largest = max(largest, min(1.0, (len(p_values) - step) * p_values[i]))
        corrected[i] = largest
    return corrected


def critical_difference(
    records: Sequence[Record], metric: str = "accuracy", alpha: float = 0.05
) -> CriticalDifference | None:
    """Friedman's test and Nemenyi's critical difference; a block is a column (data set, setting) in one repetition.

    Methods that lack a block are left out; None where fewer than three methods or two blocks remain.
    """
    blocks: dict[str, dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for label, runs in _runs(records, metric).items():
        for (dataset, setting, repetition, _), value in runs.items():
            blocks[label][dataset, setting, repetition].append(value)
    every = set().union(*(set(found) for found in blocks.values()))
    complete = {label: found for label, found in blocks.items() if set(found) == every}
    k, n = len(complete), len(every)
    if k < 3 or n < 2:
        return None
    means = np.array([[np.mean(found[block]) for block in sorted(every)] for found in complete.values()])
    ranks = np.apply_along_axis(rankdata, 0, -means).mean(axis=1)
    distance = float(studentized_range.ppf(1 - alpha, k, np.inf) / np.sqrt(2) * np.sqrt(k * (k + 1) / (6 * n)))
    order = np.argsort(ranks, kind="stable")
    labels = list(complete)
    named = {labels[i]: float(ranks[i]) for i in order}
    p = float(friedmanchisquare(*means).pvalue)
    return CriticalDifference(named, n, 1.0 if np.isnan(p) else p, distance, _groups(named, distance))


def _groups(ranks: dict[str, float], distance: float) -> list[list[str]]:
    labels, found = list(ranks), []
    reached = 0
    for start, label in enumerate(labels):
        end = max(i for i, other in enumerate(labels) if ranks[other] - ranks[label] <= distance)
        if end > start and end > reached:
            found.append(labels[start : end + 1])
            reached = end
    return found


def _runs(records: Sequence[Record], metric: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Label -> run -> value, of the methods that compete; a run is a data set, a setting, a repetition and a fold."""
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for r in records:
        value = (r["metrics"] or {}).get(metric)
        if value is not None and r["algorithm"] != REFERENCE:
            run = (r["dataset"], json.dumps(r["setting"], sort_keys=True), str(r["repetition"]), str(r["fold"]))
            found[r["label"]][run] = value
    return dict(found)
