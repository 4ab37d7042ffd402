"""The answer that a report begins with: which method for which kind of data, by how much, how sure, at what cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from mogd.datasets.sources import SOURCES
from mogd.experiments.record import Record
from mogd.experiments.significance import Paired, paired_tests
from mogd.experiments.summary import REFERENCE
from mogd.report import names
from mogd.report.evidence import p_text
from mogd.report.sections import Section
from mogd.report.table import Cell, Table

TITLE = "Which method for which data?"
SIDE_TABLES = (names.ABLATION, "clean-size", "curves", "weighted")  # they vary one thing, and choose no method
CANDIDATES = {
    None: "genuine candidate sets",
    "binomial": "candidates drawn at random",
    "uniform": "candidates drawn at random",
    "instance-dependent": "candidates that look alike",
    "annotators": "labels of several annotators",
}
CHOSEN = "chosen on the training rows"  # one of the others each time, and so none of their rivals
WITHOUT_NETWORK = {"plsvm": "linear", "clean-logistic": "linear", "clean-forest": "forest"}
WITHOUT_NETWORK |= {"auto": CHOSEN, "plknn": "neighbours", "ipal": "neighbours"}
SCALES = ("paper", "overnight", "laptop")  # of several scales of one table the largest answers
FEW = 6  # with fewer pairs Wilcoxon's test cannot reach 0.05


@dataclass(frozen=True)
class Choice:
    """The best method of one family on one kind of data, and what it was ahead of."""

    kind: str
    datasets: tuple[str, ...]
    family: str
    section: str  # the identity of the section that has the figures
    label: str
    accuracy: float  # mean over the columns of its table
    seconds: float  # mean of a fit, parameters chosen included
    rival: Paired | None
    rival_seconds: float | None
    best: bool = False  # of all families on this data

    @property
    def data(self) -> str:
        return f"{self.kind} ({', '.join(map(names.dataset_title, self.datasets))})"

    @property
    def ahead(self) -> str:
        if self.rival is None:
            return "–"
        return f"{100 * self.rival.difference:+.2f} ".replace("-", "−") + f"({self.rival.rival})"

    @property
    def sure(self) -> str:
        if self.rival is None:
            return "–"
        if self.rival.n < FEW:
            return f"{self.rival.n} paired run{'s' if self.rival.n > 1 else ''}: too few"
        return f"{'yes' if self.rival.significant else 'no'}, p {p_text(self.rival.p_holm, '= ')}"

    @property
    def cost(self) -> str:
        rival = "" if self.rival_seconds is None else f" (next: {_seconds(self.rival_seconds)})"
        return _seconds(self.seconds) + rival


def family(record: Record) -> str:
    """What a method fits: a linear model, a kernel, a network of some kind, neighbours, a forest."""
    backbone = record["params"].get("backbone")
    if backbone is not None:
        return {"linear": "linear", "rbf": "kernel"}.get(backbone, f"network, {backbone}")
    by_kernel = {"rbf": "kernel", "linear": "linear"}.get(record["params"].get("kernel"), "other")
    return WITHOUT_NETWORK.get(record["algorithm"], by_kernel)


def choices(sections: Sequence[Section]) -> list[Choice]:
    """A choice for each kind of data and family; of several tables that have them, the one with the best at the largest
    scale counts, and one that compares before one with a single method."""
    tables = [s for s in sections if s.summary is not None and not s.recipe.startswith(SIDE_TABLES)]
    made: list[tuple[int, Choice]] = []
    for section in tables:
        scale = SCALES.index(section.scale) if section.scale in SCALES else len(SCALES)
        of_families = (_choice(section, name) for name in dict.fromkeys(map(family, section.records)))
        made += [(scale, choice) for choice in of_families if choice is not None]
    found: dict[tuple[str, tuple[str, ...], str], Choice] = {}
    for _, choice in sorted(made, key=lambda entry: (entry[1].rival is None, entry[0], -entry[1].accuracy)):
        found.setdefault((choice.kind, choice.datasets, choice.family), choice)
    return _marked(list(found.values()))


def _choice(section: Section, name: str) -> Choice | None:
    summary = section.summary
    assert summary is not None
    own = [r for r in section.records if family(r) == name and r["algorithm"] != REFERENCE]
    columns = [i for i, column in enumerate(summary.columns) if column.dataset in {r["dataset"] for r in own}]
    rows = {label: [summary.row(label)[i] for i in columns] for label in dict.fromkeys(r["label"] for r in own)}
    means = {
        label: fmean(entry.mean for entry in row if entry.mean is not None)
        for label, row in rows.items()
        if all(entry.mean is not None for entry in row)
    }
    if not means:
        return None
    best, *others = sorted(means, key=lambda label: -means[label])
    mine = _paper_of(summary.algorithms[best])
    rival = next((label for label in others if _paper_of(summary.algorithms[label]) != mine), None)
    tests = {test.rival: test for test in paired_tests(own, best)}
    return Choice(
        kind=_kind(own[0]),
        datasets=tuple(dict.fromkeys(summary.columns[i].dataset for i in columns)),
        family=name,
        section=section.identity,
        label=best,
        accuracy=means[best],
        seconds=_mean_seconds(own, best),
        rival=None if rival is None else tests.get(rival),
        rival_seconds=None if rival is None else _mean_seconds(own, rival),
    )


def _paper_of(algorithm: str) -> str:
    """Both forms of MoGD are one method: neither is the other's rival."""
    return algorithm.removesuffix("-paper")


