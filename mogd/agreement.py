"""How far annotators agree: Krippendorff's alpha, each one against the others and against clean labels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Vote = tuple[Any, str, Any]  # task, annotator, label


class Annotator(NamedTuple):
    """One annotator's votes, and how often they agree with those of others on the same tasks and with clean labels."""

    name: str
    votes: int
    agreement: float | None  # with the others' votes on the same tasks
    clean_votes: int  # votes on clean tasks
    clean_accuracy: float | None


def krippendorff_alpha(votes: Iterable[Vote]) -> float | None:
    """Krippendorff's alpha for nominal labels: 1 is perfect agreement, 0 what chance would give.

    None where nothing can be said: no task with two votes, or one label alone.
    """
    tasks: dict[Any, Counter[Any]] = defaultdict(Counter)
    for task, _, label in votes:
        tasks[task][label] += 1
    totals: Counter[Any] = Counter()
    agreeing = 0.0  # the diagonal of the coincidence matrix
    for counts in tasks.values():
        size = counts.total()
        if size > 1:
            totals += counts
            agreeing += sum(n * (n - 1) for n in counts.values()) / (size - 1)
    n = totals.total()
    by_chance = sum(count * (count - 1) for count in totals.values())
    if len(totals) < 2:
        return None
    observed = 1 - agreeing / n
    expected = 1 - by_chance / (n * (n - 1))
    return 1 - observed / expected


def annotators(votes: Iterable[Vote], clean: Mapping[Any, Any]) -> list[Annotator]:
    """Every annotator in the order of their names."""
    votes = list(votes)
    tasks: dict[Any, Counter[Any]] = defaultdict(Counter)
    for task, _, label in votes:
        tasks[task][label] += 1
    own: dict[str, list[tuple[Any, Any]]] = defaultdict(list)
    for task, name, label in votes:
        own[name].append((task, label))
    found = []
    for name in sorted(own):
        mine = Counter(task for task, _ in own[name])
        pairs = {(task, label): n for (task, label), n in Counter(own[name]).items()}
        others = sum(tasks[task].total() - mine[task] for task, _ in own[name])
        same = sum(tasks[task][label] - pairs[task, label] for task, label in own[name])
        judged = [(label, clean[task]) for task, label in own[name] if task in clean]
        right = sum(label == truth for label, truth in judged)
        found.append(
            Annotator(
                name,
                len(own[name]),
                same / others if others else None,
                len(judged),
                right / len(judged) if judged else None,
            )
        )
    return found
