"""The charts of the page, as inline SVG: lines, confidence histograms, critical differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mogd.report.markup import Markup, el
from mogd.report.svg import Scale, Style, linear, spread, svg, text, ticks

PLOT = 540.0  # width of a plot; labels stand outside of it
_LABEL = 13.0  # height of a line of labels
CHAR = 7.2  # width of a letter at 12 px: nothing can be measured before there is a browser


@dataclass(frozen=True)
class Line:
    """One method's line; `error` (if any) is drawn as a thin bar of ± error."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None

    @property
    def low(self) -> float:
        return min(y - e for y, e in zip(self.y, self.error or [0.0] * len(self.y), strict=True))

    @property
    def high(self) -> float:
        return max(y + e for y, e in zip(self.y, self.error or [0.0] * len(self.y), strict=True))


def line_chart(
    identity: str,
    title: str,
    lines: Sequence[Line],
    styles: Mapping[str, Style],
    x_name: str,
    y_name: str = "accuracy, %",
    from_zero: bool = False,
) -> Markup:
    """Lines over a number, each labelled at its right end; `x` of few values (q, M) is ticked exactly there."""
    values = sorted({x for line in lines for x in line.x})
    measured = len(values) <= 8
    evenly = measured and _crowded(values)
    x_ticks = values if measured else ticks(values[0], values[-1], 6)
    low = 0.0 if from_zero else min(line.low for line in lines)
    y_ticks = ticks(low, max(line.high for line in lines), 6)
    room = 52 + CHAR * max(len(line.label) for line in lines)
    left = 30 + CHAR * max(4, *(len(f"{t:g}") for t in y_ticks))
    right, top = left + PLOT, 14.0
    height = max(300.0, top + 50 + _LABEL * 1.1 * len(lines))
    bottom = height - 46
    place = linear((0, len(values) - 1), (left + 14, right - 14)) if evenly else None
    plain = linear((x_ticks[0], x_ticks[-1]), (left + 14, right - 14) if measured else (left, right))

    def at(value: float) -> float:
        return place(values.index(value)) if place else plain(value)

    up = linear((y_ticks[0], y_ticks[-1]), (bottom, top))
    parts = [el("line", x1=left, x2=right, y1=up(t), y2=up(t), class_="grid") for t in y_ticks]
    parts += [text(left - 8, up(t) + 4, f"{t:g}", "end", "tick") for t in y_ticks]
    parts += [el("line", x1=at(t), x2=at(t), y1=bottom, y2=bottom + 5, class_="axis") for t in x_ticks]
    parts += [text(at(t), bottom + 19, f"{t:g}", "middle", "tick") for t in x_ticks]
    note = " (values evenly spaced)" if evenly else ""
    parts.append(text((left + right) / 2, height - 8, x_name + note, "middle", "axis-name"))
    middle = (top + bottom) / 2
    parts.append(text(14, middle, y_name, "middle", "axis-name", transform=f"rotate(-90 14 {middle:.0f})"))
    shelf = spread([up(line.y[-1]) for line in lines], _LABEL * 1.1, top, bottom)
    for line, shelf_y in sorted(zip(lines, shelf, strict=True), key=lambda pair: -styles[pair[0].label].index):
        parts.append(_line(line, styles[line.label], at, up, with_markers=len(line.x) <= 12))
        end_x, end_y = at(line.x[-1]), up(line.y[-1])
        parts.append(el("path", d=f"M{end_x + 6:.1f} {end_y:.1f}L{right + 22:.1f} {shelf_y:.1f}", class_="leader"))
        parts.append(styles[line.label].marker(right + 28, shelf_y, 3.4))
        parts.append(text(right + 37, shelf_y + 4, line.label, class_=styles[line.label].emphasis))
    return svg(identity, title, _describe(lines, x_name, y_name), right + room, height, *parts)


