"""`mogd methods`: the algorithms of the library."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from mogd.algorithms import ALGORITHMS
from mogd.cli import app


@app.command()
def methods(as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table.")) -> None:
    """List every algorithm: its name, its paper and what it needs."""
    rows = [asdict(a) for a in ALGORITHMS.values()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "what it is", "paper", box=SIMPLE, padding=(0, 1, 0, 0))
    table.columns[0].no_wrap = True
    for kind in dict.fromkeys(row["kind"] for row in rows):
        table.add_section()
        table.add_row(f"[bold]{kind}[/bold]")
        for row in rows:
            if row["kind"] == kind:
                name = row["name"] + ("*" if row["needs_clean_set"] else "")
                table.add_row(name, row["title"], row["paper"])
    console = Console()
    console.print(table)
    console.print("* needs clean rows, or rows with one candidate", highlight=False)
