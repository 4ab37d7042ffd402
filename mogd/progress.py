"""How a run shows that it is alive: one bar for the epochs of a fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def epoch_bar(epochs: int, title: str, *, shown: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function to call with each epoch's history entry; silent unless `shown`."""
    if not shown:
        yield lambda entry: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[note]}")) as progress:
        task = progress.add_task(title.split("(")[0], total=epochs, note="")

        def advance(entry: dict[str, Any]) -> None:
            note = "  ".join(f"{k} {v:.4f}" for k, v in entry.items() if k in ("loss", "shrinkage"))
            progress.update(task, advance=1, note=note)

        yield advance
