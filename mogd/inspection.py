"""What a table holds before anything is learned from it: its labels, its annotators, and what is wrong with it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from mogd.agreement import Annotator, annotators, krippendorff_alpha
from mogd.candidates import name_rows
from mogd.datasets.encoder import TableEncoder
from mogd.datasets.folders import ImageEncoder
from mogd.datasets.frames import STANDARD, Path_
from mogd.datasets.rows import LabelledRows, label_rows
from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl

MANY = 0.9  # a share of rows that makes a column suspicious
RARE = 2  # rows that name a label, below which nothing can be learned of it


@dataclass
class Inspection:
    """The findings, as plain values; `problems` are sentences that name the option which mends them."""

    table: str
    rows: int
    clean_rows: int = 0
    empty_rows: int = 0  # without any candidate
    features: int = 0  # columns that features are made of
    classes: dict[str, int] = field(default_factory=dict)  # label -> rows that name it
    set_sizes: dict[int, int] = field(default_factory=dict)
    agreement: float | None = None  # Krippendorff's alpha
    confused: list[dict[str, Any]] = field(default_factory=list)  # pairs of labels named together
    annotators: list[Annotator] = field(default_factory=list)
    truth_in_set: dict[str, Any] | None = None  # on clean rows that have a set
    duplicates: dict[str, int] = field(default_factory=dict)
    suspicious: list[str] = field(default_factory=list)  # columns
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        plain = asdict(self)
        plain["annotators"] = [annotator._asdict() for annotator in self.annotators]
        return plain


def inspect_table(
    path: Path_,
    candidates: str | None = "labels",
    *,
    images: Path_ | None = None,
    image_column: str = "file",
    size: Sequence[int] | None = None,
    text: str | Sequence[str] = (),
    text_model: Path_ | None = None,
    impute: str | None = None,
    decimal: str | None = None,
    empty: str = "error",
    **labels: Any,
) -> Inspection:
    """Look at a table by the parameters of `read_table`; a file without readable labels raises, as there."""
    read = partial(label_rows, path, candidates, image_column=None if images is None else image_column, **labels)
    rows, noted = _with_warnings(read)
    found = Inspection(
        "standard input" if str(path) == STANDARD else str(path),
        rows.frame.height,
        int(rows.taken.sum()) or len(rows.clean_sets),
    )
    found.problems = noted
    _labels(rows, found, empty)
    _votes(rows, found)
    _clean(rows, found)
    text = [text] if isinstance(text, str) else list(text)
    features = [name for name in rows.frame.columns if name not in rows.skip]
    found.features = len(features)
    if images is not None:
        found.features = 1
        refused = _refused(partial(ImageEncoder(images, image_column, size).fit, rows.frame))
        found.problems += [refused] if refused else []
        features = [image_column]
    else:
        found.problems += _columns(rows, [name for name in features if name not in text], impute, decimal, found)
    _duplicates(rows, features, found)
    return found


def _with_warnings(read: Callable[[], LabelledRows]) -> tuple[LabelledRows, list[str]]:
    """What was read and what was warned of; where reading fails, the warnings go on, since they may explain it."""
    caught: list[warnings.WarningMessage] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            rows = read()
    except ValueError:
        for warning in caught:
            warnings.warn(str(warning.message), stacklevel=3)
        raise
    return rows, list(dict.fromkeys(str(warning.message) for warning in caught))


def _labels(rows: LabelledRows, found: Inspection, empty: str) -> None:
    counts = Counter(str(label) for row in rows.sets for label in set(row))
    found.classes = dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
    sizes = Counter(len(set(row)) for row in rows.sets)
    found.set_sizes = {size: sizes[size] for size in sorted(sizes) if size}
    bare = [
        id for id, row, clean in zip(rows.ids.tolist(), rows.sets, rows.taken, strict=True) if not row and not clean
    ]
    found.empty_rows = len(bare)
    if bare and empty == "error":
        found.problems.append(
            f"{name_rows(bare, 3)} {'has' if len(bare) == 1 else 'have'} no candidate label: {option('empty', 'drop')} "
            f"or {option('empty', 'all')}"
        )
    together = Counter(pair for row in rows.sets for pair in combinations(sorted({str(label) for label in row}), 2))
    found.confused = [
        {"labels": list(pair), "rows": n, "share": n / (counts[pair[0]] + counts[pair[1]] - n)}
        for pair, n in sorted(together.items(), key=lambda item: (-item[1], item[0]))[:5]
    ]
    rare = [label for label, count in counts.items() if count < RARE]
    if rare:
        found.problems.append(f"label {_few(rare)} is named in one row alone: check the spelling")
    full = sum(len(set(row)) == len(counts) for row in rows.sets)
    if rows.votes is None and len(counts) > 1 and full > MANY * len(rows.sets):
        found.problems.append(f"{full} rows name every label, so they say nothing: is it the right column?")


def _votes(rows: LabelledRows, found: Inspection) -> None:
    if rows.votes is None:
        return
    where = {str(id): i for i, id in enumerate(rows.ids.tolist())}
    votes = [
        (where[str(task)], str(worker), str(label).strip())
        for task, worker, label in rows.votes.select("task", _worker(rows.votes), "label").iter_rows()
        if label is not None and str(label).strip() and str(task) in where
    ]
    clean = {
        where[str(id)]: str(row[0])
        for id, row in zip(rows.clean_ids.tolist(), rows.clean_sets, strict=True)
        if str(id) in where
    }
    found.agreement = krippendorff_alpha(votes)
    found.annotators = annotators(votes, clean)
    for one in found.annotators:
        if one.clean_accuracy is not None and one.clean_votes >= 10 and one.clean_accuracy * len(found.classes) < 1:
            found.problems.append(
                f"annotator {one.name} is right on {one.clean_accuracy:.0%} of {one.clean_votes} clean rows, less than "
                "a guess: are the labels swapped?"
            )
    if found.agreement is not None and found.agreement < 0:
        found.problems.append("the annotators agree less than chance would: do their labels mean the same?")


def _worker(votes: pl.DataFrame) -> str:
    """The column that says who voted, by one of the names it has in the field."""
    return next(name for name in ("worker", "annotator", "performer") if name in votes.columns)


def _clean(rows: LabelledRows, found: Inspection) -> None:
    if not rows.clean_sets:
        found.problems.append(
            f"no clean rows are named: check a few dozen labels with care, {option('clean', 'COLUMN')}"
        )
        return
    where = {str(id): i for i, id in enumerate(rows.ids.tolist())}
    pairs = [
        (row[0], rows.sets[where[str(id)]])
        for id, row in zip(rows.clean_ids.tolist(), rows.clean_sets, strict=True)
        if str(id) in where and rows.sets[where[str(id)]]
    ]
    if pairs:
        held = sum(label in labels for label, labels in pairs)
        found.truth_in_set = {"rows": len(pairs), "held": held, "share": held / len(pairs)}
        if held < MANY * len(pairs):
            found.problems.append(
                f"only {held} of {len(pairs)} clean rows have their true label in the set, which most methods take for "
                "granted"
            )
    missing = [label for label in found.classes if label not in {str(row[0]) for row in rows.clean_sets}]
    if missing:
        found.problems.append(f"no clean row has label {_few(missing)}: check one or more of each")


def _columns(
    rows: LabelledRows, names: list[str], impute: str | None, decimal: str | None, found: Inspection
) -> Iterator[str]:
    """Each feature column by itself, so that one which is refused hides no other."""
    import polars as pl

    labels = set(found.classes)
    missing: dict[str, int] = {}
    leaks: list[str] = []
    commas: list[str] = []
    others = [name for name in names if rows.frame[name].dtype.is_nested() or rows.frame[name].dtype.is_temporal()]
    if others:
        yield f"column {_few(others)} holds dates or lists and is left out: make numbers of it to use it"
    for name in names:
        column = rows.frame[name]
        if name in others:
            continue
        values = column.drop_nulls()
        if values.n_unique() <= 1 and rows.frame.height > 1:
            found.suspicious.append(f"{name} (always the same)")
        elif column.dtype.is_integer() and column.null_count() == 0 and _is_count(column):
            found.suspicious.append(f"{name} (the row's number)")
            yield f"column {name!r} is the row's number, which is no feature: {option('ignore', [name])}"
        elif column.dtype == pl.String and labels.issuperset(values.unique().to_list()):
            found.suspicious.append(f"{name} (nothing but labels)")
            leaks.append(name)
            continue
        encoder = TableEncoder(impute=impute, decimal=decimal)
        refused = _refused(partial(encoder.fit_transform, rows.frame.select(name)))
        if refused:
            found.suspicious.append(name)
            yield refused
            continue
        commas += encoder.marks_
        missing |= {} if impute else encoder.missing_
    if commas:
        yield f"column {_few(commas)} is read as numbers with decimal commas or thousands separators"
    if leaks:
        yield (
            f"column {_few(leaks)} holds nothing but labels: name it by {option('annotators', leaks)}, "
            f"{option('clean', leaks[-1])} or {option('ignore', leaks)}"
        )
    if missing:
        shown = ", ".join(f"{name}: {count}" for name, count in list(missing.items())[:4])
        more = f" and {len(missing) - 4} more columns" if len(missing) > 4 else ""
        yield f"missing cells ({shown}{more}) cannot be learned from: {option('impute', 'median')}"


def _duplicates(rows: LabelledRows, features: list[str], found: Inspection) -> None:
    """Rows with the same features, and those of them whose sets have no label in common."""
    plain = [name for name in features if not rows.frame[name].dtype.is_nested()]
    if not plain:
        return
    table = rows.frame.select(plain)
    again = np.flatnonzero(table.is_duplicated().to_numpy())
    groups: dict[Any, list[int]] = {}
    for i in again.tolist():
        groups.setdefault(table.row(i), []).append(i)
    apart = sum(
        len(group)
        for group in groups.values()
        if len(filled := [set(rows.sets[i]) for i in group if rows.sets[i]]) > 1 and not set.intersection(*filled)
    )
    found.duplicates = {"rows": len(again), "contradicting": apart}
    if apart:
        found.problems.append(f"{apart} rows are the same in every feature but have no label in common")


def _is_count(column: pl.Series) -> bool:
    values = column.to_numpy()
    return len(values) > 2 and bool((np.diff(values.astype(np.int64)) == 1).all())


def _refused(attempt: Callable[[], Any]) -> str | None:
    """The sentence with which an attempt is refused; what it only warns of is found elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            attempt()
        except (ValueError, OSError, ImportError) as error:
            return str(error)
    return None


def _few(labels: Sequence[str], most: int = 4) -> str:
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return ", ".join(repr(label) for label in labels[:most]) + more
