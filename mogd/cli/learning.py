"""What the commands that learn from a table share: options, the checked table, the library's warnings as notes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mogd.algorithms import ALGORITHMS, AUTO
from mogd.cli.reading import Reading

if TYPE_CHECKING:
    import numpy as np

    from mogd.datasets.tables import TableDataset

MethodName = Annotated[str, typer.Option(help="`mogd methods` lists them.")]
OtherParams = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Any other parameter (repeat).")]


def learnable(method: str, reading: Reading) -> TableDataset:
    """The table as `read_table` reads it, once the method can learn from it; what is worth knowing comes as notes."""
    from mogd.datasets.tables import read_table

    with notes():
        data = read_table(reading.table, **reading.options())
    _check_learnable(data, method)
    return data


def _check_learnable(data: TableDataset, method: str) -> None:
    import numpy as np

    from mogd.rowsource import on_disk

    if (lazy := on_disk(data.X)) is not None:
        _ = lazy.moments  # of the first pass, which names rows with missing cells; the fit goes on with it
    for X in (data.X, data.clean_X):
        if isinstance(X, np.ndarray) and np.isnan(X).any():
            raise ValueError(
                "missing cells cannot be learned from: fill them with --impute median, or --ignore the columns"
            )
    if len(data.classes) < 2:
        raise ValueError(f"there is only one label, {data.classes.tolist()[0]!r}, so there is nothing to tell apart")
    needs_clean = method != AUTO and ALGORITHMS[method].needs_clean_set
    if not needs_clean or none_if_empty(data.clean_y) is not None:
        return
    n_single = int((data.candidates.sizes == 1).sum())
    if n_single:
        _note(f"no clean rows were named, so the {n_single} rows with one candidate are taken to be sure")
    else:
        others = ", ".join(a.name for a in ALGORITHMS.values() if not (a.needs_clean_set or a.needs_labels))
        raise ValueError(
            f"{method} needs rows whose label is known for sure: name them by --clean COL or --clean FILE, or choose a "
            f"--method that needs none ({others})"
        )


@contextmanager
def notes() -> Iterator[None]:
    """What the library warns of, as a line each and once, before an error too, which it may explain.

    Which rows are taken to be clean, the shell says itself.
    """
    from mogd.estimator import AssumedCleanWarning

    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", AssumedCleanWarning)
            warnings.simplefilter("ignore", DeprecationWarning)  # of a library's own parts: nothing a user can mend
            yield
    finally:
        for text in dict.fromkeys(str(warning.message) for warning in caught):
            _note(text)


def _note(text: str) -> None:
    typer.secho(f"note: {text}", err=True, fg=typer.colors.YELLOW)


def read_param(text: str) -> tuple[str, Any]:
    """`lr=0.1` as a name and a value: what JSON reads, or else the text itself."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"--param must be NAME=VALUE, such as lr=0.1; got {text!r}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, {"None": None, "True": True, "False": False}.get(value, value)


def none_if_empty(values: np.ndarray | None) -> np.ndarray | None:
    return values if values is not None and len(values) else None