def _kind(record: Record) -> str:
    source = SOURCES.get(record["dataset"])
    what = "Pictures" if source is not None and source.is_image else "Feature tables"
    generator = (record["corruption"] or {}).get("generator")
    return f"{what}, {CANDIDATES.get(generator, f'{generator} candidates')}"


def _mean_seconds(records: Sequence[Record], label: str) -> float:
    return fmean(sum((r.get("seconds") or {}).values()) for r in records if r["label"] == label)


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 10 else f"{value:.2g} s"


def _marked(found: Sequence[Choice]) -> list[Choice]:
    """The same with the best family of each kind of data marked, kinds together, the best first."""
    order = list(dict.fromkeys(c.data for c in found))
    ranked = sorted(found, key=lambda c: (order.index(c.data), -c.accuracy))
    firsts: dict[str, Choice] = {}
    for c in sorted(ranked, key=lambda c: c.family == CHOSEN):  # what is chosen among the others comes after them
        firsts.setdefault(c.data, c)
    return [replace(c, best=True) if firsts[c.data] is c else c for c in ranked]


def sentence(found: Sequence[Choice]) -> str:
    """Who is first most often, and how sure that is."""
    compared = {c.data for c in found if c.rival is not None}
    alone = len({c.data for c in found} - compared)
    firsts = [c for c in found if c.best and (c.data in compared or not compared)]
    label = Counter(c.label for c in firsts).most_common(1)[0][0]
    won = [c for c in firsts if c.label == label]
    sure = sum(c.rival is not None and c.rival.significant for c in won)
    few = sum(c.rival is None or c.rival.n < FEW for c in won)
    kinds = "the one kind of data" if len(firsts) == 1 else f"{len(won)} of {len(firsts)} kinds of data"
    doubt = f", and {few} {'has' if few == 1 else 'have'} too few runs to say" if few else ""
    said = (
        f"{label} is first on {kinds}. Its lead over the next method of its family is more than noise on {sure}{doubt}."
    )
    return said + (
        f" {alone} more {'has' if alone == 1 else 'have'} nothing to compare yet." if compared and alone else ""
    )


def answer_table(found: Sequence[Choice]) -> Table:
    """Families beside each other: what each can do on a kind of data, and what it costs."""
    heads = ["data", "family", "best method", "accuracy, %", "lead in points over the next", "sure?", "time of a fit"]
    rows = []
    for c in found:
        cells = (c.family, c.label, f"{100 * c.accuracy:.1f}", c.ahead, c.sure, c.cost)
        rows.append((c.data, [Cell(text, mark="best" if c.best and i == 2 else None) for i, text in enumerate(cells)]))
    return Table(
        identity="answer-table",
        title=TITLE,
        columns=heads,
        rows=rows,
        caption="The best method of each family by its mean test accuracy, and its lead over the best other method "
        "of the family. Families on the same data are comparable: the best is bold.",
        footnotes=[
            "Sure: Wilcoxon's signed-rank test over paired runs, with Holm's correction over the family; where runs "
            "are folds they share training rows, and p is somewhat too small. Time: seconds on one thread."
        ],
        words=True,
    )
