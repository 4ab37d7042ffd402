"""The charts of a model's page: shares with their intervals, and how far a confidence can be trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mogd.evaluation import Share
from mogd.report.charts import CHAR
from mogd.report.markup import Markup, el
from mogd.report.svg import linear, svg, text


def share_bars(identity: str, title: str, shares: Mapping[str, Share], own: str) -> Markup:
    """A bar for each share from 0 to 100 %, with its 95 % interval; that of the model, named `own`, stands out."""
    left, row, top = 16 + CHAR * max(map(len, shares)), 30.0, 8.0
    right = left + 230  # a phone shows all of it
    at = linear((0, 1), (left, right))
    height = top + row * len(shares) + 26
    bottom = top + row * len(shares)
    parts = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(el("line", x1=at(tick), x2=at(tick), y1=top, y2=bottom, class_="grid"))
        parts.append(text(at(tick), bottom + 16, f"{100 * tick:g}", "middle", "tick"))
    for index, (label, share) in enumerate(shares.items()):
        y, (low, high) = top + row * index, share.interval
        is_own = label.endswith(own)
        colour = "var(--c0)" if is_own else "var(--muted)"
        parts.append(text(left - 10, y + 19, label, "end", "first" if is_own else None))
        bar = {"x": left, "y": y + 6, "width": at(share.value) - left, "height": row - 12}
        parts.append(el("rect", **bar, fill=colour, opacity=0.75))
        whisker = f"M{at(low):.1f} {y + 10:.1f}V{y + 20:.1f}M{at(low):.1f} {y + 15:.1f}H{at(high):.1f}"
        parts.append(el("path", d=f"{whisker}M{at(high):.1f} {y + 10:.1f}V{y + 20:.1f}", class_="whisker"))
        parts.append(text(right + 12, y + 19, f"{100 * share.value:.1f} %", class_="first" if is_own else None))
    listed = "; ".join(f"{label} {share}" for label, share in shares.items())
    return svg(identity, title, f"{listed}.", right + 70, height, *parts)


def reliability_chart(identity: str, title: str, bins: Sequence[Mapping[str, float]]) -> Markup:
    """Accuracy over confidence, a disc for each bin, as large as it has rows; on the diagonal one is the other."""
    left, size, top = 46.0, 240.0, 10.0
    at, up = linear((0, 1), (left, left + size)), linear((0, 1), (top + size, top))
    parts = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(el("line", x1=left, x2=left + size, y1=up(tick), y2=up(tick), class_="grid"))
        parts.append(text(left - 8, up(tick) + 4, f"{100 * tick:g}", "end", "tick"))
        parts.append(text(at(tick), top + size + 17, f"{100 * tick:g}", "middle", "tick"))
    parts.append(el("line", x1=at(0), y1=up(0), x2=at(1), y2=up(1), class_="axis", stroke_dasharray="4 4"))
    most = max(entry["rows"] for entry in bins)
    for entry in bins:
        share = Share(round(entry["accuracy"] * entry["rows"]), int(entry["rows"]))
        low, high = share.interval
        x = at(entry["confidence"])
        parts.append(el("line", x1=x, x2=x, y1=up(low), y2=up(high), stroke="var(--c0)", stroke_width=1.2))
        radius = 3 + 6 * (entry["rows"] / most) ** 0.5
        parts.append(el("circle", cx=x, cy=up(entry["accuracy"]), r=radius, fill="var(--c0)", opacity=0.85))
    parts.append(text(left + size / 2, top + size + 36, "confidence, %", "middle", "axis-name"))
    middle = top + size / 2
    parts.append(text(12, middle, "right, %", "middle", "axis-name", transform=f"rotate(-90 12 {middle:.0f})"))
    listed = "; ".join(
        f"{entry['rows']:.0f} rows at {100 * entry['confidence']:.0f} %: {100 * entry['accuracy']:.0f} % right"
        for entry in bins
    )
    return svg(identity, title, f"{listed}.", left + size + 16, top + size + 42, *parts)
