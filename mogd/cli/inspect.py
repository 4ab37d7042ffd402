"""`mogd inspect`: what a table holds, before any fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mogd.cli import app
from mogd.cli.reading import Reading, reads_table
from mogd.cli.targets import Force, check_free

if TYPE_CHECKING:
    from mogd.inspection import Inspection

WIDTH = 80
MOST_ANNOTATORS, MOST_PROBLEMS = 8, 8


@app.command()
@reads_table
def inspect(
    reading: Reading,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a screen.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page instead.")] = None,
    force: Force = False,
) -> None:
    """Look at a table before any fit: labels, annotators, agreement, and what is wrong with the file."""
    from mogd.cli.learning import notes
    from mogd.inspection import inspect_table

    check_free(html, force, "--html")
    with notes():
        found = inspect_table(reading.table, **reading.options())
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    if html is not None:
        from mogd.cli.inspect_page import page

        html.write_text(page(found, facts(found), annotator_rows(found)), encoding="utf-8")
        typer.echo(f"written: {html}", err=as_json)
    if not as_json and html is None:
        _screen(found, reading)


def facts(found: Inspection) -> list[tuple[str, str]]:
    """What is to be said in one line each."""
    votes = sum(one.votes for one in found.annotators)
    people = f", {votes} votes of {len(found.annotators)} annotators" if found.annotators else ""
    lines = [
        ("rows", f"{found.rows}, {found.clean_rows} of them clean{people}"),
        ("classes", f"{len(found.classes)}: " + _some(f"{name} {n}" for name, n in found.classes.items())),
        ("set sizes", _some(f"{size}: {n / _total(found):.0%}" for size, n in found.set_sizes.items())),
    ]
    if found.annotators:
        alpha = "cannot be said" if found.agreement is None else f"{found.agreement:.3f} (1: perfect, 0: chance)"
        lines.append(("agreement", f"Krippendorff's alpha {alpha}"))
    if found.confused:
        pairs = (f"{' / '.join(pair['labels'])} {pair['rows']} rows" for pair in found.confused)
        lines.append(("confused", _some(pairs, 4)))
    if found.truth_in_set is not None:
        held = found.truth_in_set
        lines.append(("truth in set", f"{held['held']} of {held['rows']} clean rows ({held['share']:.0%})"))
    if found.duplicates.get("rows"):
        again = found.duplicates
        lines.append(("duplicates", f"{again['rows']} rows, {again['contradicting']} without a label in common"))
    if found.suspicious:
        lines.append(("suspicious", _some(found.suspicious, 4)))
    return lines


def annotator_rows(found: Inspection) -> list[tuple[str, str, str, str]]:
    """Name, votes, accuracy on clean rows and agreement with the others, as text."""
    return [
        (
            one.name,
            str(one.votes),
            "–" if one.clean_accuracy is None else f"{one.clean_accuracy:.0%} of {one.clean_votes}",
            "–" if one.agreement is None else f"{one.agreement:.0%}",
        )
        for one in found.annotators
    ]


def _screen(found: Inspection, reading: Reading) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=min(WIDTH, Console().width), highlight=False, markup=False)
    table = Table(show_header=False, box=None, padding=(0, 1, 0, 0), title=found.table, title_justify="left")
    for name, text in facts(found):
        table.add_row(name, _cut(text, 2 * (WIDTH - 15)))
    console.print(table)
    if found.annotators:
        people = Table(
            "annotator", "votes", "right on clean rows", "agrees with others", box=None, padding=(0, 2, 0, 0)
        )
        for row in annotator_rows(found)[:MOST_ANNOTATORS]:
            people.add_row(_cut(row[0], 24), *row[1:])
        if len(found.annotators) > MOST_ANNOTATORS:
            people.add_row(f"and {len(found.annotators) - MOST_ANNOTATORS} more: --json or --html")
        console.print(people)
    if found.problems:
        console.print("findings, and what mends them:")
        listed = Table(show_header=False, box=None, padding=(0, 1, 0, 0))
        for problem in found.problems[:MOST_PROBLEMS]:
            listed.add_row("-", _printable(problem))
        console.print(listed)
        if len(found.problems) > MOST_PROBLEMS:
            console.print(f"and {len(found.problems) - MOST_PROBLEMS} more: --json or --html")
    else:
        console.print("findings: none")
    typer.echo(f"next: mogd fit {reading.command()} --out MODEL")


def _total(found: Inspection) -> int:
    return sum(found.set_sizes.values()) or 1


def _some(parts: Any, most: int = 8) -> str:
    parts = list(parts)
    more = f", and {len(parts) - most} more" if len(parts) > most else ""
    return ", ".join(parts[:most]) + more


def _cut(text: str, width: int) -> str:
    text = _printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _printable(text: str) -> str:
    """The text without a character that moves the cursor or colours the screen."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
