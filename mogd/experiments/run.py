"""Run the cells of a recipe beside each other, by joblib, and append one record for each as it ends.

Workers compute; the parent alone writes. A run that was killed goes on where it stopped: what is in the file is done.
What the present code has computed for one table is not computed again for another; what older code has computed stands
where the present code gives a sample of it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from mogd.algorithms import did_you_mean
from mogd.datasets.sources import SOURCES
from mogd.experiments.data import is_here, needs_network, split_of
from mogd.experiments.provenance import code_of, commit, has_changed
from mogd.experiments.record import Record, RecordFile, count_records, keys_after, read_records
from mogd.experiments.spec import PLACE, Cell, Recipe

BACKENDS = ("loky", "dask", "ray")
# without an address, nobody but this machine is listened to
LOCAL_DASK: dict[str, Any] = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
LOCAL_RAY: dict[str, Any] = {"include_dashboard": False}
RAY_LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}  # the one switch for it, read when ray is imported
FIGURES = ("selected", "metrics", "curve", "confidence_histogram", "error")  # what equal code gives again, bit for bit


@dataclass(frozen=True)
class Plan:
    """What is to be run, what is done already, and which data sets are not on this machine."""

    path: Path
    todo: list[Cell]
    known: list[Record]  # computed for another table by the present code: to be taken over
    samples: list[Sample]  # of what older code has made
    done: int
    failed: int  # of those that are done
    missing: dict[str, int]  # data set -> cells left out
    seconds: float | None  # expected sum over the cells to do; None where nothing is known yet
    expected: Expectation  # of each cell
    seen: int  # records that were in the file


@dataclass(frozen=True)
class Sample:
    """Records of one method and data set by older code: some are made again, and stand for the others."""

    again: dict[str, Record]  # by the cell's key
    others: list[Record]


def records_path(recipe: Recipe, folder: str | Path = "results") -> Path:
    return Path(folder) / f"{recipe.name}-{recipe.scale}.jsonl"


def plan(
    recipe: Recipe,
    folder: str | Path = "results",
    *,
    only: str = "",
    retry_failed: bool = False,
    rerun_changed: bool = False,
    confirm: int = 0,
) -> Plan:
    """Compare a recipe with the records that are there already.

    Of the cells whose code has changed, `confirm` of each method, panel and data set are run again.
    """
    path = records_path(recipe, folder)
    seen = count_records(path)
    _fingerprint.cache_clear()
    records = [r for r in read_records([path]) if _is_of_present_data(r)] if path.exists() else []
    settled = set()
    for record in records:
        failed = retry_failed and record["error"] is not None
        changed = rerun_changed and has_changed(record)
        if not failed and not changed:
            settled.add(record["key"])
    cells = recipe.cells(only)
    if not cells:
        raise ValueError(
            f"no cell of {recipe.name} has the words {only!r} among its panel, data set, method and setting"
        )
    here = {dataset: _is_here(dataset) for dataset in {cell.dataset for cell in cells}}
    left_out = [cell.dataset for cell in cells if not here[cell.dataset]]
    present = [cell for cell in cells if here[cell.dataset]]
    samples = _samples(records, {cell.key for cell in present}, confirm) if confirm and not rerun_changed else []
    settled -= {key for sample in samples for key in sample.again}
    unsettled = [cell for cell in present if cell.key not in settled]
    elsewhere = _computed(sorted(Path(folder).glob("*.jsonl")), {cell.work for cell in unsettled})
    todo = [cell for cell in unsettled if cell.work not in elsewhere]
    known = [_placed(elsewhere[cell.work], cell) for cell in unsettled if cell.work in elsewhere]
    expected = Expectation([*records, *known])
    return Plan(
        path=path,
        todo=todo,
        known=known,
        samples=samples,
        done=len(present) - len(unsettled),
        failed=len({record["key"] for record in records if record["error"]} & settled & {cell.key for cell in present}),
        missing={name: left_out.count(name) for name in sorted(set(left_out))},
        seconds=sum(map(expected, todo)) if records or known else None,
        expected=expected,
        seen=seen,
    )


def run(
    plan: Plan, *, jobs: int = 1, backend: str = "loky", address: str | None = None, on_record: Callable[[Record], Any]
) -> list[Sample]:
    """Run what a plan has to do; `on_record` is called with each record once it is on the disk.

    Returns the mismatched samples, whose other records are left as they are.

    `address` names the scheduler of a running Dask or Ray cluster; without it a local one with `jobs` workers is made.
    """
    head, dirty = commit()
    work = {cell.key: cell.work for cell in plan.todo}
    fresh: dict[str, Record] = {}
    with RecordFile(plan.path) as file:
        meanwhile = keys_after(plan.path, plan.seen)  # by another run, between the plan and the lock
        todo = [cell for cell in plan.todo if cell.key not in meanwhile]
        _prepare(todo)
        for record in plan.known:
            if record["key"] in meanwhile:
                continue
            file.append(record)
            fresh[record["key"]] = record
            on_record(record)
        for record in _results(todo, jobs, backend, address):
            record |= {"work": work[record["key"]], "commit": head, "dirty": dirty}
            file.append(record)
            fresh[record["key"]] = record
            on_record(record)
        mismatched = [
            s for s in plan.samples if any(key not in fresh or _differ(old, fresh[key]) for key, old in s.again.items())
        ]
        for sample in plan.samples:
            for old in sample.others if sample not in mismatched else []:
                file.append(old | {"confirmed": code_of(old)})
    return mismatched


def _samples(records: Sequence[Record], wanted: set[str], size: int) -> list[Sample]:
    """For each method, panel and data set, `size` of the records by older code, evenly from first to last."""
    kinds: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        if record["key"] in wanted and record["error"] is None and has_changed(record):
            kinds.setdefault((record["panel"], record["dataset"], record["label"]), []).append(record)
    samples = []
    for group in kinds.values():
        chosen = {len(group) * i // size for i in range(size)} if size < len(group) else set(range(len(group)))
        again = {record["key"]: record for i, record in enumerate(group) if i in chosen}
        samples.append(Sample(again, [record for i, record in enumerate(group) if i not in chosen]))
    return samples


def _differ(old: Record, new: Record) -> bool:
    return any(old[name] != json.loads(json.dumps(new[name])) for name in FIGURES)


def _is_here(dataset: str) -> bool:
    """Whether it is on this machine; a name that is neither known nor a file is an error."""
    here = is_here(dataset)
    if not here and dataset not in SOURCES:
        known = ", ".join(SOURCES)
        raise ValueError(
            f"a data set must be a saved file or one of {known}; got {dataset!r}{did_you_mean(dataset, SOURCES)}"
        )
    return here


def _is_of_present_data(record: Record) -> bool:
    """False where a data set that is a user's file has been changed since."""
    known, name = record["data_fingerprint"], record["dataset"]
    return known is None or name in SOURCES or not is_here(name) or known == _fingerprint(name)


