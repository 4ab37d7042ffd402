"""`mogd report`: from records to a page, to tables, and to the figures on the methods' pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mogd.cli import app

ENDINGS = {".html": "html", ".md": "md", ".tex": "latex", ".csv": "csv"}


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="Files of records, results/*.jsonl, or their folder.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; else report.html, .md, …")] = None,
    form: Annotated[str, typer.Option("--format", help="html, md, latex or csv; else as --out ends.")] = "",
    notes: Annotated[
        Path | None, typer.Option(help="Commentary: Markdown under `## recipe` or `## recipe/panel`.")
    ] = None,
    paper: Annotated[Path | None, typer.Option(help="The paper's figures; else benchmarks/paper.toml.")] = None,
    fill: Annotated[Path | None, typer.Option(help="A folder of Markdown pages to fill figures into, too.")] = None,
) -> None:
    """Make one page (or the tables) from records: everything a reader needs, and the command that remakes it."""
    from mogd.experiments.paper import PaperFigures
    from mogd.experiments.record import read_records
    from mogd.experiments.spec import in_recipes
    from mogd.report.docs import fill_folder, read_notes
    from mogd.report.sections import sections
    from mogd.report.write import FORMATS, figures, render

    if not form and out is not None and out.suffix.lower() not in ENDINGS:
        raise ValueError(f"--out must end in {', '.join(ENDINGS)}, or --format say what to write; got {str(out)!r}")
    form = form or (ENDINGS[out.suffix.lower()] if out is not None else "html")
    if form not in FORMATS:
        raise ValueError(f"--format must be one of {', '.join(FORMATS)}; got {form!r}")
    for path in (notes, paper, fill):
        if path is not None and not path.exists():
            raise FileNotFoundError(f"there is no {path}")
    results = [file for path in results for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    if absent := [str(path) for path in results if not path.is_file()]:
        raise FileNotFoundError(f"there is no {absent[0]}: run `mogd bench` first")
    out = out or Path("report").with_suffix(next(ending for ending, name in ENDINGS.items() if name == form))
    records = read_records(results)
    if not records:
        raise ValueError(f"no records in {', '.join(map(str, results))}: run `mogd bench` first")
    asked = in_recipes(records)
    if superseded := len(records) - len(asked):
        typer.echo(f"{superseded} runs left out: their recipes, as they are now, do not ask for them")
    records = asked
    made = sections(records, PaperFigures(paper))
    told = read_notes(notes) if notes is not None else {}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(render(form, made, records, told, _command(results, out, form, notes, fill)), encoding="utf-8")
    failed = sum(record["error"] is not None for record in records)
    typer.echo(f"{out}: {len(made)} tables from {len(records)} runs" + (f", {failed} of them failed" if failed else ""))
    unused = set(told) - {name for s in made for name in (s.recipe, f"{s.recipe}/{s.panel}")}
    if unused:
        typer.echo(f"not used, as no record belongs to it: {', '.join(sorted(unused))} in {notes}")
    if fill is not None:
        changed = fill_folder(fill, lambda recipe, algorithm: figures(made, recipe, algorithm))
        typer.echo(f"{len(changed)} pages filled in {fill}")


def _command(results: list[Path], out: Path, form: str, notes: Path | None, fill: Path | None) -> str:
    """The command as it is given in the project's folder: a whole folder of records by its pattern."""
    folders = {path.parent for path in results}
    whole = len(folders) == 1 and set(results) == set((folder := folders.pop()).glob("*.jsonl"))
    given = f"{folder}/*.jsonl" if whole else " ".join(map(str, results))
    more = [f" {name} {value}" for name, value in (("--notes", notes), ("--fill", fill)) if value is not None]
    return f"mogd report {given} --format {form} --out {out}{''.join(more)}"
