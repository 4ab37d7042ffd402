"""A saved model and a table: the probabilities that the one gives the rows of the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from mogd.datasets.tables import Encoder

SavedModel = Annotated[Path, typer.Argument(help="A folder that `mogd fit` saved.")]
ImageFolder = Annotated[Path | None, typer.Option(help="Folder of the pictures that the table names.")]
TextModel = Annotated[Path | None, typer.Option(help="Folder of the text model, where it has moved.")]
Encoding = Annotated[str | None, typer.Option(help="Of the text: utf-8, utf-16, latin-1, …")]


class Scored(NamedTuple):
    """A loaded model, what made features of the table, the table, and the probabilities of its rows."""

    model: Any
    encoder: Encoder
    frame: pl.DataFrame
    proba: np.ndarray


def score_table(
    model: Path, table: Path, images: Path | None = None, text_model: Path | None = None, encoding: str | None = None
) -> Scored:
    """Load a model, read a table and predict its rows; what is worth knowing comes as notes."""
    from mogd.cli.learning import notes
    from mogd.datasets.exports import table_of
    from mogd.datasets.frames import read_rows
    from mogd.saving import load, load_encoder

    with notes():
        fitted, encoder = load(model, resolved=False), load_encoder(model, images, text_model)
        frame = table_of(read_rows(table, encoding=encoding))
    with notes():
        return _scored(fitted, encoder, frame, table)


def score_parts(
    model: Path, table: Path, images: Path | None = None, text_model: Path | None = None, encoding: str | None = None
) -> Iterator[Scored]:
    """The same in parts: row groups of a folder of Parquet or Arrow files, or of a large one; others are one part."""
    from mogd.arrowfiles import is_large, read_groups

    if not is_large(table):
        yield score_table(model, table, images, text_model, encoding)
        return
    import polars as pl

    from mogd.cli.learning import notes
    from mogd.saving import load, load_encoder

    if encoding is not None:
        raise ValueError(f"encoding is for text and JSON; {table} holds Parquet or Arrow")
    with notes():
        fitted, encoder = load(model, resolved=False), load_encoder(model, images, text_model)
    for part in read_groups(table):
        frame = pl.from_arrow(part)
        assert isinstance(frame, pl.DataFrame)
        yield _scored(fitted, encoder, frame, table)


def _scored(fitted: Any, encoder: Encoder, frame: pl.DataFrame, table: Path) -> Scored:
    X = encoder.transform(frame)
    _check_missing(encoder.missing_, X, table)
    return Scored(fitted, encoder, frame, fitted.predict_proba(X))


def _check_missing(missing: Any, X: np.ndarray, table: Path) -> None:
    import numpy as np

    if missing and X.dtype.kind == "f" and np.isnan(X).any():
        counts = ", ".join(f"{name}: {count}" for name, count in missing.items())
        raise ValueError(f"{table} has missing cells ({counts}): fit the model with --impute median, or fill them")
