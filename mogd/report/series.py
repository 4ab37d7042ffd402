"""From records to what the charts draw and what the page says of the runs; means over runs, nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from mogd.experiments.record import Record
from mogd.report.charts import Line
from mogd.report.names import column_title


def by_place(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by data set and setting, in order of appearance."""
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[column_title(record["dataset"], record["setting"])].append(record)
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
        code = (r["recipe"], r["scale"], r.get("commit") or "unknown", bool(r.get("dirty")))
        groups[(*code, _machine(r.get("host") or {}), _versions(r.get("versions") or {}))].append(r)
    found = []
    for (recipe, scale, commit, dirty, host, versions), runs in groups.items():
        started = sorted(r["started"] for r in runs if r.get("started"))
        first, last = (started[0], started[-1]) if started else ("unknown", "unknown")
        seconds = sum(_seconds(r) for r in runs)
        found.append(Origin(recipe, scale, commit, dirty, host, versions, len(runs), seconds, first, last))
    return found


def _seconds(record: Record) -> float:
    return sum((record.get("seconds") or {}).values())


def _machine(host: Mapping[str, Any]) -> str:
    return f"{host.get('system', 'unknown')}, {host.get('cpus', '?')} cores, {host.get('threads', '?')} thread a run"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in versions.items())


def _by_label(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        found[record["label"]].append(record)
    return dict(found)
