"""What `mogd fit` says: the model's figures, beside majority vote and Dawid–Skene, with and without the clean rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mogd.algorithms import ALGORITHMS, make_method
from mogd.algorithms import make as make_algorithm

if TYPE_CHECKING:
    from mogd.choice import Comparison as Estimates
    from mogd.comparison import Comparison
    from mogd.datasets.tables import TableDataset
    from mogd.estimator import PartialLabelEstimator

Make = Callable[[str], "PartialLabelEstimator"]
LOW_COVERING = 0.5  # of what lies between chance and every prediction in its set
BUDGET = 120.0  # seconds of a comparison, unless --budget says otherwise


@dataclass(frozen=True)
class Tried:
    """How `--method auto` compares: what it may choose from, and what every choice is given."""

    allow_rows: bool
    scale: str | None
    epochs: int | None
    budget: float
    seed: int
    verbose: int

    def compare(self, data: TableDataset) -> Estimates:
        """The algorithms that use features, by their estimated accuracy; each is reported as it is done."""
        import numpy as np

        from mogd.choice import compare, options, report
        from mogd.comparison import SIMPLE

        has_clean = data.clean_y is not None and len(data.clean_y) > 0
        scale = "auto" if self.scale is None else None if self.scale == "none" else self.scale
        has_votes = data.candidates.evidence is not None
        kind = {"has_clean": has_clean, "has_votes": has_votes, "is_image": data.X.ndim > 2}
        kind["is_compressed"] = not isinstance(data.candidates.matrix, np.ndarray)
        of_rows = options(**kind, allow_rows=self.allow_rows, scale=scale, epochs=self.epochs)
        return compare(
            data.X,
            data.candidates,
            data.clean_X if has_clean else None,
            data.clean_y if has_clean else None,
            data.clean_candidates if has_clean else None,
            tried=[o for o in of_rows if o.algorithm not in SIMPLE],  # these compete on the clean rows
            budget=self.budget,
            random_state=self.seed,
            on_outcome=report if self.verbose else None,
        )


def choose(
    method: str, data: TableDataset, make: Make, compare: bool | None, tried: Tried | None = None
) -> tuple[str, PartialLabelEstimator, Comparison | None, Estimates | None]:
    """The algorithm to fit, how it compares on the clean rows, and what else was tried.

    With `tried` it is the best of those that use features, in the place of `method`; where there are votes, it gives
    way to those that read the votes alone if these are better on the clean rows beyond noise. Without a wish, tables
    with votes and enough clean rows are compared on these: every fit of pictures is long.
    """
    from sklearn.base import clone

    from mogd.comparison import LEAST_CLEAN, SIMPLE
    from mogd.comparison import compare as judge

    n_clean = 0 if data.clean_y is None else len(data.clean_y)
    has_votes = data.candidates.evidence is not None
    if compare and n_clean < LEAST_CLEAN:
        raise ValueError(f"--compare needs at least {LEAST_CLEAN} clean rows; there are {n_clean}: leave it out")
    own, estimates = method, None
    if tried is not None:
        estimates = tried.compare(data)
        option, how = estimates.best.option, {"unseen": "keep", "verbose": tried.verbose}
        own, model = option.algorithm, option.estimator(tried.seed, **how)
    else:
        model = make(own)
    if compare is None:
        compare = n_clean >= LEAST_CLEAN and has_votes and (data.X.ndim == 2 or tried is not None)
    if not compare:
        return own, model, None, estimates
    alone = clone(model).set_params(method=make_method("cc")) if ALGORITHMS[own].needs_clean_set else clone(model)
    assert data.clean_X is not None
    assert data.clean_y is not None
    clean = (data.clean_X, data.clean_y, data.clean_candidates)
    is_simple = own in SIMPLE
    found = judge(
        None if is_simple else model, own, data.X, data.candidates, *clean, without_clean=None if is_simple else alone
    )
    if tried is not None and found.own is not None and found.preferred is not found.own:
        own = found.preferred.name
        model = make_algorithm(own, scale=model.scale, **SIMPLE[own])
    return own, model, found, estimates


def estimate_rows(estimates: Estimates) -> list[tuple[str, str]]:
    """Lines of the summary: what was tried, the best first, and which differences are noise."""
    rows: list[tuple[str, str]] = []
    for outcome in estimates.outcomes:
        score = outcome.error or f"{outcome.score:.1%} estimated accuracy"
        level = ", as good as the best" if outcome in estimates.level and outcome is not estimates.best else ""
        rows.append(("" if rows else "compared", f"{outcome.option.label}: {score}{level}"))
    return rows


def comparison_rows(used: str, found: Comparison) -> list[tuple[str, str]]:
    """Lines of the summary: every share of clean rows that was right, and in words what they mean."""
    rows = [
        (
            "on the clean rows" if i == 0 else "",
            f"{one.share:.1%} right by {one.name}{' (used)' if one.name == used else ''}",
        )
        for i, one in enumerate(found.judged)
    ]
    best = found.best_simple
    if found.own is not None and best is not None:
        gain, error = found.own.gain(best)
        margin = f"{100 * gain:+.1f} ± {100 * error:.1f} points against {best.name}"
        if found.own.beats(best):
            rows.append(("features", f"they add to the votes: {margin}"))
        elif gain > 1e-9:
            rows.append(("features", f"they add nothing beyond noise to the votes: {margin}"))
        else:
            rows.append(("features", f"they add nothing to the votes: {margin}"))
    if found.own is not None and found.without_clean is not None and used == found.own.name:
        gain, error = found.own.gain(found.without_clean)
        margin = f"{100 * gain:+.1f} ± {100 * error:.1f} points against a fit without them"
        verdict = "they helped" if found.own.beats(found.without_clean) else "no help beyond noise"
        rows.append(("clean rows", f"{verdict}: {margin}"))
    return rows


def callback_settings(config: dict[str, Any]) -> str:
    """The callbacks of a fit and their settings, in one line."""
    parts = []
    for callback in config.get("callbacks", ()):
        settings = {name: value for name, value in callback.items() if name != "name" and value is not None}
        shown = ", ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in settings.items())
        parts.append(f"{callback['name']} ({shown})" if shown else callback["name"])
    return "; ".join(parts) or "none"


def source_rows(model: PartialLabelEstimator) -> list[tuple[str, str]]:
    """What each source is worth, where the model knows."""
    report: Any = getattr(model, "sources_report", lambda: None)()
    if not report:
        return []
    worth = ", ".join(f"{name} {value:.2f}" for name, value in report["exponents"].items())
    rows = [("exponents", worth + ("" if report["judges"] else " (not learned: no clean rows with their own votes)"))]
    if reliability := report.get("reliability"):
        ranked = sorted(reliability.items(), key=lambda item: -item[1])
        shown = [f"{name} {value:.0%}" for name, value in (ranked if len(ranked) <= 8 else [*ranked[:4], *ranked[-4:]])]
        rows.append(("says the truth", ", ".join(shown)))
    return rows


def covering_warning(covering: float, average_candidates: float, n_classes: int) -> str | None:
    """A warning where few predictions lie in their row's set; None where enough do."""
    chance = average_candidates / n_classes
    if chance >= 1 or (covering - chance) / (1 - chance) >= LOW_COVERING:
        return None
    return (
        f"only {covering:.0%} of the predictions lie in the row's candidate set ({chance:.0%} would by chance): the "
        "features say little of the labels, or were not fitted well: try --epochs, another --backbone or --scale"
    )


