"""Labels that are the same but for their spelling, and labels that look like missing ones."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mogd.datasets.labelsets import Sets
from mogd.wording import option

NOTHING = ("n/a", "#n/a", "na", "nan", "null", "nil", "none", "-", "--", "?", ".")  # whatever their capitals
JOINTS = ("/", "~", "+", "&", "\\", "^", "#", "\t", " and ", " or ", " ")  # beside those at which sets are split
SHOWN = 3


def label_counts(*sources: Sets) -> Counter[Any]:
    """How often each label is named, by every annotator who does."""
    counts: Counter[Any] = Counter()
    for source in sources:
        for row, n_rows in zip(source.distinct, source.counts, strict=True):
            for label in row:
                counts[label] += n_rows
    return counts


def without(sets: Sets, missing: Sequence[str]) -> Sets:
    """The sets without the labels that stand for nothing."""
    return sets.changed(lambda row: [label for label in row if str(label) not in missing]) if missing else sets


def spellings(counts: Mapping[Any, int]) -> list[dict[str, int]]:
    """Groups of labels that differ only in capitals, spaces or Unicode form, the most frequent first."""
    groups: dict[str, dict[str, int]] = defaultdict(dict)
    for label, count in counts.items():
        if isinstance(label, str):
            groups[_folded(label)][label] = count
    several = [group for group in groups.values() if len(group) > 1]
    ordered = [dict(sorted(group.items(), key=lambda pair: (-pair[1], pair[0]))) for group in several]
    return sorted(ordered, key=lambda group: (-sum(group.values()), next(iter(group))))


def like_missing(counts: Mapping[Any, int]) -> dict[str, int]:
    """The labels that are written like a missing one, with their counts."""
    return {label: n for label, n in counts.items() if isinstance(label, str) and label.strip().lower() in NOTHING}


def joined_by(sets: Sets, known: Iterable[Any] = ()) -> tuple[str, str] | None:
    """A label that looks like several, and the mark between them: nothing was split, but the parts come again.

    Each part must be a label by itself, here or among the `known` ones, or, but for spaces, a part of two labels.
    """
    if any(len(row) > 1 for row in sets.distinct):
        return None
    labels = {label for label in sets.labels if isinstance(label, str)}
    alone = labels | set(known)
    for mark in JOINTS:
        parts = {label: [part.strip() for part in label.split(mark)] for label in labels if mark in label}
        often = Counter(part for found in parts.values() for part in set(found))
        least = np.inf if mark == " " else 2
        if len(parts) > 1 and all(part and (part in alone or often[part] >= least) for part in often):
            return min(parts), mark
    return None


def merged_spelling(groups: Iterable[Mapping[str, int]]) -> dict[str, str]:
    """Every rarer spelling -> the most frequent one of its group."""
    return {label: next(iter(group)) for group in groups for label in list(group)[1:]}


def merge(sets: Sets, spelling: Mapping[str, str]) -> Sets:
    if not spelling:
        return sets
    return sets.changed(lambda row: list(dict.fromkeys(spelling.get(label, label) for label in row)))


def describe_spellings(groups: Sequence[Mapping[str, int]], merged: bool) -> list[str]:
    """One sentence on the groups, none where there is nothing to say."""
    if not groups:
        return []
    shown = "; ".join(", ".join(f"{label!r} {count}×" for label, count in group.items()) for group in groups[:SHOWN])
    more = f" and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
    what = (
        "were merged into the first" if merged else f"count as different ones: {option('merge_case', True)} merges them"
    )
    return [f"labels that differ only in capitals, spaces or Unicode form ({shown}{more}) {what}"]


def describe_missing(found: Mapping[str, int]) -> list[str]:
    """One sentence on labels that look like missing ones, none where there is nothing to say."""
    if not found:
        return []
    shown = ", ".join(f"{label!r} {count}×" for label, count in found.items())
    return [f"label {shown} looks like a missing one but counts as a class: if so, {option('missing', list(found))}"]


def describe_joined(found: tuple[str, str] | None) -> list[str]:
    """One sentence on labels that look like several, none where there is nothing to say."""
    if found is None:
        return []
    label, mark = found
    return [f"label {label!r} looks like several, with {mark!r} between them: if so, {option('delimiter', mark)}"]


def _folded(label: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", label).casefold().split())
