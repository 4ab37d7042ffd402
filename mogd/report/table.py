"""A table before it has a format, and its four formats: HTML, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mogd.datasets.frames import defused
from mogd.report.markup import Markup, el, join

SIGNS = {
    "best": "best of its column",
    "second": "second best of its column",
}
STALE = "†"


@dataclass(frozen=True)
class Cell:
    """One figure: its text, whether it is best or second, the paper's figure, and what a reader must know of it."""

    text: str
    mark: str | None = None  # "best", "second"
    paper: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    stale: bool = False
    data: Mapping[str, object] = field(default_factory=dict)  # the same as plain values, for CSV


@dataclass(frozen=True)
class Table:
    """Rows of cells under a heading, with the command that remakes them."""

    identity: str
    title: str
    columns: Sequence[str]  # the first names the rows
    rows: Sequence[tuple[str, Sequence[Cell | None]]]
    caption: str = ""
    command: str = ""
    footnotes: Sequence[str] = ()
    words: bool = False  # cells of words, set to the left and wrapped


def to_html(table: Table) -> Markup:
    """The table in a box that scrolls by itself (and by keyboard), so that the page never does sideways."""
    head = el("tr", [el("th", name, scope="col") for name in table.columns])
    body = [el("tr", el("th", label, scope="row"), [_html_cell(cell) for cell in cells]) for label, cells in table.rows]
    return el(
        "div",
        el("p", table.caption or table.title, class_="caption", id=f"{table.identity}-c"),
        el(
            "div",
            el(
                "table",
                el("thead", head),
                el("tbody", body),
                class_="words" if table.words else None,
                aria_labelledby=f"{table.identity}-c",
            ),
            class_="scroll",
            role="group",
            aria_label=table.title,
            tabindex=0,
        ),
        [el("p", note, class_="note") for note in table.footnotes],
        _html_command(table.command),
        class_="table",
        id=table.identity,
    )


def _html_command(command: str) -> Markup | None:
    if not command:
        return None
    return el("p", "Remade by ", el("code", command), class_="command")


def _html_cell(cell: Cell | None) -> Markup:
    if cell is None:
        return el("td", el("span", "–", title="not run"), class_="none")
    figure = el("span", cell.text, class_="figure")
    parts: list[object] = [figure]
    if cell.mark:
        tag = "strong" if cell.mark == "best" else "u"
        parts = [el(tag, figure), el("span", f" ({SIGNS[cell.mark]})", class_="aloud")]
    if cell.stale:
        parts.append(el("sup", STALE, title="the code has changed since this was run"))
    if cell.paper:
        parts.append(el("span", f"paper {cell.paper}", class_="paper"))
    parts += [el("span", note, class_="flag") for note in cell.notes]
    parts += [el("span", warning, class_="flag bad") for warning in cell.warnings]
    return el("td", join(parts), class_=cell.mark)


def to_markdown(table: Table) -> str:
    """GitHub's table, without a heading; bold is best, underlined is second best."""
    lines = [_md(table.caption), ""] if table.caption else []
    lines += ["| " + " | ".join(map(_md, table.columns)) + " |"]
    lines += ["|" + "---|" + ("---|" if table.words else "---:|") * (len(table.columns) - 1)]
    lines += ["| " + " | ".join([_md(label), *map(_md_cell, cells)]) + " |" for label, cells in table.rows]
    lines += [""]
    lines += [_md(text) + "\n" for text in table.footnotes]
    if table.command:
        lines += [f"Remade by `{table.command}`.\n"]
    return "\n".join(lines)


def _md(text: str) -> str:
    return re.sub(r"([\\|<>*_`\[\]])", r"\\\1", text).replace("\n", " ")


def _md_cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    text = _md(cell.text)
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>"}.get(cell.mark or "", text)
    more = ([f"paper {_md(cell.paper)}"] if cell.paper else []) + list(map(_md, (*cell.notes, *cell.warnings)))
    return text + (STALE if cell.stale else "") + (" (" + ", ".join(more) + ")" if more else "")


_MATHS = {"±": r"\pm", "†": r"\dagger", "×": r"\times", "→": r"\to", "−": "-", "<": "<", ">": ">", "²": "^2"}
_MATHS |= {"α": r"\alpha", "β": r"\beta", "κ": r"\kappa", "θ": r"\theta", "≤": r"\le", "≥": r"\ge"}
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "’": "'"}
_LATEX |= {sign: f"${command}$" for sign, command in _MATHS.items()} | {sign: "\\" + sign for sign in "&%$#_{}"}


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def to_latex(table: Table) -> str:
    """A booktabs table: `\\usepackage{booktabs}` is all it needs."""
    rows = [" & ".join([_tex(label), *map(_tex_cell, cells)]) + r" \\" for label, cells in table.rows]
    caption = " ".join(text for text in (table.title + ".", table.caption, *table.footnotes) if text)
    return "\n".join(
        [
            *([f"% {table.command}"] if table.command else []),
            r"\begin{table}[htbp]",
            r"  \centering",
            rf"  \caption{{{_tex(caption)}}}",
            rf"  \label{{tab:{re.sub(r'[^a-z0-9-]+', '-', table.identity.lower())}}}",
            rf"  \begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}",
            r"    \toprule",
            "    " + " & ".join(map(_tex, table.columns)) + r" \\",
            r"    \midrule",
            *("    " + row for row in rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _tex_cell(cell: Cell | None) -> str:
    if cell is None:
        return "--"
    text = _tex(cell.text)
    text = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}.get(cell.mark or "", text)
    more = ([f"paper {cell.paper}"] if cell.paper else []) + [*cell.notes, *cell.warnings]
    return text + (_tex(STALE) if cell.stale else "") + (_tex(f" ({', '.join(more)})") if more else "")


def to_csv(tables: Iterable[Table]) -> str:
    """All tables as one long table of plain values, a line per cell: for a spreadsheet or a data frame."""
    cells = (cell for table in tables for _, row in table.rows for cell in row)
    rows = [cell.data for cell in cells if cell is not None and cell.data]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: defused(value) for key, value in row.items()} for row in rows)
    return out.getvalue()
