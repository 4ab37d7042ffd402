"""`mogd report`: the page of a model; or, from records, a page, tables, and the figures of the methods' pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mogd.cli import app
from mogd.cli.targets import check_free

ENDINGS = {".html": "html", ".md": "md", ".tex": "latex", ".csv": "csv"}


@app.command()
def report(
    results: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL|RESULTS…", help="A saved model; or files of records, or their folder."),
    ],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file to write; else report.html, .md, …")] = None,
    form: Annotated[str, typer.Option("--format", help="html, md, latex or csv; else as --out ends.")] = "",
    notes: Annotated[
        Path | None, typer.Option(help="Commentary: Markdown under `## recipe` or `## recipe/panel`.")
    ] = None,
    paper: Annotated[Path | None, typer.Option(help="The paper's figures; else benchmarks/paper.toml.")] = None,
    fill: Annotated[Path | None, typer.Option(help="A folder of Markdown pages to fill figures into, too.")] = None,
    table: Annotated[Path | None, typer.Option(help="Of a model: the table it learned from, to show its rows.")] = None,
    text: Annotated[str | None, typer.Option(help="Column of that table to show; by default the longest text.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder of the pictures that the table names.")] = None,
    image_column: Annotated[str, typer.Option(help="Column with the file names of the pictures.")] = "file",
    annotators: Annotated[
        list[str] | None, typer.Option(help="Columns of one annotator each (repeat, or a,b).")
    ] = None,
    truth: Annotated[str | None, typer.Option(help="Column of true labels, where they are known.")] = None,
    pictures: Annotated[Path | None, typer.Option(help="A folder to write every chart to, too, as .svg.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Of a model: replace a page that is there.")] = False,
) -> None:
    """Make one page: of a saved model, what it learned; of records, everything a reader needs.

    With records, the tables can also be had as Markdown, LaTeX or CSV.
    """
    if len(results) == 1 and (results[0] / "model.json").is_file():
        if form not in ("", "html") or notes or paper or fill:
            raise ValueError("the page of a model is HTML alone: leave --format, --notes, --paper and --fill away")
        how = {"text": text, "images": images, "image_column": image_column, "truth": truth}
        columns = [name.strip() for given in annotators or [] for name in given.split(",") if name.strip()]
        out = out or Path("model.html")
        check_free(out, force)
        _model_page(results[0], out, table, how | {"annotators": columns})
        _pictures(out, pictures)
        return
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
    for path in results:
        if path.is_dir() and not any(path.glob("*.jsonl")):
            raise ValueError(f"{path} holds neither a saved model (model.json) nor records (*.jsonl) of `mogd bench`")
    results = [file for path in results for file in (sorted(path.glob("*.jsonl")) if path.is_dir() else [path])]
    if absent := [str(path) for path in results if not path.is_file()]:
        raise FileNotFoundError(f"there is no {absent[0]}: run `mogd bench` first")
    if out is not None and out.is_dir():
        raise IsADirectoryError(f"{out} is a folder: name a file in it by --out")
    out = out or Path("report").with_suffix(next(ending for ending, name in ENDINGS.items() if name == form))
    records = read_records(results)
    if not records:
        raise ValueError(f"no records in {', '.join(map(str, results))}: run `mogd bench` first")
    asked = in_recipes(records)
    if superseded := len(records) - len(asked):
        typer.echo(f"{superseded} runs left out: their recipes, as they are now, do not ask for them")
    records = asked
    made = sections(records, PaperFigures(paper))
    commentary = read_notes(notes) if notes is not None else {}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(render(form, made, records, commentary, _command(results, out, form, notes, fill)), encoding="utf-8")
    _pictures(out, pictures)
    failed = sum(record["error"] is not None for record in records)
    typer.echo(f"{out}: {len(made)} tables from {len(records)} runs" + (f", {failed} of them failed" if failed else ""))
    unused = set(commentary) - {name for s in made for name in (s.recipe, f"{s.recipe}/{s.panel}")}
    if unused:
        typer.echo(f"not used, as no record belongs to it: {', '.join(sorted(unused))} in {notes}")
    if fill is not None:
        changed = fill_folder(fill, lambda recipe, algorithm: figures(made, recipe, algorithm))
        typer.echo(f"{len(changed)} pages filled in {fill}")


def _model_page(model: Path, out: Path, table: Path | None, how: dict[str, Any]) -> None:
    from mogd.report.modelfacts import ModelFacts
    from mogd.report.modelpage import ROWS_SHOWN, model_page
    from mogd.report.modeltable import read_rows
    from mogd.saving import id_name

    facts = ModelFacts.of_folder(model)
    if table is not None:
        shown = [facts.ids[row] for row in facts.look[:ROWS_SHOWN]]
        facts = ModelFacts.of_folder(model, read_rows(table, id=id_name(model), pictured=shown, **how))
    elif any(how[name] for name in ("text", "images", "annotators", "truth")):
        raise ValueError("--text, --images, --annotators and --truth belong to a table: name it by --table")
    out.parent.mkdir(parents=True, exist_ok=True)
    model_page(facts).save(out)
    typer.echo(f"{out}: {facts.title}, {len(facts.ids)} rows, {len(facts.look)} of them worth a look")


def _pictures(page: Path, folder: Path | None) -> None:
    from mogd.report.pictures import write_pictures

    if folder is None:
        return
    if page.suffix != ".html":
        raise ValueError(f"--pictures are those of a page of HTML; got --out {page}")
    written = write_pictures(page.read_text(encoding="utf-8"), folder)
    typer.echo(f"{folder}: {len(written)} charts")


def _command(results: list[Path], out: Path, form: str, notes: Path | None, fill: Path | None) -> str:
    """The command as it is given in the project's folder: a whole folder of records by its pattern."""
    folders = {path.parent for path in results}
    whole = len(folders) == 1 and set(results) == set((folder := folders.pop()).glob("*.jsonl"))
    given = f"{folder}/*.jsonl" if whole else " ".join(map(str, results))
    more = [f" {name} {value}" for name, value in (("--notes", notes), ("--fill", fill)) if value is not None]
    return f"mogd report {given} --format {form} --out {out}{''.join(more)}"
