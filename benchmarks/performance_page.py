"""docs/performance.md and its charts, from results/performance.json."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import mogd.report
from mogd.report.charts import Line, line_chart
from mogd.report.svg import styles

NAMES = {"n": "rows n", "K": "classes K", "M": "clean rows M", "b": "batch size b"}
CASES = {
    "wide-resnet": "Wide-ResNet-10-2, b = 64",
    "linear": "linear 784→10, b = 256",
    "mlp": "MLP 784-300-300-10, b = 256",
}
INTRODUCTION = """# Performance

Every figure here comes from one run of

```sh
make bench
```

which writes `results/performance.json` and this page. What is compared takes turns within the run, processor seconds
are counted and medians compared; peak memory is the operating system's. {about}
"""


def write(found: Mapping[str, Any], docs: Path) -> None:
    charts = docs / "performance"
    charts.mkdir(exist_ok=True)
    host = found["host"]
    about = f"Commit `{str(found['commit'])[:7]}`, torch {found['versions']['torch']}, {host['system']}, "
    about += f"{host['cpus']} cores." + (" **A short run, only to see that it works.**" if found["quick"] else "")
    parts = [INTRODUCTION.format(about=about), _steps(found["steps"]), _plain(found["plain"])]
    parts += [_growth(found["growth"], charts), _threads(found["threads"]), _predict(found["predict"])]
    (docs / "performance.md").write_text("\n".join(parts), encoding="utf-8")


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines]) + "\n"


def _steps(steps: Mapping[str, Mapping[str, float]]) -> str:
    kinds = [kind for kind in next(iter(steps.values())) if kind != "plain"]
    lines = [
        [CASES[name], f"{1e3 * spent['plain']:.2f}", *(f"{spent[kind] / spent['plain']:.2f}" for kind in kinds)]
        for name, spent in steps.items()
    ]
    said = "## The meta step\n\nIn plain weighted cross-entropy steps, of which the first column has the milliseconds; "
    said += "half as many clean rows as the batch's, one thread. Why: [study](studies/cost.md).\n\n"
    return said + _table(["", "plain, ms", *kinds], lines)


def _plain(pairs: Mapping[str, Mapping[str, float]]) -> str:
    lines = [
        [name, f"{s['ours']:.3f}", f"{s['plain']:.3f}", f"{s['ours'] / s['plain']:.2f}"] for name, s in pairs.items()
    ]
    said = (
        "## Beside a plain implementation\n\n`benchmarks/plain.py` has both methods straight from their papers, with "
    )
    return said + "nothing of the library.\n\n" + _table(["", "ours, s", "plain, s", "ratio"], lines)


def _growth(growth: Mapping[str, Any], charts: Path) -> str:
    said = "## Growth\n\nOne epoch of MoGD with a linear model: 64 features, three candidates a row; 20,000 rows, 20 "
    said += "classes, 100 clean rows and batches of 256 where nothing else is said. Memory is what the fit adds to the "
    said += "peak. An exponent of 1 is growth in proportion.\n"
    lines = []
    for name, curve in growth.items():
        seconds, memory = curve["exponents"]
        ends = [f"{values[0]:.2f} → {values[-1]:.2f}" for values in (curve["seconds"], curve["MiB"])]
        sizes = f"{curve['sizes'][0]:,} → {curve['sizes'][-1]:,}"
        lines.append([NAMES[name], sizes, ends[0], f"{seconds:.2f}", ends[1], f"{memory:.2f}"])
    head = ["", "sizes", "seconds an epoch", "exponent", "MiB", "exponent"]
    pictures = []
    for name, curve in growth.items():
        for what, label in (("seconds", "processor seconds an epoch"), ("MiB", "MiB beyond the rows")):
            line = Line(label, curve["sizes"], curve[what])
            title = f"{label} over {NAMES[name]}"
            drawn = line_chart(f"{name}-{what}", title, [line], styles([label]), NAMES[name], label, from_zero=True)
            file = charts / f"{name}-{what.lower()}.svg"
            file.write_text(_standalone(str(drawn)), encoding="utf-8")
            pictures.append(f"![{title}](performance/{file.name})")
    return said + "\n" + _table(head, lines) + "\n" + "\n\n".join(pictures) + "\n"


def _threads(seconds: Mapping[str, Mapping[str, Any]]) -> str:
    kinds = ("processor", "clock")
    lines = [[key, *("given up" if s[k] is None else f"{s[k]:.2f}" for k in kinds)] for key, s in seconds.items()]
    ratio = seconds["busy, auto"]["processor"] / seconds["idle, auto"]["processor"]
    said = (
        "## Threads\n\nThe README's example with 30 epochs, alone and beside a process that keeps one core busy; the "
    )
    said += f"number of threads is `n_threads`, auto its default. Busy over idle by default: {ratio:.2f}.\n\n"
    return said + _table(["machine, threads", "processor seconds", "seconds"], lines)


def _predict(rates: Mapping[str, float]) -> str:
    lines = [[name, f"{rate:,.0f}"] for name, rate in rates.items()]
    return "## Prediction\n\nOn one thread, 64 features, 20 classes.\n\n" + _table(["", "rows a second"], lines)


def _standalone(drawn: str) -> str:
    """A chart of the report with the colours that the page would give it."""
    sheet = (Path(mogd.report.__file__).parent / "page.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"(--(?:c\d|ground|ink|muted|rule)): light-dark\((#\w+),", sheet))
    rules = "\n".join(line for line in sheet.splitlines() if line.startswith("svg "))
    for name, value in colours.items():
        drawn, rules = drawn.replace(f"var({name})", value), rules.replace(f"var({name})", value)
    opening, rest = drawn.split(">", 1)
    opening = opening if "xmlns=" in opening else opening.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{opening}><style>{rules}</style>{rest}\n"
