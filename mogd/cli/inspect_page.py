"""The findings of `mogd inspect` as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mogd.report.markup import el, join, raw

if TYPE_CHECKING:
    from mogd.inspection import Inspection

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0.5rem 0; }
th, td { text-align: left; padding: 0.25rem 1rem 0.25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
li { margin: 0.4rem 0; }
div.wide { overflow-x: auto; }
"""


def page(found: Inspection, facts: Sequence[tuple[str, str]], people: Sequence[tuple[str, str, str, str]]) -> str:
    """The whole page: what is wrong first, then the figures."""
    title = f"{found.table}: inspection"
    problems = el("ul", join(el("li", text) for text in found.problems)) if found.problems else el("p", "None.")
    body = join(
        [
            el("h1", found.table),
            el("h2", "Findings, and what mends them"),
            problems,
            el("h2", "What the table holds"),
            _table([], [list(row) for row in facts]),
            _section("Annotators", ["annotator", "votes", "right on clean rows", "agrees with others"], people),
            _section("Classes", ["label", "rows"], [(name, str(n)) for name, n in found.classes.items()]),
            _section(
                "Labels named together",
                ["labels", "rows", "of the rows with either"],
                [(" / ".join(p["labels"]), str(p["rows"]), f"{p['share']:.0%}") for p in found.confused],
            ),
        ]
    )
    head = join(
        [
            el("meta", charset="utf-8"),
            el("meta", name="viewport", content="width=device-width, initial-scale=1"),
            el("title", title),
            el("style", raw(STYLE)),
        ]
    )
    return f"<!doctype html>\n{el('html', el('head', head), el('body', body), lang='en')}\n"


def _section(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> object:
    return join([el("h2", title), _table(header, rows)]) if rows else None


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> object:
    """The first column is text, the others are figures; a table without a header has names in the first."""
    kind = "number" if header else None
    top = el("tr", join(el("th", cell, class_=kind if i else None, scope="col") for i, cell in enumerate(header)))
    lines = (
        el("tr", join([el("th", row[0], scope="row"), *(el("td", cell, class_=kind) for cell in row[1:])]))
        for row in rows
    )
    return el("div", el("table", top if header else None, join(lines)), class_="wide")
