"""HTML and SVG as nested calls: whatever is not `Markup` is escaped, so a label can never become a tag."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

Child = object  # a str or number (escaped), Markup (kept), None (nothing) or an iterable of these

_VOID = {"meta", "br", "hr", "img", "link", "input", "col"}


class Markup(str):
    """Text that is markup already; only `el`, `join` and `raw` make it."""

    __slots__ = ()


def raw(text: str) -> Markup:
    """Text of our own package files (CSS, script), taken as it stands."""
    return Markup(text)


def join(children: Iterable[Child]) -> Markup:
    """The children one after the other, escaped where they are not markup."""
    return Markup("".join(_render(child) for child in children))


def el(tag: str, /, *children: Child, **attributes: object) -> Markup:
    """One element: `el("td", text, class_="best", data_n=3)`; `None` and `False` leave an attribute out.

    A trailing underscore is dropped (`class_`, `for_`) and the others become hyphens (`aria_label`).
    """
    shown = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    if tag in _VOID:
        return Markup(f"<{tag}{shown}>")
    return Markup(f"<{tag}{shown}>{join(children)}</{tag}>")


def _attribute(key: str, value: object) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(_number(value))}"'


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return str(child)
    if isinstance(child, str | int | float):
        return escape(_number(child))
    if isinstance(child, Iterable):
        return join(child)
    raise TypeError(f"a child must be text, a number, markup or a list of these; got {type(child).__name__}")


def _number(value: object) -> str:
    """Coordinates need two decimals and no more: the page stays small."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
