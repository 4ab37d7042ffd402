"""What every chart shares: a frame with a name, scales and ticks, and line styles that differ in more than colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mogd.report.markup import Child, Markup, el

N_COLOURS = 6  # --c0 … --c5 in page.css: apart for colour-blind eyes as well
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4")
MARKERS = ("circle", "square", "triangle", "diamond", "cross", "plus", "ring")
Scale = Callable[[float], float]


@dataclass(frozen=True)
class Style:
    """How the i-th method is drawn. The cycles have lengths without a common factor, so 210 methods differ."""

    index: int

    @property
    def colour(self) -> str:
        return f"var(--c{self.index % N_COLOURS})"

    @property
    def dash(self) -> str | None:
        return DASHES[self.index % len(DASHES)] or None

    @property
    def width(self) -> float:
        return 3.0 if self.index == 0 else 1.8

    @property
    def emphasis(self) -> str | None:
        return "first" if self.index == 0 else None

    def marker(self, x: float, y: float, size: float = 4.0) -> Markup:
        """The method's sign at one point."""
        shape = MARKERS[self.index % len(MARKERS)]
        if shape in ("circle", "ring"):
            fill = self.colour if shape == "circle" else "var(--ground)"
            return el("circle", cx=x, cy=y, r=size, fill=fill, stroke=self.colour, stroke_width=1.6)
        if shape in ("cross", "plus"):
            d = f"M-{size} 0H{size}M0 -{size}V{size}"
            turn = " rotate(45)" if shape == "cross" else ""
            return el("path", d=d, transform=f"translate({x:.1f} {y:.1f}){turn}", stroke=self.colour, stroke_width=2.2)
        corners = {
            "square": f"M-{size} -{size}H{size}V{size}H-{size}Z",
            "triangle": f"M0 -{size * 1.2}L{size * 1.15} {size}H-{size * 1.15}Z",
            "diamond": f"M0 -{size * 1.35}L{size * 1.35} 0L0 {size * 1.35}L-{size * 1.35} 0Z",
        }
        return el("path", d=corners[shape], transform=f"translate({x:.1f} {y:.1f})", fill=self.colour)


def styles(labels: Sequence[str]) -> dict[str, Style]:
    """One style per label, the same on the whole page; the first label is drawn strongest."""
    return {label: Style(index) for index, label in enumerate(labels)}


def svg(identity: str, title: str, description: str, width: float, height: float, *children: Child) -> Markup:
    """A drawing with a name and a description; the description carries the figures for those who cannot see it.

    It shrinks to 85 % of its size and no further: on a phone its box scrolls, and the text stays readable.
    """
    return el(
        "svg",
        el("title", title, id=f"{identity}-t"),
        el("desc", description, id=f"{identity}-d"),
        *children,
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        style=f"min-width: {0.75 * width:.0f}px",
        role="img",
        aria_labelledby=f"{identity}-t {identity}-d",
    )


def text(
    x: float, y: float, content: object, anchor: str = "start", class_: str | None = None, **more: object
) -> Markup:
    """A label that is real text: it can be searched, selected and read aloud."""
    return el("text", content, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=class_, **more)


def linear(domain: tuple[float, float], target: tuple[float, float]) -> Scale:
    """The straight map from values to pixels; a domain of one value lands in the middle."""
    (low, high), (start, end) = domain, target
    if high == low:
        return lambda value: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values (steps of 1, 2 or 5 times a power of ten) that enclose [low, high]."""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= span / about * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(index * step, 10) for index in range(first, max(last, first + 1) + 1)]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move positions until neighbours are `gap` apart, as little as possible (isotonic fit), within [low, high]."""
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    blocks: list[list[float]] = []  # [sum of offset targets, count]
    for rank, i in enumerate(order):
        blocks.append([wanted[i] - rank * gap, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] > blocks[-1][0] / blocks[-1][1]:
            total, count = blocks.pop()
            blocks[-1][0] += total
            blocks[-1][1] += count
    base = [total / count for total, count in blocks for _ in range(int(count))]
    ceiling = high - (len(wanted) - 1) * gap
    placed = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        placed[i] = max(low, min(ceiling, base[rank])) + rank * gap
    return placed
