"""The tables that describe the data sets: what was measured on their files, beside what the paper says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mogd.datasets.sources import SOURCES
from mogd.experiments.record import Record
from mogd.experiments.spec import DESCRIBE, command
from mogd.experiments.summary import characteristics
from mogd.report import names
from mogd.report.table import Cell, Table


def fact_tables(records: Sequence[Record]) -> dict[tuple[str, str, str], Table]:
    """A table for each recipe, scale and panel that only measures."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record["algorithm"] == DESCRIBE:
            groups.setdefault((record["recipe"], record["scale"], record["panel"]), []).append(record)
    return {place: _table(*place, own) for place, own in groups.items()}


def _table(recipe: str, scale: str, panel: str, records: Sequence[Record]) -> Table:
    measured = characteristics(records).get(panel, {})
    facts = list(dict.fromkeys(fact for values in measured.values() for fact in values))
    where = {"recipe": recipe, "scale": scale, "panel": panel}
    return Table(
        identity=names.identity(recipe, scale, panel, "facts"),
        title=names.panel_title(recipe, scale, panel),
        columns=["data set", *(names.FACTS.get(fact, fact.replace("_", " ")) for fact in facts)],
        rows=[(names.dataset_title(d), [_fact(where, d, f, values) for f in facts]) for d, values in measured.items()],
        caption="As measured on the files.",
        footnotes=[f"{names.dataset_title(r['dataset'])} failed: {r['error']}" for r in records if r["error"]],
        command=command(recipe, scale),
    )


def _fact(where: Mapping[str, str], dataset: str, fact: str, values: Mapping[str, float]) -> Cell | None:
    if fact not in values:
        return None
    printed = _printed(dataset).get(fact)
    value = values[fact]
    data = {**where, "metric": fact, "dataset": dataset, "mean": value, "paper_mean": printed}
    return Cell(_count(value), paper=None if printed is None else _count(printed), data=data)


def _printed(dataset: str) -> dict[str, float | None]:
    if dataset not in SOURCES:
        return {}
    s = SOURCES[dataset]
    sizes = {"n_rows": s.n, "n_train": s.n, "n_test": s.n_test or None, "n_features": s.n_features}
    return {**sizes, "n_classes": s.n_classes, "average_candidates": s.average_candidates}


def _count(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
