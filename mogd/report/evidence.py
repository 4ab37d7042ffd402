"""Whether the methods of a table differ: the tests of `experiments.significance`, made ready to be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mogd.experiments.record import Record
from mogd.experiments.significance import Paired, critical_difference, paired_tests
from mogd.report import names
from mogd.report.table import Cell, Table

CAUTION = "Folds of one repetition share training rows, so these p-values are somewhat too small."


@dataclass(frozen=True)
class Ranking:
    """Average ranks, the critical difference, the groups that do not differ, and the test in words."""

    ranks: Mapping[str, float]
    distance: float
    groups: Sequence[tuple[float, float]]  # rank of the first and of the last
    sentence: str

    @property
    def separates(self) -> bool:
        """Whether any two methods differ: a diagram whose one bar joins them all shows nothing."""
        return self.distance < max(self.ranks.values()) - min(self.ranks.values())


def ranking(records: Sequence[Record]) -> Ranking | None:
    """What the critical-difference diagram shows; None where there is too little to compare."""
    found = critical_difference(records)
    if found is None:
        return None
    ends = [(found.ranks[group[0]], found.ranks[group[-1]]) for group in found.groups]
    sentence = (
        f"Friedman's test over {found.n_blocks} blocks (a column in one repetition), {len(found.ranks)} methods: "
        f"p {p_text(found.friedman_p, '= ')}. Nemenyi's critical difference at 0.05 is {found.distance:.2f} ranks"
    )
    made = Ranking(found.ranks, found.distance, ends, f"{sentence}.")
    return made if made.separates else replace(made, sentence=f"{sentence}, more than lies between any two of them.")


def paired_tables(records: Sequence[Record], ours: str, identity: str) -> list[Table]:
    """Ours against every rival: over all columns, and on each data set where there are several."""
    together = paired_tests(records, ours)
    if not together:
        return []
    rows = [(t.rival, [Cell(text) for text in _facts(t)]) for t in together]
    heads = ["rival", "runs", f"{ours} − rival, points", "better / worse", "p", "p, Holm", "differs at 0.05"]
    title = f"{ours} against each rival: Wilcoxon's signed-rank test over paired runs"
    caution = [CAUTION] if any(r["fold"] is not None for r in records) else []
    found = [Table(f"{identity}-tests", title, heads, rows, "All columns together.", footnotes=caution)]
    datasets = list(dict.fromkeys(r["dataset"] for r in records))
    if len(datasets) > 1:
        found.append(_by_dataset(paired_tests(records, ours, by_dataset=True), datasets, ours, identity))
    return found


def _by_dataset(tests: Sequence[Paired], datasets: Sequence[str], ours: str, identity: str) -> Table:
    at = {(t.rival, t.dataset): t for t in tests}
    rows = []
    for rival in dict.fromkeys(t.rival for t in tests):
        cells = [at.get((rival, dataset)) for dataset in datasets]
        rows.append((rival, [None if t is None else _marked(t) for t in cells]))
    heads = ["rival", *map(names.dataset_title, datasets)]
    caption = f"{ours} − rival in points on each data set; * differs at 0.05 after Holm's correction."
    return Table(f"{identity}-tests-by-set", f"{ours} against each rival, by data set", heads, rows, caption)


def _facts(t: Paired) -> tuple[str, ...]:
    return (
        str(t.n),
        _difference(t),
        f"{t.wins} / {t.losses}",
        p_text(t.p),
        p_text(t.p_holm),
        "yes" if t.significant else "no",
    )


def _marked(t: Paired) -> Cell:
    return Cell(_difference(t) + ("*" if t.significant else ""))


def _difference(t: Paired) -> str:
    return f"{100 * t.difference:+.2f}".replace("-", "−")


def p_text(p: float, equals: str = "") -> str:
    """A p-value as it is printed."""
    return "< 0.001" if p < 0.001 else f"{equals}{p:.3f}"
