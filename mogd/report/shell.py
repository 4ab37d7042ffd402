"""What every page shares: one HTML document with its style and script inside, that asks the network for nothing."""

from __future__ import annotations

from importlib.resources import files

from mogd.report.markup import Child, Markup, el, raw


def document(title: str, top: Child, main: Child, footer: Child) -> str:
    """A whole page as text."""
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href="data:,"),  # or the browser asks for favicon.ico
        el("title", title),
        el("style", _own("page.css")),
    )
    body = el(
        "body",
        el("a", "Skip to the results", href="#results", class_="skip"),
        el("header", el("h1", title), el("button", "Dark page", id="theme", type="button", hidden=True)),
        el("main", top, el("div", main, id="results", tabindex="-1"), id="main"),
        el("footer", footer),
        el("script", _own("page.js")),
    )
    return "<!doctype html>\n" + el("html", head, body, lang="en") + "\n"


def figure(title: str, drawing: Markup) -> Markup:
    """A chart under its title, in a box that scrolls by itself."""
    box = el("div", drawing, class_="scroll", role="group", aria_label=title, tabindex=0)
    return el("figure", el("figcaption", title), box)


def fact(number: str, word: str, bad: bool = False) -> Markup:
    """A large number and what it counts, as an item of a list of the class `facts`."""
    return el("li", el("b", number), el("span", word), class_="bad" if bad else None)


def _own(name: str) -> Markup:
    return raw(files("mogd.report").joinpath(name).read_text(encoding="utf-8"))
