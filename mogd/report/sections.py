"""From records to the sections of a report: one for each table of a recipe, before it has a format."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from mogd.experiments.paper import PaperFigures
from mogd.experiments.record import Record
from mogd.experiments.spec import DESCRIBE
from mogd.experiments.summary import Entry, Summary, tables
from mogd.report import names
from mogd.report.charts import Line
from mogd.report.evidence import Ranking, paired_tables, ranking
from mogd.report.facts import fact_tables
from mogd.report.table import Cell, Table

PLACES = {1: "best", 2: "second"}
METRICS = {
    "accuracy": "Test accuracy",
    "accuracy_views": "Test accuracy with test-time views",
    "disambiguation": "Share of training rows resolved to their true label",
}


@dataclass(frozen=True)
class Sweep:
    """Accuracy over a setting on one data set."""

    title: str
    axis: str
    lines: Sequence[Line]


@dataclass(frozen=True)
class Section:
    """One table of a recipe at one scale, and what belongs to it."""

    identity: str
    recipe: str
    scale: str
    panel: str
    title: str
    table: Table
    records: Sequence[Record]
    more: Sequence[Table] = ()  # the same table for other metrics
    tests: Sequence[Table] = ()
    failures: Table | None = None
    ranking: Ranking | None = None
    sweeps: Sequence[Sweep] = field(default=())
    summary: Summary | None = None


def sections(records: Sequence[Record], paper: PaperFigures | None = None, *, check_code: bool = True) -> list[Section]:
    """The sections of a report in the paper's order, ablations last."""
    found = [
        Section(names.identity(*place), *place, names.panel_title(*place), table, [])
        for place, table in fact_tables(records).items()
    ]
    beside = {
        (metric, s.recipe, s.scale, s.panel): s
        for metric in METRICS
        if metric != "accuracy"
        for s in tables([r for r in records if _has(r, metric)], metric, check_code=check_code)
    }
    for summary in tables(records, paper=paper, check_code=check_code):
        place = (summary.recipe, summary.scale, summary.panel)
        own = [r for r in records if (r["recipe"], r["scale"], r["panel"]) == place and r["algorithm"] != DESCRIBE]
        own.sort(key=lambda r: r["order"])  # cells end in any order
        ours = next(filter(names.is_ours, summary.labels), None)
        found.append(
            Section(
                identity=names.identity(*place),
                recipe=summary.recipe,
                scale=summary.scale,
                panel=summary.panel,
                title=names.panel_title(*place),
                table=_table(summary),
                records=own,
                more=[_table(beside[metric, *place]) for metric in METRICS if (metric, *place) in beside],
                tests=paired_tables(own, ours, names.identity(*place)) if ours else [],
                failures=_failures(summary),
                ranking=ranking(own),
                sweeps=_sweeps(summary),
                summary=summary,
            )
        )
    return sorted(found, key=lambda section: names.place(section.recipe))


def ordered_labels(records: Sequence[Record]) -> list[str]:
    """Every method of the report, ours first: the order in which styles are given."""
    ranked = sorted(records, key=lambda r: (not names.is_ours(r["label"]), r["label"] != names.OURS, r["order"][1]))
    return list(dict.fromkeys(r["label"] for r in ranked))


def _has(record: Record, metric: str) -> bool:
    return (record["metrics"] or {}).get(metric) is not None


def _table(summary: Summary) -> Table:
    identity = names.identity(summary.recipe, summary.scale, summary.panel, summary.metric)
    one = len({column.dataset for column in summary.columns}) == 1 and len(summary.columns) > 1
    heads = [
        names.setting_title(c.setting) if one else names.column_title(c.dataset, c.setting) for c in summary.columns
    ]
    (common, _), *others = Counter(entry.n for entry in summary.entries.values() if entry.n).most_common() or [(0, 0)]
    ranked = bool(summary.ranks) and len(summary.columns) > 1
    rows = []
    for label in summary.labels:
        cells = [_cell(summary, label, i, common) for i in range(len(summary.columns))]
        rank = [Cell(f"{summary.ranks[label]:.2f}") if label in summary.ranks else None] if ranked else []
        rows.append((label, [*cells, *rank]))
    where = f" on {names.dataset_title(summary.columns[0].dataset)}" if one else ""
    title = names.panel_title(summary.recipe, summary.scale, summary.panel)
    return Table(
        identity=identity,
        title=title if summary.metric == "accuracy" else METRICS[summary.metric],
        columns=["method", *heads, *([f"average rank of {len(summary.ranks)}"] if ranked else [])],
        rows=rows,
        caption=f"{METRICS[summary.metric]}{where} in %, {_spread(common, bool(others))}.",
        command=summary.command,
        footnotes=_footnotes(summary),
    )