def show_summary(
    data: TableDataset,
    model: PartialLabelEstimator,
    out: Path,
    replaced: str | None,
    used: str,
    comparison: Comparison | None,
    estimates: Estimates | None,
    as_json: bool,
) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from mogd.compressed import largest, row_blocks

    facts = data.describe()
    n_clean = 0 if data.clean_y is None else len(data.clean_y)
    covering = model.score(data.X, data.candidates)
    confidence = np.concatenate([largest(block)[1] for block in row_blocks(model.confidence_)]).mean()
    if as_json:
        figures = {"covering_rate": covering, "mean_confidence": float(confidence)}
        chosen = {"method": used, "config": getattr(model, "config_", None)}
        typer.echo(json.dumps({**facts, "n_clean": n_clean, **figures, **chosen, "model": str(out)}, indent=2))
        return
    table = Table(show_header=False, box=None)
    table.add_row("rows", f"{facts['n_rows']} with candidates, {n_clean} clean")
    table.add_row("features", str(facts["n_features"]))
    table.add_row("classes", str(facts["n_classes"]))
    backbone = getattr(model, "backbone_", None)
    table.add_row("method", f"{used}, {backbone}" if isinstance(backbone, str) else used)
    for name, said in estimate_rows(estimates) if estimates else []:
        table.add_row(name, said)
    config = getattr(model, "config_", {})
    if "callbacks" in config:
        table.add_row("callbacks", callback_settings(config))
    table.add_row("average candidates", f"{facts['average_candidates']:.2f}")
    table.add_row("covering rate", f"{covering:.3f} of the predictions lie in the row's candidate set")
    table.add_row("mean confidence", f"{confidence:.3f}")
    advice = model.clean_set_advice() if hasattr(model, "clean_set_advice") else None
    if advice is not None:
        table.add_row("meta step", str(advice))
    for name, said in [*source_rows(model), *(comparison_rows(used, comparison) if comparison else [])]:
        table.add_row(name, said)
    table.add_row("model", str(out) if replaced is None else f"{out}, in place of the one that was there ({replaced})")
    Console().print(table)
    if warning := covering_warning(covering, facts["average_candidates"], facts["n_classes"]):
        typer.secho(f"warning: {warning}", err=True, fg=typer.colors.RED)
    typer.echo(f"next: mogd disambiguate {out} --out resolved.csv; mogd predict {out} NEW_TABLE --out labels.csv")
