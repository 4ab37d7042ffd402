"""Which method for these rows? A quick comparison of a handful of methods, cross-validated on training rows alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from mogd.algorithms import ALGORITHMS, make
from mogd.candidates import Candidates, as_candidates, as_labels
from mogd.estimator import PartialLabelEstimator, Rows
from mogd.rowsource import LazyRows
from mogd.selection import COVERING_BIAS, inner_score

MOST_ROWS = 2000  # the comparison is made on a sample of so many partial rows: enough to rank, quick to fit
EPOCHS = 40  # of a deep method at most, so that a comparison takes minutes
N_SPLITS = 3
TABLE_BACKBONES, IMAGE_BACKBONES = ("linear", "rbf", "mlp"), ("linear", "cnn")
# docs/studies/rbf-backbone.md: kernels are at their best on features from 0 to 1; skewed-features.md: powers
SCALE, SCALES = "power", {"rbf": "power-minmax", "sure": "power-minmax"}


@dataclass(frozen=True)
class Option:
    """One thing to try: how it is called where a person reads it, the algorithm and its parameters.

    They are parameters of `base`, where one is given, or else of the algorithm at its defaults.
    """

    label: str
    algorithm: str
    params: dict[str, Any] = field(default_factory=dict)
    base: PartialLabelEstimator | None = field(default=None, repr=False)

    def estimator(self, random_state: int, **more: Any) -> PartialLabelEstimator:
        """What it stands for, unfitted; of `more` it takes the parameters that it has."""
        if self.base is None:
            model = make(self.algorithm, **{"scale": SCALE} | self.params)
        else:
            model = clone(self.base).set_params(**self.params)
        own = model.get_params(deep=False)
        settings = {"random_state": random_state, **more}
        return model.set_params(**{name: value for name, value in settings.items() if name in own})


@dataclass(frozen=True)
class Outcome:
    """What became of an option: its estimated accuracy, or why there is none."""

    option: Option
    score: float | None
    seconds: float
    error: str | None = None

    def __str__(self) -> str:
        return f"{self.option.label}: {self.error or f'{self.score:.3f} in {self.seconds:.0f} s'}"


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

    def as_dict(self) -> dict[str, Any]:
        """As plain values, the best first."""
        rows = [
            {
                "label": o.option.label,
                "algorithm": o.option.algorithm,
                "params": {name: value for name, value in o.option.params.items() if isinstance(value, str)},
                "estimated_accuracy": o.score,
                "seconds": round(o.seconds, 2),
                "error": o.error,
            }
            for o in self.outcomes
        ]
        best = {"best": self.best.option.label, "level": [o.option.label for o in self.level]}
        return {**best, "noise": self.noise, "rows": self.n_rows, "clean_rows": self.n_clean, "methods": rows}


def options(
    *,
    has_clean: bool,
    has_votes: bool,
    is_image: bool = False,
    is_compressed: bool = False,
    allow_rows: bool = True,
    scale: str | None = "auto",
    epochs: int | None = None,
) -> list[Option]:
    """What is worth trying on such rows, the quick ones first.

    is_compressed : whether the candidate sets are compressed sparse rows, which only deep ones take.
    allow_rows : whether an algorithm may be tried that predicts from its training rows, so that a saved model holds
        them. scale : a scaler for all of them; "auto" takes for each the one that its study found. epochs : of the
        deep ones.
    """
    deep = "mogd" if has_clean else "cc"
    name = ALGORITHMS[deep].label or ALGORITHMS[deep].path.split(":")[1]
    found = []
    if has_votes and not is_compressed:
        found += [Option("Majority vote", "majority"), Option("Dawid-Skene", "dawid-skene")]
    if allow_rows and not is_image and not is_compressed:
        found.append(Option("SURE", "sure"))
    backbones = IMAGE_BACKBONES if is_image else TABLE_BACKBONES
    of_deep = {} if epochs is None else {"epochs": epochs}
    found += [Option(f"{name}, {b}", deep, {"backbone": b, **of_deep}) for b in backbones]
    if has_clean and not has_votes and not is_image:  # docs/studies/newer-rivals.md
        guided = {"backbone": "rbf", "callbacks": ("meta-step",), **of_deep}
        found.append(Option("CroSel with meta step, rbf", "crosel", guided))
    own = [scale_for(o.algorithm, o.params.get("backbone")) if scale == "auto" else scale for o in found]
    return [replace(o, params={**o.params, "scale": s}) for o, s in zip(found, own, strict=True)]


def deep_options(
    base: PartialLabelEstimator, open_parts: Sequence[str], *, has_clean: bool, is_image: bool
) -> list[Option]:
    """What a `PartialLabelClassifier` may be where its method or its backbone is open."""
    parts: dict[str, Sequence[str]] = {
        "method": ("mogd" if has_clean else "cc", "proden"),
        "backbone": IMAGE_BACKBONES if is_image else TABLE_BACKBONES,
    }
    grid = ParameterGrid({name: parts[name] for name in open_parts})
    return [Option(", ".join(p.values()), p.get("method", ""), p, base) for p in grid]


def scale_for(algorithm: str, backbone: str | None = None) -> str:
    """The scaler that suits a table's columns there."""
    return SCALES.get(backbone or algorithm, SCALE)


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
    X = X if isinstance(X, LazyRows) or sp.issparse(X) else np.asarray(X)
    n_rows = X.shape[0]
    candidates = as_candidates(candidates, n_rows=n_rows, unseen="keep")
    if n_rows < n_splits:
        raise ValueError(f"rows held out in turn compare the methods: {n_splits} are needed; got n_samples = {n_rows}")
    has_clean = y_val is not None and len(y_val) > 0
    if tried is None:
        has_votes = getattr(candidates, "evidence", None) is not None
        tried = options(
            has_clean=has_clean,
            has_votes=has_votes,
            is_image=X.ndim > 2,
            is_compressed=not isinstance(candidates.matrix, np.ndarray),
        )
    if n_rows > MOST_ROWS:
        rows = np.sort(np.random.default_rng(random_state).permutation(n_rows)[:MOST_ROWS])
        X, candidates = X[rows], candidates[rows]
    X = X[:] if isinstance(X, LazyRows) else X  # they are few
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
    return Comparison(ranked, noise(candidates, n_clean), X.shape[0], n_clean)


def report(outcome: Outcome) -> None:
    """A line of progress, beside what a program writes."""
    print(outcome, file=sys.stderr, flush=True)


def as_given(rows: Rows, classes: np.ndarray) -> dict[str, Any]:
    """Checked rows as `compare` takes them."""
    given: dict[str, Any] = {"X": rows.X, "candidates": Candidates(rows.candidates, classes, rows.evidence)}
    if len(rows.clean_y):
        given |= {"X_val": rows.clean_X, "y_val": classes[rows.clean_y]}
        if rows.clean_candidates is not None:
            given["candidates_val"] = Candidates(rows.clean_candidates, classes, rows.clean_evidence)
    return given


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
        model = option.estimator(seed, unseen="keep", verbose=0)
        if "epochs" in model.get_params(deep=False):
            model.set_params(epochs=min(EPOCHS, model.epochs))
        score = inner_score(model, X, candidates, **clean, n_splits=n_splits, random_state=seed)
    except (ValueError, ArithmeticError) as error:
        return Outcome(option, None, time.perf_counter() - began, str(error))
    return Outcome(option, score, time.perf_counter() - began)
