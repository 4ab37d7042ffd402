"""From records to what the charts draw and what the page says of the runs; means over runs, nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from mogd.experiments.record import Record
from mogd.report.charts import Line

SETTING_NAMES = {"q": "q, the rate of false candidates", "n_clean": "M, the number of clean rows"}


def place(record: Record) -> str:
    """The column a record belongs to: its data set and setting, as a person writes them."""
    setting = ", ".join(f"{name} = {_value(value)}" for name, value in record["setting"].items())
    return f"{record['dataset']}, {setting}" if setting else str(record["dataset"])


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def by_place(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by data set and setting, in order of appearance."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[place(record)].append(record)
    return dict(found)


def curves(records: Iterable[Record]) -> list[Line]:
    """Test accuracy over epochs, one line per label: the mean of the runs at each epoch that all of them recorded."""
    lines = []
    for label, runs in _by_label(r for r in records if r.get("curve")).items():
        epochs = [{p["epoch"]: p["test_accuracy"] for p in run["curve"] if "test_accuracy" in p} for run in runs]
        shared = sorted(set.intersection(*(set(points) for points in epochs)))
        if len(shared) > 1:
            lines.append(Line(label, shared, [100 * fmean(points[epoch] for points in epochs) for epoch in shared]))
    return lines


def histograms(records: Iterable[Record]) -> dict[str, list[float]]:
    """The share of training rows in each bin of top confidence, all runs of a label together."""
    shares = {}
    for label, runs in _by_label(r for r in records if r.get("confidence_histogram")).items():
        counts = [sum(column) for column in zip(*(run["confidence_histogram"] for run in runs), strict=True)]
        if total := sum(counts):
            shares[label] = [count / total for count in counts]
    return shares


def swept(records: Sequence[Record]) -> list[str]:
    """The settings that take at least two numbers: each makes a chart."""
    values: dict[str, set[Any]] = defaultdict(set)
    for record in records:
        for name, value in record["setting"].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                values[name].add(value)
    return [name for name, seen in values.items() if len(seen) > 1]


@dataclass(frozen=True)
class Origin:
    """Runs that share code, versions and machine."""

    recipe: str
    scale: str
    commit: str
    dirty: bool
    host: str
    versions: str
    runs: int
    seconds: float
    first: str
    last: str


def origins(records: Iterable[Record]) -> list[Origin]:
    """What was run where and when, a line for each recipe, commit and machine."""
    groups: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for r in records:
        identity = (r["recipe"], r["scale"], r.get("commit") or "unknown", bool(r.get("dirty")))
        groups[(*identity, _told(r.get("host")), _told(r.get("versions")))].append(r)
    found = []
    for identity, runs in groups.items():
        started = sorted(r["started"] for r in runs if r.get("started"))
        span = (started[0], started[-1]) if started else ("unknown", "unknown")
        found.append(Origin(*identity, len(runs), sum(_seconds(r) for r in runs), *span))
    return found


def _seconds(record: Record) -> float:
    return sum((record.get("seconds") or {}).values())


def _told(facts: Mapping[str, Any] | None) -> str:
    return ", ".join(f"{name} {value}" for name, value in (facts or {}).items())


def _by_label(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[record["label"]].append(record)
    return dict(found)