def _footnotes(summary: Summary) -> list[str]:
    changed = sum(entry.changed for entry in summary.entries.values())
    confirmed = sum(entry.confirmed for entry in summary.entries.values())
    runs = sum(entry.n + entry.failed for entry in summary.entries.values())
    sources = sorted({entry.paper.source for entry in summary.entries.values() if entry.paper})
    notes = (
        [f"† {changed} of the table's {runs} runs were made before the code they depend on was changed."]
        if changed
        else []
    )
    if confirmed:
        notes.append(
            f"{confirmed} of the table's {runs} runs are older than a change of their code that gave a sample of them "
            "again to the last digit."
        )
    return notes + ([f"The paper's figures are from its table {', '.join(sources)}."] if sources else [])


def _cell(summary: Summary, label: str, column: int, common: int) -> Cell | None:
    entry = summary.entries.get((label, column))
    if entry is None:
        return None
    return Cell(
        text=_figure(entry),
        mark=PLACES.get(entry.place or 0) if _contested(summary, column) else None,
        paper=f"{entry.paper.mean:.2f} ± {entry.paper.std:.2f}" if entry.paper else None,
        notes=() if entry.n in (common, 0) else (_runs(entry.n),),
        warnings=(f"{entry.failed} of {entry.n + entry.failed} failed",) if entry.failed else (),
        stale=entry.changed > 0,
        data=plain_cell(summary, label, column, entry),
    )


def _contested(summary: Summary, column: int) -> bool:
    """Whether there is anything to be best of."""
    return sum(entry.place is not None for (_, i), entry in summary.entries.items() if i == column) > 1


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _spread(common: int, with_others: bool) -> str:
    """What stands behind the figures of a table, of which most cells have `common` runs."""
    spread = "of a single run" if common == 1 else f"mean ± standard deviation over {_runs(common)}"
    return spread + (" where nothing else is said" if with_others else "")


def _figure(entry: Entry) -> str:
    if entry.mean is None:
        return "failed"
    return f"{100 * entry.mean:.2f}" + ("" if entry.std is None else f" ± {100 * entry.std:.2f}")


def plain_cell(summary: Summary, label: str, column: int, entry: Entry) -> dict[str, object]:
    """A cell of a table as plain values, for CSV and JSON."""
    where = summary.columns[column]
    return {
        "recipe": summary.recipe,
        "scale": summary.scale,
        "panel": summary.panel,
        "metric": summary.metric,
        "dataset": where.dataset,
        "setting": json.dumps(dict(where.setting), sort_keys=True),
        "algorithm": summary.algorithms[label],
        "label": label,
        "mean": entry.mean,
        "std": entry.std,
        "runs": entry.n,
        "failed": entry.failed,
        "code_changed": entry.changed,
        "code_confirmed": entry.confirmed,
        "place": entry.place,
        "average_rank": summary.ranks.get(label),
        "paper_mean": entry.paper.mean / 100 if entry.paper else None,
        "paper_std": entry.paper.std / 100 if entry.paper else None,
        "paper_source": entry.paper.source if entry.paper else None,
        "command": summary.command,
    }


def _failures(summary: Summary) -> Table | None:
    rows = []
    for (label, i), entry in summary.entries.items():
        column = names.column_title(summary.columns[i].dataset, summary.columns[i].setting)
        if entry.failed:
            rows.append((label, [Cell(column), Cell(str(entry.failed)), Cell("; ".join(entry.errors))]))
    if not rows:
        return None
    identity = names.identity(summary.recipe, summary.scale, summary.panel, "failures")
    caption = "Cells whose runs ended in an error; the others went on."
    return Table(identity, "Failed runs", ["method", "on", "runs", "error"], rows, caption, words=True)


def _sweeps(summary: Summary) -> list[Sweep]:
    """A chart for each setting that takes two numbers or more, on each data set, all else equal."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for i, column in enumerate(summary.columns):
        for name, value in column.setting.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                rest = names.column_title(column.dataset, {k: v for k, v in column.setting.items() if k != name})
                found.setdefault((name, column.dataset, rest), []).append(i)
    charts = []
    for (name, _, rest), columns in found.items():
        lines = [line for label in summary.labels if (line := _line(summary, label, name, columns))]
        if len(columns) > 1 and lines:
            short = names.SETTINGS.get(name, name)
            charts.append(Sweep(f"Accuracy over {short}: {rest}", names.AXES.get(name, name), lines))
    return charts


def _line(summary: Summary, label: str, name: str, columns: Sequence[int]) -> Line | None:
    points = []
    for i in columns:
        entry = summary.entries.get((label, i))
        if entry is not None and entry.mean is not None:
            points.append((float(summary.columns[i].setting[name]), 100 * entry.mean, 100 * (entry.std or 0.0)))
    if len(points) < 2:
        return None
    x, y, error = zip(*sorted(points), strict=True)
    return Line(label, x, y, error)
