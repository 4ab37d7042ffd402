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
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "kind", "what it is", "paper", "needs clean rows")
    for row in rows:
        need = "yes" if row["needs_clean_set"] else ""
        table.add_row(row["name"], row["kind"], row["title"], row["paper"], need)
    Console().print(table)