@cache
def _fingerprint(path: str) -> str:
    from mogd.datasets import PartialDataset

    return PartialDataset.load(path).fingerprint


def _computed(paths: Sequence[Path], wanted: set[str]) -> dict[str, Record]:
    """Records of the wanted work that the present code itself has made, for whatever table: one that a sample has
    confirmed must not confirm others.
    """
    found = {}
    for record in read_records(paths) if wanted else []:
        done = record.get("work") in wanted and record["error"] is None and record["code"] == code_of(record)
        if done and _is_of_present_data(record):
            found[record["work"]] = record
    return found


def _placed(record: Record, cell: Cell) -> Record:
    """A record that was made for one table, in the place that a cell has in another."""
    return record | {name: getattr(cell, name) for name in PLACE} | {"key": cell.key}


class Expectation:
    """Seconds that a cell will take, from the records of cells like it."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._sums: dict[tuple[str, ...], list[float]] = {}
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        if record["error"] is None:
            for kind in _kinds(record["panel"], record["label"], record["dataset"]):
                total = self._sums.setdefault(kind, [0.0, 0.0])
                total[0] += sum(record["seconds"].values())
                total[1] += 1

    def __call__(self, cell: Cell) -> float:
        for kind in _kinds(cell.panel, cell.label, cell.dataset):
            if kind in self._sums:
                return self._sums[kind][0] / self._sums[kind][1]
        return 0.0


def _kinds(panel: str, label: str, dataset: str) -> tuple[tuple[str, ...], ...]:
    """From the nearest to the farthest: another panel may have another network, so that it says least."""
    within = ((label, dataset), ("label", label), ("dataset", dataset), ())
    return (*((panel, *kind) for kind in within), *within)


def _prepare(cells: Sequence[Cell]) -> None:
    """Train the networks behind instance-dependent candidates once, before several workers would want each."""
    from mogd.experiments.cell import one_thread

    wanted = {(cell.dataset, cell.seed, cell.rows): cell for cell in cells if needs_network(cell)}
    for cell in wanted.values():
        with one_thread(with_torch=True):
            split_of(cell)


def _results(cells: Sequence[Cell], jobs: int, backend: str, address: str | None) -> Iterator[Record]:
    from joblib import Parallel, delayed

    from mogd.experiments.cell import run_cell

    if jobs == 1 and backend == "loky":
        yield from map(run_cell, cells)
        return
    with _backend(backend, jobs, address) as return_as, Parallel(jobs, batch_size=1, return_as=return_as) as parallel:
        waiting = iter(cells)
        size = 4 * jobs if return_as == "list" else len(cells)  # without generators, a wave at a time
        while wave := list(islice(waiting, size)):
            yield from parallel(delayed(run_cell)(cell) for cell in wave)


@contextmanager
def _backend(name: str, jobs: int, address: str | None) -> Iterator[str]:
    """joblib's own backend, configured; what it yields is how `Parallel` can return results from it."""
    from joblib import parallel_config

    with ExitStack() as stack:
        if name == "dask":
            client = _need("distributed", "dask").Client(
                **({"address": address} if address else LOCAL_DASK | {"n_workers": jobs})
            )
            stack.enter_context(client)
            stack.enter_context(parallel_config(backend="dask"))
            yield "generator_unordered"
        elif name == "ray":
            os.environ.update({} if address else RAY_LOOPBACK)
            ray = _need("ray", "ray")
            _need("ray.util.joblib", "ray").register_ray()
            where: dict[str, Any] = {"address": address} if address else LOCAL_RAY | {"num_cpus": jobs}
            ray.init(**where, log_to_driver=False, logging_level="error")
            stack.callback(ray.shutdown)
            stack.enter_context(parallel_config(backend="ray"))
            yield "list"  # its pool cannot yet give results as they come
        elif name == "loky":
            stack.enter_context(parallel_config(backend="loky", inner_max_num_threads=1))
            yield "generator_unordered"
        else:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {name!r}")


def _need(module: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise RuntimeError(
            f"--backend {extra} needs the package {module.split('.')[0]}: pip install 'mogd[{extra}]'"
        ) from None
