"""Search for good parameters of any algorithm by Optuna (extra `tune`), judged on training rows alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mogd.algorithms import ALGORITHMS, check_name, make
from mogd.scalers import SCALERS
from mogd.selection import Selection, inner_score


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`; by default evenly on a logarithmic scale."""

    low: float
    high: float
    log: bool = True


Space = dict[str, Range | tuple[Any, ...]]  # a tuple is a choice

_SCALE: Space = {"scale": tuple(SCALERS)}
_DEEP: Space = {
    "lr": Range(3e-3, 0.3),
    "weight_decay": Range(1e-5, 1e-2),
    "epochs": (50, 100, 200),
    "clean_weight": Range(1, 10),
}
_OWN: dict[str, Space] = {
    "mogd": {"strength": Range(0.1, 10), "prior": ("posterior", "running")},
    "mogd-paper": {"beta": Range(0.1, 1000)},
    "lws": {"beta": (1.0, 2.0)},
    "sure": {"lam": Range(1e-2, 1), "beta": Range(1e-3, 1)},
    "clpl": {"C": Range(1e-3, 10), "kernel": ("linear", "rbf")},
    "plsvm": {"lam": Range(1e-4, 1)},
    "plecoc": {"C": Range(0.1, 100), "kernel": ("linear", "rbf")},
    "plknn": {"n_neighbors": (5, 8, 10, 15, 20, 30)},
    "ipal": {"n_neighbors": (5, 8, 10, 15, 20), "alpha": (0.5, 0.8, 0.9, 0.95)},
}


def space_of(name: str) -> Space:
    """What is searched for an algorithm when the user names nothing."""
    return _SCALE | (_DEEP if ALGORITHMS[name].is_deep else {}) | _OWN.get(name, {})


def tune(
    name: str,
    X: Any,
    y: Any,
    X_val: Any = None,
    y_val: Any = None,
    *,
    trials: int | None = None,
    minutes: float | None = None,
    space: Space | None = None,
    n_splits: int = 3,
    seed: int = 0,
    on_trial: Callable[[int, float], None] | None = None,
    **fixed: Any,
) -> Selection:
    """The best parameters found within `trials` trials or `minutes` (whichever ends first; 30 trials by default).

    A trial's score is `selection.inner_score`: cross-validated accuracy on clean rows and covering of partial rows,
    never test data. The first trial is the algorithm at its defaults, so that what is returned is never judged worse
    than they are. `fixed` parameters are passed on as they are.
    """
    optuna = need_optuna()
    check_name(name)
    if (trials is not None and trials < 1) or (minutes is not None and minutes <= 0):
        raise ValueError(f"trials must be at least 1 and minutes more than 0; got {trials!r} and {minutes!r}")
    if (X_val is None) != (y_val is None):
        raise ValueError("X_val and y_val go together: clean rows need both")
    searched = {key: values for key, values in (space or space_of(name)).items() if key not in fixed}
    table: list[dict[str, Any]] = []

    def judge(params: dict[str, Any]) -> float:
        row: dict[str, Any] = {"params": params, "score": float("nan"), "error": None}
        try:
            estimator = make(name, **({"random_state": seed} | fixed | params))
            row["score"] = inner_score(estimator, X, y, X_val, y_val, n_splits=n_splits, random_state=seed)
        except (ValueError, ArithmeticError) as error:
            row["error"] = str(error)
        table.append(row)
        if on_trial is not None:
            on_trial(len(table), max((r["score"] for r in table if r["error"] is None), default=float("nan")))
        return row["score"]

    def objective(trial: Any) -> float:
        return judge({} if trial.number == 0 else {key: _suggest(trial, key, v) for key, v in searched.items()})

    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    count = 30 if trials is None and minutes is None else trials
    study.optimize(objective, n_trials=count, timeout=None if minutes is None else 60 * minutes)
    done = [row for row in table if row["error"] is None]
    if not done:
        raise ValueError(f"no trial of {name} could be fitted; the first said: {table[0]['error']}")
    best = max(done, key=lambda row: row["score"])
    return Selection(best["params"], best["score"], table)


def _suggest(trial: Any, key: str, values: Range | tuple[Any, ...]) -> Any:
    if isinstance(values, Range):
        return trial.suggest_float(key, values.low, values.high, log=values.log)
    return trial.suggest_categorical(key, values)


def need_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ImportError("tuning needs Optuna: pip install 'mogd[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
