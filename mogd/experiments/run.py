"""Run the cells of a recipe beside each other, by joblib, and append one record for each as it ends.

Workers compute; the parent alone writes. A run that was killed goes on where it stopped: what is in the file is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from mogd.experiments.data import is_here, needs_network, split_of
from mogd.experiments.provenance import code_of, commit
from mogd.experiments.record import Record, RecordFile, read_records
from mogd.experiments.spec import Cell, Recipe

BACKENDS = ("loky", "dask", "ray")


@dataclass(frozen=True)
class Plan:
    """What is to be run, what is done already, and which data sets are not on this machine."""

    path: Path
    todo: list[Cell]
    done: int
    missing: dict[str, int]  # data set -> cells left out
    seconds: float | None  # expected sum over the cells to do; None where nothing is known yet


def records_path(recipe: Recipe, folder: str | Path = "results") -> Path:
    return Path(folder) / f"{recipe.name}-{recipe.scale}.jsonl"


def plan(
    recipe: Recipe,
    folder: str | Path = "results",
    *,
    only: str = "",
    retry_failed: bool = False,
    rerun_changed: bool = False,
) -> Plan:
    """Compare a recipe with the records that are there already."""
    path = records_path(recipe, folder)
    records = read_records([path]) if path.exists() else []
    settled = set()
    for record in records:
        failed = retry_failed and record["error"] is not None
        changed = rerun_changed and record["code"] != code_of(record)
        if not failed and not changed:
            settled.add(record["key"])
    cells = recipe.cells(only)
    here = {dataset: is_here(dataset) for dataset in {cell.dataset for cell in cells}}
    left_out = [cell.dataset for cell in cells if not here[cell.dataset]]
    present = [cell for cell in cells if here[cell.dataset]]
    todo = [cell for cell in present if cell.key not in settled]
    expected = Expectation(records)
    return Plan(
        path=path,
        todo=todo,
        done=len(present) - len(todo),
        missing={name: left_out.count(name) for name in sorted(set(left_out))},
        seconds=sum(map(expected, todo)) if records else None,
    )


def run(
    plan: Plan, *, jobs: int = 1, backend: str = "loky", address: str | None = None, on_record: Callable[[Record], Any]
) -> None:
    """Run what a plan has to do; `on_record` is called with each record once it is on the disk.

    `address` names the scheduler of a running Dask or Ray cluster; without it a local one with `jobs` workers is made.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    _prepare(plan.todo)
    head, dirty = commit()
    with RecordFile(plan.path) as file:
        for record in _results(plan.todo, jobs, backend, address):
            record |= {"commit": head, "dirty": dirty}
            file.append(record)
            on_record(record)


class Expectation:
    """Seconds that a cell will take, from the records of cells like it."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._sums: dict[tuple[str, ...], list[float]] = {}
        for record in records:
            self.learn(record)

    def learn(self, record: Record) -> None:
        if record["error"] is None:
            for kind in _kinds(record["label"], record["dataset"]):
                total = self._sums.setdefault(kind, [0.0, 0.0])
                total[0] += sum(record["seconds"].values())
                total[1] += 1

    def __call__(self, cell: Cell) -> float:
        for kind in _kinds(cell.label, cell.dataset):
            if kind in self._sums:
                return self._sums[kind][0] / self._sums[kind][1]
        return 0.0


def _kinds(label: str, dataset: str) -> tuple[tuple[str, ...], ...]:
    return (label, dataset), ("label", label), ("dataset", dataset), ()


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
                **({"address": address} if address else {"n_workers": jobs, "threads_per_worker": 1})
            )
            stack.enter_context(client)
            stack.enter_context(parallel_config(backend="dask"))
            yield "generator_unordered"
        elif name == "ray":
            ray = _need("ray", "ray")
            _need("ray.util.joblib", "ray").register_ray()
            where: dict[str, Any] = {"address": address} if address else {"num_cpus": jobs}
            ray.init(**where, log_to_driver=False, logging_level="error")
            stack.callback(ray.shutdown)
            stack.enter_context(parallel_config(backend="ray"))
            yield "list"  # its pool cannot yet give results as they come
        else:
            stack.enter_context(parallel_config(backend="loky", inner_max_num_threads=1))
            yield "generator_unordered"


def _need(module: str, extra: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise RuntimeError(
            f"--backend {extra} needs the package {module.split('.')[0]}: pip install 'mogd[{extra}]'"
        ) from None
