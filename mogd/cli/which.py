"""`mogd which`: the method for a table, from a quick comparison on its own rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from mogd.cli import app
from mogd.cli.guarantee import AsJson
from mogd.cli.learning import learnable, none_if_empty, notes
from mogd.cli.reading import Reading, reads_table

if TYPE_CHECKING:
    from mogd.choice import Comparison, Outcome


@app.command()
@reads_table
def which(
    reading: Reading,
    budget: Annotated[float | None, typer.Option(help="Seconds after which no further method is begun.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed compares on the same rows.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Find the method for a table: a few are compared on held-out clean and partial rows of it."""
    from mogd.choice import compare

    data = learnable("cc", reading)
    clean_y = none_if_empty(data.clean_y)
    own_votes = data.clean_candidates if clean_y is not None else None
    rows = (data.X, data.candidates, none_if_empty(data.clean_X), clean_y, own_votes)
    with notes():
        found = compare(*rows, budget=budget, random_state=seed, on_outcome=progress)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2))
        return
    _show(found, has_votes=getattr(data.candidates, "evidence", None) is not None)
    _next(found, reading)


def progress(outcome: Outcome) -> None:
    typer.echo(str(outcome), err=True)


def _show(found: Comparison, has_votes: bool) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    shown = Table("method", "estimated accuracy", "seconds", "", box=SIMPLE)
    for o in found.outcomes:
        mark = "as good as the best" if o in found.level and o is not found.best else ""
        score = "–" if o.score is None else f"{100 * o.score:.1f} %"
        shown.add_row(o.option.label, score, f"{o.seconds:.1f}", "best" if o is found.best else o.error or mark)
    console = Console()
    console.print(shown)
    rows = f"{found.n_rows} rows with candidates and {found.n_clean} clean rows"
    console.print(f"Three-fold on {rows}; less than {100 * found.noise:.1f} points is noise.", highlight=False)
    if has_votes:
        console.print(
            "The accuracy is that of predictions for new rows, which have no votes. How well the rows of the table are "
            "resolved by their votes, `mogd fit` compares on the clean rows.",
            highlight=False,
        )


def _next(found: Comparison, reading: Reading) -> None:
    option = found.best.option
    settings = "".join(f" --{name} {option.params[name]}" for name in ("backbone", "scale") if name in option.params)
    if "callbacks" in option.params:
        settings += f" --param 'callbacks={json.dumps(option.params['callbacks'])}'"
    typer.echo(f"use it: mogd fit {reading.command()} --method {option.algorithm}{settings} --out MODEL")
