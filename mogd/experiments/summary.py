"""From records to what a table says: mean ± std, number of runs, ranks, best and second best, the paper's figure.

Pure functions; nothing here prints, trains or imports torch. Accuracies are shares from 0 to 1, the paper's percents.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import rankdata

from mogd.experiments.paper import Figure, PaperFigures
from mogd.experiments.provenance import has_changed
from mogd.experiments.record import Record
from mogd.experiments.spec import DESCRIBE, command

REFERENCE = "supervised"  # shown, but not ranked: it is given the true labels


@dataclass(frozen=True)
class Column:
    """A data set at one setting."""

    dataset: str
    setting: Mapping[str, Any]

    @property
    def name(self) -> str:
        return ", ".join([self.dataset, *(f"{key} = {value}" for key, value in self.setting.items())])


@dataclass(frozen=True)
class Entry:
    """One cell of a table: what the runs of one method on one column gave."""

    values: tuple[float, ...]
    failed: int = 0
    errors: tuple[str, ...] = ()
    changed: int = 0  # runs whose code has changed since
    confirmed: int = 0  # runs whose code has changed since, but gave the figures of a sample of them again
    paper: Figure | None = None
    place: int | None = None  # 1 for the best of the column, 2 for the second best

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.values)) if self.values else None

    @property
    def std(self) -> float | None:
        """Over the runs, with n − 1; None for a single run."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def text(self) -> str:
        """As in a table: percent, mean ± std, then what a reader should know."""
        if self.mean is None:
            return "failed" if self.failed else "–"
        spread = "" if self.std is None else f" ± {100 * self.std:.2f}"
        marks = {1: " (1st)", 2: " (2nd)"}.get(self.place or 0, "")
        return f"{100 * self.mean:.2f}{spread}{marks}{' †' if self.changed else ''}{' (!)' if self.failed else ''}"


@dataclass(frozen=True)
class Summary:
    """One table: methods down, data sets and settings across."""

    recipe: str
    scale: str
    panel: str
    metric: str
    labels: list[str]  # in the order of the recipe
    algorithms: dict[str, str]  # label -> algorithm
    columns: list[Column]
    entries: dict[tuple[str, int], Entry]  # (label, number of the column)
    ranks: dict[str, float] = field(default_factory=dict)  # average over the columns; best is 1

    @property
    def column_names(self) -> list[str]:
        return [column.name for column in self.columns]

    def row(self, label: str) -> list[Entry]:
        return [self.entries.get((label, i), Entry(())) for i in range(len(self.columns))]

    @property
    def command(self) -> str:
        """What remakes it."""
        return command(self.recipe, self.scale)


def tables(
    records: Sequence[Record], metric: str = "accuracy", paper: PaperFigures | None = None, *, check_code: bool = True
) -> list[Summary]:
    """A table for each recipe, scale and panel among the records, without the measured characteristics."""
    paper = PaperFigures() if paper is None else paper
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record["algorithm"] != DESCRIBE:
            groups[record["recipe"], record["scale"], record["panel"]].append(record)
    return [_table(*place, group, metric, paper, check_code) for place, group in groups.items()]


def characteristics(records: Sequence[Record]) -> dict[str, dict[str, dict[str, float]]]:
    """Panel -> data set -> what was measured of it."""
    found: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for record in records:
        if record["algorithm"] == DESCRIBE and record["metrics"] is not None:
            found[record["panel"]][record["dataset"]] = record["metrics"]
    return dict(found)


def _table(
    recipe: str, scale: str, panel: str, records: list[Record], metric: str, paper: PaperFigures, check_code: bool
) -> Summary:
    records = sorted(records, key=lambda record: record["order"][1])
    columns: dict[tuple[str, str], Column] = {}
    algorithms: dict[str, str] = {}
    cells: dict[tuple[str, tuple[str, str]], list[Record]] = defaultdict(list)
    for record in records:
        place = column_key(record)
        columns.setdefault(place, Column(record["dataset"], record["setting"]))
        algorithms.setdefault(record["label"], record["algorithm"])
        cells[record["label"], place].append(record)
    first = {column_key(record): record["order"][0] for record in records}
    order = sorted(columns, key=lambda place: first[place])
    entries = {
        (label, order.index(place)): _entry(group, columns[place], algorithms[label], metric, paper, check_code)
        for (label, place), group in cells.items()
    }
    summary = Summary(
        recipe,
        scale,
        panel,
        metric,
        list(algorithms),
        algorithms,
        [columns[p] for p in order],
        _placed(entries, algorithms),
    )
    summary.ranks.update(average_ranks(summary))
    return summary


def column_key(record: Record) -> tuple[str, str]:
    return record["dataset"], json.dumps(record["setting"], sort_keys=True)


def _entry(
    group: list[Record], column: Column, algorithm: str, metric: str, paper: PaperFigures, check_code: bool
) -> Entry:
    group = sorted(group, key=lambda r: (r["repetition"], r["fold"] or 0))
    found = [(r["metrics"] or {}).get(metric) for r in group]
    errors = [r["error"] for r in group if r["error"] is not None]
    return Entry(
        values=tuple(value for value in found if value is not None),
        failed=len(errors),
        errors=tuple(dict.fromkeys(errors)),
        changed=sum(map(has_changed, group)) if check_code else 0,
        confirmed=sum("confirmed" in r and not has_changed(r) for r in group) if check_code else 0,
        paper=paper.find(group[0]["panel"], column.dataset, dict(column.setting), algorithm, group[0]["label"])
        if metric == "accuracy"
        else None,
    )


def _placed(entries: dict[tuple[str, int], Entry], algorithms: dict[str, str]) -> dict[tuple[str, int], Entry]:
    """The same entries with the best and the second best of each column marked; equal means share a place."""
    from dataclasses import replace

    placed = dict(entries)
    for column in {number for _, number in entries}:
        ranked = {
            place: entry.mean
            for place, entry in entries.items()
            if place[1] == column and entry.mean is not None and algorithms[place[0]] != REFERENCE
        }
        levels = sorted(set(ranked.values()), reverse=True)[:2]
        for place, mean in ranked.items():
            if mean in levels:
                placed[place] = replace(entries[place], place=levels.index(mean) + 1)
    return placed


def average_ranks(summary: Summary) -> dict[str, float]:
    """The average rank over the columns of every method that has a figure in each; ties share their ranks."""
    labels = [
        label
        for label in summary.labels
        if summary.algorithms[label] != REFERENCE and all(entry.mean is not None for entry in summary.row(label))
    ]
    if len(labels) < 2:
        return {}
    means = np.array([[entry.mean for entry in summary.row(label)] for label in labels])
    ranks = np.apply_along_axis(rankdata, 0, -means).mean(axis=1)
    return dict(zip(labels, ranks.tolist(), strict=True))
