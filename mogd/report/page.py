"""The page: one HTML file with its style, script and charts inside, that asks the network for nothing."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from mogd.experiments.record import Record
from mogd.report import answer, charts, names, series
from mogd.report.docs import notes_by_section
from mogd.report.markup import Markup, el, join
from mogd.report.sections import Section, ordered_labels
from mogd.report.shell import document, fact, figure
from mogd.report.svg import Style, styles
from mogd.report.table import STALE, Table, to_html

TITLE = "Learning from ambiguous labels: results"
HOW_TO_READ = (
    "Figures are test accuracy in %, mean ± standard deviation where a cell has several runs. In each column the best "
    "figure is bold and the second best underlined; fully supervised learning knows the true labels and takes no part. "
    "Small figures below ours are the paper's own. "
    f"{STALE} marks figures made before the code they depend on was changed; failed runs stay in the table."
)


def page(sections: Sequence[Section], records: Sequence[Record], notes: Mapping[str, str]) -> str:
    """The whole page as text; `notes` is commentary by recipe or by recipe/panel."""
    drawn = styles(ordered_labels(records))
    own = notes_by_section(sections, notes)
    words = ("Made from records by ", el("code", "mogd report"), "; every figure can be traced to its run.")
    tables = [[_section(s, own[s.identity], drawn) for s in sections], _origins(records)]
    return document(TITLE, _top(sections, records), tables, el("p", words))


def _top(sections: Sequence[Section], records: Sequence[Record]) -> Markup:
    days = sorted(r["started"][:10] for r in records if r.get("started"))
    failed = sum(r["error"] is not None for r in records)
    hours = sum(sum((r.get("seconds") or {}).values()) for r in records) / 3600
    facts = [
        fact(f"{len(records):,}", "runs"),
        fact(str(failed), "failed", bad=failed > 0),
        fact(str(names.count_methods(r["algorithm"] for r in records)), "methods"),
        fact(str(len({r["dataset"] for r in records})), "data sets"),
        fact(f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.1f} min", "of computing"),
    ]
    when = f"Run {days[0]}" + (f" to {days[-1]}." if days[0] != days[-1] else ".") if days else ""
    often = Counter(s.title for s in sections)
    called = [s.title if often[s.title] == 1 else f"{s.title}, {s.scale} scale" for s in sections]
    links = [el("li", el("a", name, href=f"#{s.identity}")) for name, s in zip(called, sections, strict=True)]
    return join(
        [
            _answer(sections),
            el("ul", facts, class_="facts"),
            el("p", f"{when} {HOW_TO_READ}", class_="lede"),
            el("nav", el("ul", links, el("li", el("a", "Where and when", href="#origins"))), aria_label="Tables"),
        ]
    )


def _answer(sections: Sequence[Section]) -> Markup | None:
    found = answer.choices(sections)
    if not found:
        return None
    return el(
        "section",
        el("h2", answer.TITLE, id="answer"),
        el("p", answer.sentence(found), class_="answer"),
        to_html(answer.answer_table(found)),
        aria_labelledby="answer",
    )


def _section(section: Section, notes: Sequence[str], drawn: Mapping[str, Style]) -> Markup:
    return el(
        "section",
        el("h2", section.title, el("small", f"{section.scale} scale"), id=section.identity),
        to_html(section.table),
        [_prose(text) for text in notes],
        [_folded(t) for t in section.more],
        _failures(section),
        _ranking(section),
        _sweeps(section, drawn),
        _curves(section, drawn),
        _confidence(section, drawn),
        aria_labelledby=section.identity,
    )


def _folded(*tables: Table) -> Markup:
    return el("details", el("summary", tables[0].title), [to_html(t) for t in tables])


def _prose(text: str) -> Markup:
    """Paragraphs and lists of the notes, with the little Markdown that they need here."""
    return join(_block(part) for part in re.split(r"\n\s*\n", text) if part.strip())


def _block(text: str) -> Markup:
    if not text.startswith("- "):
        return el("p", _inline(text))
    return el("ul", [el("li", _inline(item)) for item in re.split(r"(?:^|\n)- ", text)[1:]])


def _inline(text: str) -> Markup:
    """`code`, **strong**, and of a link its words: what it points to lies beside the Markdown, not beside this page."""
    text = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(text.split()))
    kinds = {"`": "code", "*": "strong"}
    pieces = re.split(r"(`[^`]+`|\*\*[^*]+\*\*)", text)
    return join(el(kinds[piece[0]], piece.strip("`*")) if i % 2 else piece for i, piece in enumerate(pieces))


def _failures(section: Section) -> Markup | None:
    if section.failures is None:
        return None
    count = sum(record["error"] is not None for record in section.records)
    return el("details", el("summary", f"Failed runs: {count}"), to_html(section.failures), open=True)


def _ranking(section: Section) -> Markup | None:
    if section.ranking is None and not section.tests:
        return None
    parts: list[object] = [el("h3", "Do the methods differ?")]
    if section.ranking is not None:
        r = section.ranking
        identity = f"{section.identity}-cd"
        if r.separates:
            title = f"Average ranks: {section.title}"
            drawing = charts.critical_difference(identity, title, r.ranks, r.distance, r.groups)
            parts.append(figure("Average ranks over all columns; a bar joins methods that do not differ", drawing))
        parts.append(el("p", r.sentence, class_="note"))
    if section.tests:
        parts.append(_folded(*section.tests))
    return join(parts)


def _sweeps(section: Section, drawn: Mapping[str, Style]) -> list[Markup]:
    return [
        figure(sweep.title, charts.line_chart(f"{section.identity}-s{i}", sweep.title, sweep.lines, drawn, sweep.axis))
        for i, sweep in enumerate(section.sweeps)
    ]


def _curves(section: Section, drawn: Mapping[str, Style]) -> list[Markup]:
    made = []
    for i, (place, runs) in enumerate(series.by_place(section.records).items()):
        if lines := series.curves(runs):
            title = f"Test accuracy over epochs: {place}"
            made.append(figure(title, charts.line_chart(f"{section.identity}-e{i}", title, lines, drawn, "epoch")))
    return made


def _confidence(section: Section, drawn: Mapping[str, Style]) -> Markup | None:
    figures = []
    for i, (place, runs) in enumerate(series.by_place(section.records).items()):
        if shares := series.histograms(runs):
            title = f"Confidence on {place}"
            figures.append(figure(title, charts.histograms(f"{section.identity}-h{i}", title, shares, drawn)))
    if not figures:
        return None
    words = "How sure the methods became of their training rows (each strip is scaled to its own highest bar)"
    return el("details", el("summary", words), figures)


def _origins(records: Sequence[Record]) -> Markup:
    heads = ("recipe", "scale", "commit", "machine", "versions", "runs", "time", "when")
    rows = []
    for o in series.origins(records):
        commit = o.commit[:10] + (" + changes" if o.dirty else "")
        took = el("time", f"{o.seconds / 60:.1f} min")
        when = [_moment(o.first), *([" to ", _moment(o.last)] if o.last != o.first else [])]
        facts = (o.scale, el("code", commit), o.host, el("div", o.versions, class_="wide"), o.runs, took, when)
        rows.append(el("tr", el("th", o.recipe, scope="row"), [el("td", fact) for fact in facts]))
    words = "Computing time is summed over runs; “+ changes” means the package differed from the commit."
    table = el(
        "table",
        el("thead", el("tr", [el("th", name, scope="col") for name in heads])),
        el("tbody", rows),
        class_="words",
        aria_labelledby="origins",
    )
    box = el("div", table, class_="scroll", role="group", aria_label="Runs: table", tabindex=0)
    return el(
        "section",
        el("h2", "What was run where and when", id="origins"),
        el("p", words, class_="caption"),
        el("details", el("summary", f"{len(rows)} lines: recipe, commit, machine, versions, runs, time"), box),
        aria_labelledby="origins",
    )


def _moment(iso: str) -> Markup:
    return el("time", iso.replace("T", " ")[:16], datetime=iso)
