"""`mogd label`: the page on which people answer rows one by one."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from mogd.cli import app
from mogd.cli.reading import TABLE, names

CandidatesToLabel = Annotated[
    str, typer.Option("--candidates", help="Column of candidate sets: a|b, a JSON list or an Arrow list.")
]
AnnotatorColumns = Annotated[
    list[str] | None, typer.Option(help="Instead: columns of one annotator each (repeat, or a,b,c).")
]
VotesFile = Annotated[Path | None, typer.Option(help="Instead: a table with the columns task, worker, label.")]
IdColumn = Annotated[str | None, typer.Option(help="Column that names the rows; by default `id`, or the row's number.")]
IgnoredColumns = Annotated[list[str] | None, typer.Option(help="Columns to exclude (repeat, or a,b,c).")]
TextColumn = Annotated[str | None, typer.Option(help="Column of text; by default the one with the longest texts.")]
PictureFolder = Annotated[Path | None, typer.Option(help="Folder of the pictures that the table names.")]
PictureColumn = Annotated[str, typer.Option(help="Column with the file names of the pictures.")]
KnownLabels = Annotated[
    str | None, typer.Option(metavar="FILE|COL", help="Labels known already: a column, or a table that `label` wrote.")
]


@app.command()
def label(
    table: Annotated[Path, typer.Argument(help=f"The rows to label: {TABLE}")],
    out: Annotated[
        Path, typer.Option(help="Where to write the answers, kept in OUT.db beside it. Run again to go on.")
    ],
    candidates: CandidatesToLabel = "labels",
    annotators: AnnotatorColumns = None,
    votes: VotesFile = None,
    clean: KnownLabels = None,
    text: TextColumn = None,
    images: PictureFolder = None,
    image_column: PictureColumn = "file",
    id: IdColumn = None,
    ignore: IgnoredColumns = None,
    every: Annotated[int, typer.Option(min=0, help="Answers between two fits in the background; 0 for none.")] = 10,
    lock: Annotated[float, typer.Option(min=0.01, help="Minutes after which an unanswered row goes to others.")] = 10,
    goal: Annotated[int, typer.Option(min=1, help="Answers at which the progress bar is full.")] = 100,
    blind: Annotated[bool, typer.Option("--blind", help="Show neither the guess nor the votes.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page; 0 takes a free one.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen on; other machines need a --token.")] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(help="What visitors must bring in the address; `auto` makes one.")
    ] = None,
) -> None:
    """Label rows on a page in the browser, by keyboard, alone or with others; Ctrl+C ends it."""
    from mogd.labeling.rows import read_rows
    from mogd.labeling.safety import check_address
    from mogd.labeling.server import check_out, serve

    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise ImportError("the labelling page needs starlette and uvicorn: pip install 'mogd[label]'") from None
    token = secrets.token_urlsafe(24) if token == "auto" else token
    check_address(host, token)
    check_out(out)
    rows = read_rows(
        table,
        candidates,
        annotators=names(annotators),
        votes=votes,
        clean=clean,
        id=id,
        text=text,
        images=images,
        image_column=image_column,
        ignore=names(ignore),
    )
    typer.echo(f"{len(rows)} rows, {len(rows.class_names)} labels. Open the page; Ctrl+C ends it.")
    if rows.hidden:
        shown = ", ".join(rows.hidden)
        typer.secho(f"note: column {shown} holds nothing but labels, so it is not shown", err=True, fg="yellow")
    serve(
        rows,
        out,
        host=host,
        port=port,
        token=token,
        every=every,
        lock_seconds=60 * lock,
        goal=goal,
        blind=blind,
        say=typer.echo,
    )