def _line(line: Line, style: Style, at: Scale, up: Scale, with_markers: bool) -> Markup:
    points = [(at(x), up(y)) for x, y in zip(line.x, line.y, strict=True)]
    d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    parts = [el("path", d=d, fill="none", stroke=style.colour, stroke_width=style.width, stroke_dasharray=style.dash)]
    for (x, _), y, error in zip(points, line.y, line.error or (), strict=False):
        parts.append(el("line", x1=x, x2=x, y1=up(y - error), y2=up(y + error), stroke=style.colour, stroke_width=1.0))
    marked = points if with_markers else points[:: max(1, len(points) // 6)]
    parts += [style.marker(x, y, 4.4 if style.index == 0 else 3.6) for x, y in marked]
    return el("g", *parts)


def _crowded(values: Sequence[float]) -> bool:
    gaps = [after - before for before, after in pairwise(values)]
    return bool(gaps) and min(gaps) < 0.07 * (values[-1] - values[0])


def _describe(lines: Sequence[Line], x_name: str, y_name: str) -> str:
    said = []
    for line in lines:
        points = list(zip(line.x, line.y, strict=True))
        if len(points) > 8:
            points = [points[0], points[len(points) // 2], points[-1]]
        said.append(f"{line.label}: " + ", ".join(f"{y:.1f} at {x:g}" for x, y in points))
    return f"{y_name} over {x_name}. " + "; ".join(said) + "."


def histograms(identity: str, title: str, shares: Mapping[str, Sequence[float]], styles: Mapping[str, Style]) -> Markup:
    """One strip per method: the share of training rows in each bin of the top candidate's confidence."""
    labels = list(shares)
    row, top, left = 30.0, 22.0, 24 + CHAR * max(map(len, labels))
    right = left + 0.55 * PLOT  # narrow: a phone should show more of it than its labels
    height = top + row * len(labels) + 44
    parts = [text(right + 8, 12, "above 0.95", class_="tick")]
    for index, label in enumerate(labels):
        base = top + row * (index + 1) - 4
        share = shares[label]
        step, peak = (right - left) / len(share), max(*share, 1e-12)
        parts.append(text(left - 10, base - 5, label, "end", styles[label].emphasis))
        parts.append(el("line", x1=left, x2=right, y1=base, y2=base, class_="grid"))
        for k, value in enumerate(share):
            tall = (row - 7) * value / peak
            if tall > 0.2:
                box = {"x": left + k * step + 1, "y": base - tall, "width": step - 2, "height": tall}
                parts.append(el("rect", fill=f"var({'--c0' if styles[label].index == 0 else '--muted'})", **box))
        parts.append(text(right + 8, base - 5, f"{100 * share[-1]:.0f} %"))
    bottom = top + row * len(labels)
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(text(left + value * (right - left), bottom + 14, f"{value:g}", "middle", "tick"))
    parts.append(
        text((left + right) / 2, height - 6, "confidence of the candidate a row was resolved to", "middle", "axis-name")
    )
    figures = "; ".join(f"{label}: {100 * share[-1]:.0f} % above 0.95" for label, share in shares.items())
    return svg(identity, title, f"Share of training rows by top confidence. {figures}.", right + 84, height, *parts)


def critical_difference(
    identity: str, title: str, ranks: Mapping[str, float], cd: float, groups: Sequence[tuple[float, float]]
) -> Markup:
    """Average ranks on a line; a bar joins methods whose ranks differ by less than the critical difference."""
    ordered = sorted(ranks.items(), key=lambda pair: pair[1])
    low, high = 1, max(2, len(ordered))
    left = 22 + CHAR * (6 + max(map(len, ranks)))
    right = left + 0.75 * PLOT
    at = linear((low, high), (left, right))
    axis, row = 58.0, 19.0
    half = (len(ordered) + 1) // 2
    first = axis + 22 + 8 * len(groups)
    height = first + row * half + 6
    reach, beyond = min(at(low + cd), right), " (beyond the axis)" if at(low + cd) > right else ""
    parts = [
        el("path", d=f"M{left} 18V28M{left} 23H{reach:.1f}M{reach:.1f} 18V28", class_="bracket"),
        text((left + reach) / 2, 14, f"critical difference {cd:.2f}{beyond}", "middle", "tick"),
        el("line", x1=left, x2=right, y1=axis, y2=axis, class_="axis"),
    ]
    every = 1 if high <= 12 else 2
    for rank in range(low, high + 1, every):
        parts.append(el("line", x1=at(rank), x2=at(rank), y1=axis - 6, y2=axis, class_="axis"))
        parts.append(text(at(rank), axis - 10, rank, "middle", "tick"))
    for index, (start, end) in enumerate(groups):
        y = axis + 12 + 8 * index
        parts.append(el("line", x1=at(start) - 4, x2=at(end) + 4, y1=y, y2=y, class_="clique"))
    for index, (label, average) in enumerate(ordered):
        on_left = index < half
        y = first + row * ((index if on_left else len(ordered) - 1 - index) + 0.5)
        edge = left - 10 if on_left else right + 10
        parts.append(el("path", d=f"M{at(average):.1f} {axis}V{y:.1f}H{edge:.1f}", class_="stem"))
        words = f"{label}  {average:.2f}" if on_left else f"{average:.2f}  {label}"
        parts.append(text(edge - 6 if on_left else edge + 6, y + 4, words, "end" if on_left else "start"))
    listed = ", ".join(f"{label} {rank:.2f}" for label, rank in ordered)
    joined = f" {len(groups)} bars join methods that do not differ." if groups else " No two methods are joined."
    description = f"Average ranks, 1 is best: {listed}. Critical difference {cd:.2f}.{joined}"
    return svg(identity, title, description, left + right, height, *parts)
