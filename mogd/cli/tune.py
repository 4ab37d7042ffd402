"""`mogd tune`: good parameters of any algorithm for a table, found on its own rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mogd.algorithms import check_name
from mogd.cli import app
from mogd.cli.guarantee import AsJson
from mogd.cli.learning import MethodName, OtherParams, learnable, none_if_empty, notes, read_param
from mogd.cli.reading import Reading, reads_table
from mogd.cli.targets import Force, check_free


@app.command()
@reads_table
def tune(
    reading: Reading,
    method: MethodName = "mogd",
    param: OtherParams = None,
    trials: Annotated[int | None, typer.Option(help="How many configurations to try; 30 without a budget.")] = None,
    minutes: Annotated[float | None, typer.Option(help="How long to search.")] = None,
    splits: Annotated[int, typer.Option(help="Parts of the rows that judge in turn.")] = 3,
    seed: Annotated[int, typer.Option(help="The same seed and number of trials find the same.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write every trial as JSON to this file.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Search for good parameters by Optuna; trials are judged on held-out clean and partial rows of the table."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from mogd.tuning import need_optuna
    from mogd.tuning import tune as search

    check_name(method, "--method")
    check_free(out, force)
    need_optuna()
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
    data = learnable(method, reading)
    total = 30 if trials is None and minutes is None else trials
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with notes(), Progress(*bar, transient=True, console=Console(stderr=True)) as progress:
        task = progress.add_task(f"tuning {method}", total=total)
        found = search(
            method,
            data.X,
            data.candidates,
            none_if_empty(data.clean_X),
            none_if_empty(data.clean_y),
            trials=trials,
            minutes=minutes,
            n_splits=splits,
            seed=seed,
            on_trial=lambda number, best: progress.update(task, completed=number, description=f"best {best:.3f}"),
            **dict(read_param(text) for text in param or []),
        )
    default = found.table[0]["score"]
    figures = {"method": method, "params": found.params, "score": found.score, "trials": found.table}
    if out is not None:
        out.write_text(json.dumps(figures, indent=2))
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
        return
    typer.echo(f"{len(found.table)} trials; estimated accuracy {found.score:.3f} (defaults: {default:.3f})")
    if out is not None:
        typer.echo(f"every trial: {out}")
    fixed = dict(read_param(text) for text in param or [])
    options = " ".join(_as_options(fixed | found.params))
    typer.echo(f"use it: mogd fit {reading.command()} --method {method} {options} --out MODEL")


def _as_options(params: dict[str, Any]) -> list[str]:
    scale = [f"--scale {params.get('scale') or 'none'}"]  # unlike the shell's fit, a trial scales only when it says so
    return scale + [f"--param {key}={json.dumps(value)}" for key, value in params.items() if key != "scale"]
