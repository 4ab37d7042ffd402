"""Which method for these rows? A quick comparison of a handful of methods, cross-validated on training rows alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mogd.algorithms import ALGORITHMS, make
from mogd.candidates import Candidates, as_candidates, as_labels
from mogd.selection import COVERING_BIAS, inner_score

MOST_ROWS = 2000  # the comparison is made on a sample of so many partial rows: enough to rank, quick to fit
EPOCHS = 40  # of a deep method, so that a comparison takes minutes
N_SPLITS = 3


@dataclass(frozen=True)
class Option:
    """One thing to try: how it is called where a person reads it, the algorithm and its parameters."""

    label: str
    algorithm: str
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of an option: its estimated accuracy, or why there is none."""

    option: Option
    score: float | None
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Comparison:
    """Outcomes, the best first; of the estimates, those within `noise` of each other do not differ."""

    outcomes: list[Outcome]
    noise: float
    n_rows: int
    n_clean: int

    @property
    def best(self) -> Outcome:
        return self.outcomes[0]

    @property
    def level(self) -> list[Outcome]:
        """Outcomes that are as good as the best, as far as these rows can say; the quickest first."""
        assert self.best.score is not None
        near = [o for o in self.outcomes if o.score is not None and o.score >= self.best.score - self.noise]
        return sorted(near, key=lambda o: o.seconds)


def options(*, has_clean: bool, has_votes: bool, is_image: bool = False) -> list[Option]:
    """What is worth trying on such rows, the quick ones first; only what this library has."""
    deep = "mogd" if has_clean else "cc"
    name = ALGORITHMS[deep].label or ALGORITHMS[deep].path.split(":")[1]
    backbones = ("linear", "cnn") if is_image else ("linear", "rbf", "mlp")
    found = [Option("Majority vote", "majority"), Option("Dawid-Skene", "dawid-skene")] if has_votes else []
    found += [] if is_image else [Option("SURE", "sure")]
    found += [Option(f"{name}, {b}", deep, {"backbone": b, "epochs": EPOCHS}) for b in backbones]
    known = set(_backbones())
    return [o for o in found if o.algorithm in ALGORITHMS and o.params.get("backbone") in {None, *known}]


def compare(
    X: Any,
    candidates: Any,
    X_val: Any = None,
    y_val: Any = None,
    candidates_val: Any = None,
    *,
    tried: Sequence[Option] | None = None,
    budget: float | None = None,
    n_splits: int = N_SPLITS,
    random_state: int = 0,
    on_outcome: Callable[[Outcome], None] | None = None,
) -> Comparison:
    """Try each option by `selection.inner_score`, on the same sample and the same splits.

    budget : seconds after which no further option is begun; the first is always tried.
    on_outcome : called after each.
    """
    X = np.asarray(X)
    candidates = as_candidates(candidates, n_rows=len(X), unseen="keep")
    has_clean = y_val is not None and len(y_val) > 0
    if tried is None:
        has_votes = getattr(candidates, "evidence", None) is not None
        tried = options(has_clean=has_clean, has_votes=has_votes, is_image=X.ndim > 2)
    if len(X) > MOST_ROWS:
        rows = np.sort(np.random.default_rng(random_state).permutation(len(X))[:MOST_ROWS])
        X, candidates = X[rows], candidates[rows]
    clean = {"X_val": X_val, "y_val": y_val, "candidates_val": candidates_val} if has_clean else {}
    began, outcomes = time.perf_counter(), []
    for number, option in enumerate(tried):
        left = None if budget is None else budget - (time.perf_counter() - began)
        if left is not None and left <= 0 and number:
            outcomes.append(Outcome(option, None, 0.0, "not tried: the budget was spent"))
        else:
            outcomes.append(_tried(option, X, candidates, clean, n_splits, random_state))
        if on_outcome is not None:
            on_outcome(outcomes[-1])
    ranked = sorted(outcomes, key=lambda o: (o.score is None, -(o.score or 0.0)))
    if not ranked or ranked[0].score is None:
        said = ranked[0].error if ranked else "there is nothing to try"
        raise ValueError(f"no method could be fitted to these rows; the first said: {said}")
    n_clean = len(as_labels(y_val, candidates.classes)) if has_clean else 0
    return Comparison(ranked, noise(candidates, n_clean), len(X), n_clean)


def noise(candidates: Candidates, n_clean: int) -> float:
    """The standard error of an estimate by `selection.pooled_accuracy`, at most; the bias is the same for all."""
    chance = (candidates.sizes - 1).mean() / max(candidates.shape[1] - 1, 1)
    by_sets = np.inf if chance >= 1 else 0.25 / (len(candidates) * (1 - chance) ** 2)
    if not n_clean:
        return float(np.sqrt(by_sets))
    by_clean = 0.25 / n_clean
    if not np.isfinite(by_sets):
        return float(np.sqrt(by_clean))
    weight = (COVERING_BIAS**2 + by_sets) / (by_clean + COVERING_BIAS**2 + by_sets)
    return float(np.sqrt(weight**2 * by_clean + (1 - weight) ** 2 * by_sets))


def _tried(
    option: Option, X: np.ndarray, candidates: Candidates, clean: dict[str, Any], n_splits: int, seed: int
) -> Outcome:
    began = time.perf_counter()
    try:
        params = {"scale": "standard", "unseen": "keep"} | option.params
        model = make(option.algorithm, **params)
        if "random_state" in model.get_params(deep=False):
            model.set_params(random_state=seed)
        score = inner_score(model, X, candidates, **clean, n_splits=n_splits, random_state=seed)
    except (ValueError, ArithmeticError) as error:
        return Outcome(option, None, time.perf_counter() - began, str(error))
    return Outcome(option, score, time.perf_counter() - began)


def _backbones() -> Sequence[str]:
    from mogd.nets import BACKBONES

    return tuple(BACKBONES)
