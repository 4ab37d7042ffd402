"""`mogd bench`: run a recipe, cell by cell, and show what came out."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mogd.cli import app
from mogd.cli.guarantee import AsJson

if TYPE_CHECKING:
    from mogd.experiments.run import Plan, Sample
    from mogd.experiments.spec import Recipe

FIRST = ("characteristics", "real-world", "fashion-linear", "instance-dependent")  # the quick ones, then by name


@app.command()
def bench(
    recipe: str = typer.Argument(help="A recipe: a TOML file, or its name in the folder benchmarks or the library."),
    scale: str = typer.Option(
        "laptop", help="laptop, overnight (images) or paper: how much data, how many epochs and seeds."
    ),
    jobs: int = typer.Option(0, "--jobs", "-j", help="Cells that run beside each other; 0 takes every core."),
    backend: str = typer.Option("loky", help="loky (processes here), dask or ray, by joblib."),
    address: str = typer.Option("", help="A running Dask scheduler or Ray cluster; without it a local one is made."),
    only: str = typer.Option("", help="Run cells with these words (data set, method, label, setting); -word excludes."),
    out: str = typer.Option("results", help="The folder of the records."),
    retry_failed: bool = typer.Option(False, "--retry-failed", help="Run failed cells again."),
    rerun_changed: bool = typer.Option(False, "--rerun-changed", help="Run cells again whose code has changed since."),
    confirm: int = typer.Option(
        0,
        help="Of cells whose code has changed since, run this many of each method, panel and data set again; where "
        "their figures come out the same to the last digit, the others stand.",
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Show the plan and the figures so far; run nothing."),
    as_json: AsJson = False,
) -> None:
    """Run a recipe: every cell leaves one record, and a run that was stopped goes on where it was."""
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        path = _bench(recipe, scale, jobs, backend, address, only, out, retry_failed, rerun_changed, confirm, dry_run)
    if as_json:
        typer.echo(json.dumps(_figures(path), indent=2))


@app.command()
def reproduce(
    scale: str = typer.Option("laptop", help="The scale of every recipe."),
    jobs: int = typer.Option(0, "--jobs", "-j", help="Cells that run beside each other; 0 takes every core."),
    backend: str = typer.Option("loky", help="loky (processes here), dask or ray, by joblib."),
    out: str = typer.Option("results", help="The folder of the records."),
) -> None:
    """Run every recipe in the folder benchmarks, then write report.html and docs/results.md from the records."""
    from mogd.cli.report import report

    names = sorted(path.stem for path in Path("benchmarks").glob("*.toml") if path.stem != "paper")
    if not names:
        raise FileNotFoundError("no recipes in the folder benchmarks: run this in the folder of the project")
    for name in sorted(names, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        _bench(name, scale, jobs, backend, "", "", out, False, False, 0, False)
    results = sorted(Path(out).glob(f"*-{scale}.jsonl"))
    notes, pages = Path("docs/results-notes.md"), Path("docs/methods")
    report(results, Path("report.html"), "html", notes, None, None)
    report(results, Path("docs/results.md"), "md", notes, None, pages)


def _bench(
    recipe: str,
    scale: str,
    jobs: int,
    backend: str,
    address: str,
    only: str,
    out: str,
    retry_failed: bool,
    rerun_changed: bool,
    confirm: int,
    dry_run: bool,
) -> Path:
    from mogd.experiments.run import BACKENDS, run
    from mogd.experiments.run import plan as make_plan
    from mogd.experiments.spec import find_recipe, load_recipe

    if backend not in BACKENDS:
        raise ValueError(f"--backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    if jobs < 0:
        raise ValueError(f"--jobs must be 0 or more; got {jobs}")
    if confirm < 0:
        raise ValueError(f"--confirm must be 0 or more; got {confirm}")
    chosen = load_recipe(find_recipe(recipe), scale)
    jobs = jobs or _cores()
    plan = make_plan(chosen, out, only=only, retry_failed=retry_failed, rerun_changed=rerun_changed, confirm=confirm)
    _say_plan(chosen, plan, jobs)
    failed = 0
    if (plan.todo or plan.known) and not dry_run:
        with _progress(plan, jobs) as advance:
            mismatched = run(plan, jobs=jobs, backend=backend, address=address or None, on_record=advance)
        failed = advance.failed
        _say_confirmed(plan.samples, mismatched)
    if plan.path.exists():
        _say_results(chosen, plan, only)
    if failed and failed == len(plan.todo):
        raise RuntimeError("every cell failed: mend the cause, then give the command again with --retry-failed")
    return plan.path


def _figures(path: Path) -> list[dict[str, Any]]:
    """Every cell of the tables that the records of a file make."""
    from mogd.experiments.record import read_records
    from mogd.experiments.summary import tables
    from mogd.report.sections import plain_cell

    summaries = tables(read_records([path])) if path.exists() else []
    return [plain_cell(s, label, i, entry) for s in summaries for (label, i), entry in s.entries.items()]


def _cores() -> int:
    from joblib import cpu_count

    return cpu_count()


def _say_plan(recipe: Recipe, plan: Plan, jobs: int) -> None:
    typer.echo(f"{recipe.title} ({recipe.name}, scale {recipe.scale})")
    about = "" if plan.seconds is None or not plan.todo else f", about {_duration(plan.seconds / jobs)}"
    known = f", {len(plan.known)} computed for other tables" if plan.known else ""
    failed = f" ({plan.failed} of them failed: --retry-failed)" if plan.failed else ""
    done = f"{plan.done} done already{failed}{known}"
    typer.echo(f"{len(plan.todo)} cells to run with {jobs} jobs{about}; {done}: {plan.path}")
    for name, count in plan.missing.items():
        typer.echo(f"{name} is not on this machine, {count} cells left out: `mogd datasets fetch {name}`")


def _say_confirmed(samples: list[Sample], mismatched: list[Sample]) -> None:
    if count := sum(len(sample.others) for sample in samples if sample not in mismatched):
        typer.echo(f"{count} records by older code stand: a sample of each kind came out the same")
    for sample in mismatched:
        record = next(iter(sample.again.values()))
        where = f"{record['label']} on {record['dataset']} ({record['panel']})"
        typer.echo(f"{where}: the figures have changed; run the others with --rerun-changed")


class _progress:
    """A bar with the time left, reckoned from what cells like the remaining ones took."""

    def __init__(self, plan: Plan, jobs: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.waiting = {cell.key: cell for cell in plan.todo}
        self.total = len(plan.todo) + len(plan.known)
        self.jobs = jobs
        self.expected = plan.expected
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        self.bar = Progress(*columns)
        self.failed = 0

    def __enter__(self) -> _progress:
        self.bar.start()
        self.task = self.bar.add_task("starting", total=self.total)
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.stop()
        if (self.waiting and len(self.waiting) < self.total) or error[0] is KeyboardInterrupt:
            typer.echo("stopped: give the same command again to go on where it was")

    def __call__(self, record: dict[str, Any]) -> None:
        if self.waiting.pop(record["key"], None):  # the others were computed before, and the plan knows them
            self.expected.learn(record)
        where = " ".join([record["dataset"], *(f"{k}={v}" for k, v in record["setting"].items())])
        if record["error"] is not None:
            self.failed += 1
            self.bar.console.print(f"failed: {record['label']} on {where}: {record['error']}", markup=False)
        left = sum(map(self.expected, self.waiting.values())) / self.jobs
        failed = f"  {self.failed} failed" if self.failed else ""
        self.bar.update(self.task, advance=1, description=f"{_duration(left)} left{failed}  {record['label']}, {where}")


def _say_results(recipe: Recipe, plan: Plan, only: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from mogd.experiments.record import read_records
    from mogd.experiments.summary import tables

    keys = {cell.key for cell in recipe.cells(only)}
    for summary in tables([r for r in read_records([plan.path]) if r["key"] in keys]):
        shown = Table("method", *summary.column_names, *(["rank"] if summary.ranks else []), title=summary.panel)
        for label in summary.labels:
            cells = [entry.text() for entry in summary.row(label)]
            rank = [f"{summary.ranks[label]:.2f}"] if label in summary.ranks else []
            shown.add_row(label, *cells, *rank)
        Console().print(shown)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
