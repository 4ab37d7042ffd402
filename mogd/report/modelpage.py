"""The page of one model: how good it is, how sure, what it made of the candidates, which rows are worth a look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from mogd.evaluation import Share
from mogd.report.charts import Line, line_chart
from mogd.report.markup import Markup, el, join
from mogd.report.modelcharts import reliability_chart, share_bars
from mogd.report.modelfacts import COVERAGE, OPEN, ModelFacts
from mogd.report.shell import document, fact, figure
from mogd.report.svg import styles
from mogd.report.table import Cell, Table, to_html

ROWS_SHOWN = 24
MOST_CLASSES = 16  # a matrix of more does not fit a page
CURVES = {
    "confidence": "mean confidence in the resolved label",
    "held_out_accuracy": "accuracy on clean rows held out of training",
    "shrinkage": "agreement of the halves of the clean rows (shrinkage)",
    "loss": "loss",
}


@dataclass(frozen=True)
class Page:
    """A page as text; in a notebook it shows itself."""

    html: str

    def save(self, path: str | Path) -> Path:
        path = Path(path)
        path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        frame = 'style="width: 100%; height: 80vh; border: 0" title="Report of the model"'
        return f'<iframe srcdoc="{escape(self.html)}" {frame}></iframe>'


def model_page(facts: ModelFacts) -> Page:
    """The page of a model; the answer stands first."""
    top = el("section", _answer(facts), _numbers(facts), aria_label="The answer")
    parts = (_compared, _calibrated, _became, _by_class, _annotators, _look, _training, _settings)
    sections = [section for part in parts if (section := part(facts)) is not None]
    words = ("Made by ", el("code", "mogd report MODEL"), "; nothing on this page was loaded from elsewhere.")
    return Page(document(f"{facts.title}: what it learned", top, sections, el("p", words)))


def _answer(facts: ModelFacts) -> Markup:
    said = [el("p", _how_good(facts), class_="answer")]
    left = int(facts.ambiguous.sum()) - len(facts.look)
    rows = f"{facts.ambiguous.sum():,} rows had several candidates; {left:,} of them are settled"
    look = f", and {len(facts.look):,} are worth a look" if len(facts.look) else ""
    return join([*said, el("p", f"{rows}{look}.", class_="answer")])


def _how_good(facts: ModelFacts) -> Sequence[object]:
    known, judged = facts.on_training_rows(), facts.judged()
    if facts.evaluation is not None:
        share = facts.evaluation.accuracy
        others = {name: s for name, s in facts.on_clean_rows().items() if name != facts.title}
        what = "clean rows held out in turn" if facts.evaluation.crossed else "clean rows that it did not train on"
        place = f"{share.n} {what}"
    elif known:
        (_, share), *rest = known.items()
        others, place = dict(rest), f"{share.n} training rows whose truth is known"
    elif judged:
        (_, share), *rest = judged.items()
        others, place = dict(rest), f"{share.n} clean rows, each judged by a fit that did not know its label"
    else:
        return (
            "How good this model is was not measured: fit it with ",
            el("code", "--calibrate"),
            " (fits it ten times more, clean rows held out in turn), or give a table with the truth.",
            _estimated(facts.settings.get("choice")),
        )
    low, high = share.interval
    compared = _against(share, others)
    return (
        el("strong", f"{100 * share.value:.1f} %"),
        f" of the labels are right ({100 * low:.0f} to {100 * high:.0f}\xa0% at 95\xa0% confidence, on {place})",
        f"; {compared}." if compared else ".",
    )


def _estimated(choice: Mapping[str, Any] | None) -> str:
    """What the comparison before the fit found of the method that it put first."""
    of_best = [m for m in (choice or {}).get("methods", ()) if m["label"] == (choice or {}).get("best")]
    if not of_best or of_best[0]["estimated_accuracy"] is None:
        return ""
    share = 100 * of_best[0]["estimated_accuracy"]
    return (
        f" Before the fit, methods were compared on rows held out: for the best, {of_best[0]['label']}, the estimated "
        f"accuracy on new rows was {share:.1f}\xa0%."
    )


def _against(share: Share, others: Mapping[str, Share]) -> str:
    """The others beside it, those that do better first; one inside its interval is neither better nor worse."""
    low, high = share.interval
    parts = []
    for words, least, most in (("less than", high, 2.0), ("about as good as", low, high), ("more than", -1.0, low)):
        own = [f"{n[:1].lower()}{n[1:]} ({100 * o.value:.1f} %)" for n, o in others.items() if least < o.value <= most]
        parts += [f"{words} {' and '.join(own)}"] if own else []
    return ", ".join(parts)


def _numbers(facts: ModelFacts) -> Markup:
    sizes = facts.candidates.sum(axis=1)
    numbers = [
        fact(f"{len(facts.ids):,}", "rows with candidates"),
        fact(f"{len(facts.clean):,}", "clean rows"),
        fact(f"{len(facts.classes):,}", "labels"),
        fact(f"{sizes.mean():.2f}", "candidates a row"),
        fact(f"{facts.confidence.max(axis=1).mean():.2f}", "mean confidence"),
    ]
    return el("ul", numbers, class_="facts")


def _section(identity: str, title: str, *children: object) -> Markup:
    return el("section", el("h2", title, id=identity), list(children), aria_labelledby=identity)


def _compared(facts: ModelFacts) -> Markup | None:
    charts = []
    for name, title, shares in (
        ("clean", "Right labels among the clean rows", facts.on_clean_rows()),
        ("judged", "Right labels among the clean rows, by fits that did not know them", facts.judged()),
        ("train", "Right labels among the training rows whose truth is known", facts.on_training_rows()),
    ):
        if shares:
            drawing = share_bars(f"bars-{name}", title, shares, facts.title)
            charts.append(figure(f"{title}, % with 95 % intervals", drawing))
    if not charts:
        return None
    note = "A majority vote knows the annotators' labels of the clean rows; the model knows their features alone."
    votes = el("p", note, class_="note") if facts.table.votes and facts.evaluation is not None else None
    return _section("compared", "How good is it?", charts, votes)


def _calibrated(facts: ModelFacts) -> Markup | None:
    found, calibration = facts.evaluation, facts.calibration
    if found is None or calibration is None or found.sets is None:
        return None
    raw = reliability_text(calibration.temperature)
    sets = found.sets
    said = (
        f"Confidence and accuracy differ by {100 * found.calibration_error:.1f} points on average, {raw}. Prediction "
        f"sets for a coverage of {100 * COVERAGE:g} % have {sets['labels']:.2f} labels on average; on the clean rows "
        f"themselves they hold the truth in {100 * sets['covered']:.0f} %."
    )
    title = "Right labels over confidence, clean rows; larger discs are more rows"
    return _section(
        "sure", "How sure can one be?", el("p", said), figure(title, reliability_chart("rel", title, found.reliability))
    )


def reliability_text(temperature: float) -> str:
    """What a temperature means in words."""
    if 0.95 <= temperature <= 1.05:
        return "as the model gives them"
    way = "lowered" if temperature > 1 else "raised"
    return f"after they were {way} by a temperature of {temperature:.2f}"


def _became(facts: ModelFacts) -> Markup | None:
    pairs = facts.pairs()
    if not pairs:
        return None
    rows = [
        (f"{a} / {b}", [Cell(f"{pair[key]:,}") for key in ("rows", "first", "second", "open")])
        for pair in pairs
        for a, b in [pair["labels"]]
    ]
    heads = ["candidates", "rows with both", "resolved to the first", "to the second", f"confidence below {OPEN:g}"]
    title = "Labels that stood together most often, and what became of their rows"
    table = to_html(Table("pairs", title, heads, rows, f"{title}."))
    maps: list[Markup] = []
    if len(facts.classes) <= MOST_CLASSES:
        for name, when, matrix in zip(("before", "after"), ("before", "after"), facts.confusion(), strict=True):
            maps.append(_heat(name, f"Share of each candidate {when} training, %", facts.classes, matrix))
    words = "Each line holds the rows that were resolved to a label: how their candidates shared them, in %."
    both = [el("p", words, class_="caption"), el("div", maps, class_="pair")] if maps else []
    return _section("became", "What became of the candidates?", table, both)


def _heat(identity: str, title: str, classes: Sequence[str], matrix: np.ndarray) -> Markup:
    head = el("tr", el("th", "resolved to", scope="col"), [el("th", label, scope="col") for label in classes])
    lines = []
    for label, line in zip(classes, matrix.tolist(), strict=True):
        cells = [
            el("td", f"{100 * v:.0f}", style=f"background: color-mix(in srgb, var(--c0) {45 * v:.0f}%, transparent)")
            if v >= 0.005
            else el("td", "", class_="none")
            for v in line
        ]
        lines.append(el("tr", el("th", label, scope="row"), cells))
    table = el("table", el("thead", head), el("tbody", lines), class_="heat", aria_labelledby=f"{identity}-c")
    box = el("div", table, class_="scroll", role="group", aria_label=title, tabindex=0)
    return el("div", el("p", title, class_="caption", id=f"{identity}-c"), box)


def _by_class(facts: ModelFacts) -> Markup | None:
    measured = {} if facts.evaluation is None else {row["label"]: row for row in facts.evaluation.per_class()}
    counts = np.bincount(facts.resolved, minlength=len(facts.classes))
    candidates = facts.candidates.sum(axis=0)
    heads = ["label", "candidate in", "resolved to it"]
    heads += ["clean rows", "found, %", "right where predicted, %"] if measured else []
    rows = []
    for k, label in enumerate(facts.classes):
        cells = [Cell(f"{candidates[k]:,}"), Cell(f"{counts[k]:,}")]
        own = measured.get(label)
        if measured:
            shares = [
                None if own is None or own[key] is None else f"{100 * own[key]:.0f}" for key in ("recall", "precision")
            ]
            cells += [Cell("0" if own is None else str(own["rows"])), *(Cell(share or "–") for share in shares)]
        rows.append((label, cells))
    table = Table("classes", "By label", heads, rows, "Training rows, and clean rows where they were held out.")
    return _section("labels", "Label by label", to_html(table))


def _annotators(facts: ModelFacts) -> Markup | None:
    found = facts.annotators()
    if not found:
        return None
    order = sorted(found.items(), key=lambda pair: -(pair[1][0].value if pair[1][0].n else pair[1][1].value))
    rows = [(name, [_share(right), _share(agreed)]) for name, (right, agreed) in order]
    heads = ["annotator", "right where the truth is known", "agrees with the resolved label"]
    caption = "Percent, with the interval that holds the true share with a probability of 95 %, and the number of rows."
    return _section(
        "annotators", "What is each annotator worth?", to_html(Table("worth", "Annotators", heads, rows, caption))
    )


def _share(share: Share) -> Cell | None:
    if not share.n:
        return None
    low, high = share.interval
    return Cell(f"{100 * share.value:.1f}", notes=(f"{100 * low:.0f} to {100 * high:.0f}, {share.n:,} rows",))


def _look(facts: ModelFacts) -> Markup | None:
    if not len(facts.look):
        return None
    shown = facts.look[:ROWS_SHOWN]
    how = (
        "A model that did not see these rows leaves more than one of their candidates possible, none, or another than "
        "the one they were resolved to. Bars show the confidence in training; in brackets, what such a model says."
        if facts.held_out is not None
        else f"No candidate of these rows reached a confidence of {OPEN:g}."
    )
    count = f" The {len(shown)} most doubtful of {len(facts.look):,}." if len(shown) < len(facts.look) else ""
    cards = el("ol", [_card(facts, int(row)) for row in shown], class_="cards")
    return _section("look", "Which rows are worth a look?", el("p", how + count), cards)


def _card(facts: ModelFacts, row: int) -> Markup:
    name = facts.ids[row]
    options = np.argsort(-facts.confidence[row], kind="stable")[: int(facts.candidates[row].sum())]
    held = None if facts.held_out is None else facts.held_out[row]
    lines = []
    for k in options[:5]:
        value = float(facts.confidence[row, k])
        unseen = "" if held is None else f" ({100 * held[k]:.0f} %)"
        bar = el("span", class_="meter", style=f"--value: {value:.3f}", aria_hidden="true")
        lines.append(el("li", el("span", facts.classes[k]), bar, el("span", f"{100 * value:.0f} %{unseen}")))
    text, picture = facts.table.text.get(name), facts.table.pictures.get(name)
    truth = facts.table.truth.get(name)
    return el(
        "li",
        el("h3", f"Row {name}"),
        el("img", src=picture, alt=f"The picture of row {name}") if picture else None,
        el("p", text[:600] + ("…" if len(text) > 600 else ""), dir="auto") if text else None,
        el("ul", lines, class_="options"),
        el("p", f"Truth: {truth}", class_="note") if truth else None,
    )


def _training(facts: ModelFacts) -> Markup | None:
    epochs = [entry for entry in facts.history if entry.get("epoch", 0) >= 1 and "phase" not in entry]
    charts = []
    for key, words in CURVES.items():
        points = [(e["epoch"], e[key]) for e in epochs if isinstance(e.get(key), (int, float))]
        if len(points) > 1:
            x, y = zip(*points, strict=True)
            name = key.replace("_", " ")
            chart = line_chart(f"curve-{key}", words, [Line(name, x, y)], styles([name]), "epoch", name)
            charts.append(figure(words[:1].upper() + words[1:], chart))
            charts += (
                [el("p", _stages(facts.settings), class_="note")] if key == "loss" and _stages(facts.settings) else []
            )
    return _section("training", "How did the training go?", charts) if charts else None


def _stages(settings: Mapping[str, Any]) -> str:
    """Why the loss jumps where the loss schedule takes another; empty without a schedule."""
    used = settings.get("callbacks")
    named = [c for c in used if isinstance(c, Mapping)] if isinstance(used, (list, tuple)) else []
    schedule = next((c for c in named if c.get("name") == "loss-schedule"), None)
    if schedule is None:
        return ""
    first, last = (100 * float(schedule.get(key, 0.0)) for key in ("warmup_fraction", "finish_fraction"))
    return (
        f"The loss is another one in the first {first:.0f}\xa0% and in the last {last:.0f}\xa0% of the epochs "
        "(loss-schedule), so that its values there cannot be compared with the others."
    )


def _settings(facts: ModelFacts) -> Markup | None:
    rows = [(name, [Cell(value)]) for name, value in _flat(facts.settings)]
    if not rows:
        return None
    table = Table("chosen", "What was chosen", ["setting", "value"], rows, "What was chosen and used.", words=True)
    return _section("settings", "Settings", el("details", el("summary", f"{len(rows)} settings"), to_html(table)))


def _flat(settings: Any, before: str = "") -> list[tuple[str, str]]:
    """Nested settings as lines: `method.strength`, `callbacks.0.name`."""
    if isinstance(settings, Mapping):
        items = list(settings.items())
    elif isinstance(settings, (list, tuple)) and any(isinstance(item, (Mapping, list)) for item in settings):
        items = list(enumerate(settings))
    else:
        return [(before, str(settings))]
    return [line for name, value in items for line in _flat(value, f"{before}.{name}" if before else str(name))]
