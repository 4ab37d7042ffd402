"""How a table is read: the options that `mogd fit`, `tune` and `inspect` share, declared once."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer

Columns = list[str]
TABLE = "CSV, TSV, JSON, JSONL, Excel, Parquet or Feather, by its ending; - for the standard input."
WRITTEN = "CSV, TSV, JSON, JSONL, Excel, Parquet or Feather, by its ending; - prints CSV."
LABELS, READING = "Labels", "Reading"  # panels of --help


def _options(
    table: Annotated[Path, typer.Argument(help=f"The rows to learn from: {TABLE}")],
    candidates: Annotated[
        str, typer.Option(help="Column of candidate sets: a|b, a JSON list or an Arrow list.", rich_help_panel=LABELS)
    ] = "labels",
    annotators: Annotated[
        Columns | None,
        typer.Option(help="Instead: columns of one annotator each (repeat, or a,b,c).", rich_help_panel=LABELS),
    ] = None,
    votes: Annotated[
        Path | None, typer.Option(help="Instead: a table with the columns task, worker, label.", rich_help_panel=LABELS)
    ] = None,
    clean: Annotated[
        str | None,
        typer.Option(metavar="FILE|COL", help="Labels known for sure: a column, or a table.", rich_help_panel=LABELS),
    ] = None,
    clean_label: Annotated[
        str | None, typer.Option(help="Column of the clean table that holds the label.", rich_help_panel=LABELS)
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(help="Between the labels of a set; by default | or ; or ,", rich_help_panel=LABELS),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(help="Of an export with several questions, the one to learn.", rich_help_panel=LABELS),
    ] = None,
    empty: Annotated[
        str,
        typer.Option(
            help="Rows without a candidate: error, drop, or all (give them all labels).", rich_help_panel=LABELS
        ),
    ] = "error",
    abstain: Annotated[
        str | None,
        typer.Option(help="Of annotators and votes: what means that nothing was said.", rich_help_panel=LABELS),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            help="Column that names the rows; by default `id`, the file of a picture, or the row's number.",
            rich_help_panel=READING,
        ),
    ] = None,
    images: Annotated[
        Path | None, typer.Option(help="Folder of the pictures that the table names.", rich_help_panel=READING)
    ] = None,
    image_column: Annotated[
        str, typer.Option(help="Column with the file names of the pictures.", rich_help_panel=READING)
    ] = "file",
    size: Annotated[
        str | None,
        typer.Option(help="Height and width the pictures are brought to, such as 32x32.", rich_help_panel=READING),
    ] = None,
    text: Annotated[
        Columns | None, typer.Option(help="Columns of free text (repeat, or a,b,c).", rich_help_panel=READING)
    ] = None,
    text_model: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a model2vec or sentence-transformers model for the text; without it, TF-IDF.",
            rich_help_panel=READING,
        ),
    ] = None,
    ignore: Annotated[
        Columns | None, typer.Option(help="Columns to exclude (repeat, or a,b,c).", rich_help_panel=READING)
    ] = None,
    impute: Annotated[
        str | None,
        typer.Option(help="Fill missing cells: median, mean or most_frequent.", rich_help_panel=READING),
    ] = None,
    missing: Annotated[
        Columns | None,
        typer.Option(
            help="Further texts that count as missing, such as n/a (repeat, or a,b,c).", rich_help_panel=READING
        ),
    ] = None,
    merge_case: Annotated[
        bool,
        typer.Option(
            "--merge-case",
            help="Take labels that differ only in capitals, spaces or Unicode form as one.",
            rich_help_panel=LABELS,
        ),
    ] = False,
    encoding: Annotated[
        str | None, typer.Option(help="Of the text: utf-8, utf-16, latin-1, …", rich_help_panel=READING)
    ] = None,
    decimal: Annotated[
        str | None, typer.Option(help="Decimal mark of numbers: , or .", rich_help_panel=READING)
    ] = None,
) -> None:
    """The names are those of `read_table`."""


LISTS = ("annotators", "text", "ignore", "missing")


class Reading:
    """A table and the options by which it is to be read, as they were given."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.table: Path = given["table"]

    def options(self) -> dict[str, Any]:
        """The parameters of `read_table`, but for the table itself."""
        how = {name: value for name, value in self.given.items() if name != "table"}
        return how | {name: names(how[name]) for name in LISTS} | {"size": read_size(how["size"])}

    def command(self) -> str:
        """The table and its options as they are typed again, those left at their defaults apart."""
        parts = [shlex.quote(str(self.table))]
        for name, parameter in signature(_options).parameters.items():
            value = self.given[name]
            if name != "table" and value != parameter.default:
                text = ",".join(names(value)) if name in LISTS else str(value)
                parts.append(f"--{name.replace('_', '-')}{'' if value is True else f' {shlex.quote(text)}'}")
        return " ".join(parts)


def reads_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of reading; it gets them as its first argument, a `Reading`."""
    shared = signature(_options, eval_str=True).parameters
    own = list(signature(command, eval_str=True).parameters.values())[1:]

    @wraps(command)
    def run(**given: Any) -> None:
        reading = Reading({name: given.pop(name) for name in shared})
        command(reading, **given)

    keyword = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in (*shared.values(), *own)]
    run.__signature__ = Signature(keyword)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in keyword}
    del run.__wrapped__
    return run


def names(given: list[str] | None) -> list[str]:
    return [name.strip() for text in given or [] for name in text.split(",") if name.strip()]


def read_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.lower().partition("x")
    if not (height.isdigit() and width.isdigit() and int(height) and int(width)):
        raise ValueError(f"--size must be HEIGHTxWIDTH, such as 32x32; got {text!r}")
    return int(height), int(width)
