"""A table whose labels have been found: its rows' names, candidate sets, votes and clean labels, before any feature."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mogd.candidates import name_rows
from mogd.datasets.exports import read_export
from mogd.datasets.frames import MISSING, Path_, frame_of, need, read_frame, read_rows
from mogd.datasets.guesses import guess_labels
from mogd.datasets.hygiene import (
    describe_joined,
    describe_missing,
    describe_spellings,
    joined_by,
    label_counts,
    like_missing,
    merge,
    merged_spelling,
    spellings,
    without,
)
from mogd.datasets.labelsets import (
    Sets,
    annotator_sets,
    column_labels,
    column_sets,
    label_sets,
    of_one_kind,
    vote_sets,
)
from mogd.datasets.streamed import is_streamed, label_frame
from mogd.labels import find_ids
from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl


@dataclass
class LabelledRows:
    """All rows of a table with what is said of their labels, and the clean rows beside them."""

    path: Path_
    frame: pl.DataFrame
    id: str | None  # the column that names the rows
    ids: np.ndarray
    sets: Sets  # of every row, the clean ones too
    votes: pl.DataFrame | None  # task (a row's id), worker, label; None where sets came as such
    true_sets: Sets
    skip: list[str]  # columns that are no features
    clean_frame: pl.DataFrame
    clean_sets: Sets
    clean_ids: np.ndarray
    taken: np.ndarray  # which rows of the table are clean


def label_rows(
    path: Path_,
    candidates: str | None = "labels",
    *,
    annotators: Sequence[str] | None = None,
    votes: Path_ | None = None,
    id: str | None = None,
    clean: str | os.PathLike[str] | None = None,
    clean_label: str | None = None,
    truth: str | None = None,
    image_column: str | None = None,
    ignore: Sequence[str] = (),
    delimiter: str | None = None,
    question: str | None = None,
    abstain: Any = None,
    missing: Sequence[str] = (),
    merge_case: bool = False,
    encoding: str | None = None,
) -> LabelledRows:
    """Read a table and find its labels; the parameters are those of `read_table`."""
    reading: dict[str, Any] = {"missing": (*MISSING, *missing), "encoding": encoding}
    if is_streamed(path):
        labels = (candidates, *(annotators or ()), truth, None if clean is None else str(clean))
        found: Any = label_frame(path, labels, id or "id")
    else:
        found = read_rows(path, **reading)
    export = read_export(found, question)
    if export is None and question is not None:
        raise ValueError(f"question is for exports of labelling tools; {path} is a table of another kind")
    frame = export.frame if export is not None else frame_of(found) if isinstance(found, list) else found
    id = id or _default_id(frame, image_column, ignore)
    ids = row_ids(frame, id)
    said = None if votes is None else read_frame(votes, **reading)
    named = bool(annotators) or said is not None or (candidates != "labels" and candidates in frame.columns)
    if export is not None and not named:
        said = export.votes
    sure = [] if export is None or export.clean is None else [export.clean]
    clean = sure[0] if clean is None and sure else clean
    sets, said, used = _sets(frame, candidates, annotators, said, ids, delimiter, abstain)
    true_sets = _label_sets(frame, truth, "the true labels") if truth else Sets.empty(len(sets))
    for name in ignore:
        need(frame, name, "ignore")
    own_clean = [clean] if clean in frame.columns else []
    skip = [str(name) for name in dict.fromkeys([id, truth, *used, *own_clean, *sure, *ignore]) if name]
    clean_frame, clean_sets, clean_ids, taken = _clean(frame, clean, clean_label, id, ids, skip, reading)
    sources = of_one_kind(*(without(source, missing) for source in (sets, true_sets, clean_sets)))
    counts = label_counts(*sources)
    groups = spellings(counts)
    unsplit = delimiter is None and said is None
    joined = describe_joined(joined_by(sources[0], sources[2].labels)) if unsplit else []
    for text in (*joined, *describe_spellings(groups, merge_case), *describe_missing(like_missing(counts))):
        warnings.warn(text, stacklevel=3)
    if merge_case:
        sources = [merge(source, merged_spelling(groups)) for source in sources]
        said = None if said is None else said.with_columns(label=_respelled(said["label"], merged_spelling(groups)))
    sets, true_sets, clean_sets = sources
    return LabelledRows(path, frame, id, ids, sets, said, true_sets, skip, clean_frame, clean_sets, clean_ids, taken)


def row_ids(frame: pl.DataFrame, id: str | None) -> np.ndarray:
    """The names of the rows, each different: a column, or the numbers from 0."""
    if id is None:
        return np.arange(frame.height)
    need(frame, id, "the ids")
    column = frame[id]
    absent = np.flatnonzero(column.is_null().to_numpy())
    if len(absent):
        raise ValueError(f"id column {id!r} is empty in {name_rows(absent)}: every row needs a name of its own")
    if _repeats(column):
        repeated = column.filter(column.is_duplicated()).unique(maintain_order=True).to_list()
        raise ValueError(
            f"id column {id!r} repeats {len(repeated)} of its names, such as {repeated[0]!r}: make them unique, name "
            f"another id column, or leave it out by {option('ignore', [id])}"
        )
    return column.to_numpy() if column.dtype.is_integer() else np.array([str(name) for name in column.to_list()])


def _repeats(column: pl.Series) -> bool:
    """Whether two rows have the same name; numbers are sorted, which takes a tenth of the memory of hashing them."""
    if not column.dtype.is_integer():
        return bool(column.is_duplicated().any())
    ordered = np.sort(column.to_numpy())
    return bool((ordered[1:] == ordered[:-1]).any())


def _default_id(frame: pl.DataFrame, image_column: str | None, ignore: Sequence[str]) -> str | None:
    """The column `id`; or that of the pictures' files where each is named once, so that results carry their names."""
    if "id" in frame.columns and "id" not in ignore:
        return "id"
    if image_column in frame.columns and not frame[str(image_column)].is_duplicated().any():
        return image_column
    return None


def _sets(
    frame: pl.DataFrame,
    candidates: str | None,
    annotators: Sequence[str] | None,
    votes: pl.DataFrame | None,
    ids: np.ndarray,
    delimiter: str | None,
    abstain: Any,
) -> tuple[Sets, pl.DataFrame | None, list[str]]:
    """The candidate sets, the votes they came from, and the columns that held them."""
    if annotators and votes is not None:
        raise ValueError("candidates come from annotators or from votes: give one of the two")
    beside = [candidates] if candidates in frame.columns and (annotators or votes is not None) else []
    if beside:  # it would give the answer away as a feature
        source = "annotators" if annotators else "votes"
        warnings.warn(f"the labels come from the {source}; column {candidates!r} is left out", stacklevel=4)
    if votes is not None:
        return vote_sets(votes, ids.tolist(), abstain), votes, [str(name) for name in beside]
    if annotators:
        sets = annotator_sets(frame, annotators, abstain)
        return sets, _long(frame, annotators, ids), [*annotators, *(name for name in beside if name not in annotators)]
    if candidates is None:
        raise ValueError("candidates must name the column of candidate sets; or give annotators or votes")
    if candidates not in frame.columns:
        guess = guess_labels(frame)
        ways = f"{option('candidates', 'COLUMN')}, {option('annotators', ['A', 'B'])} or {option('votes', 'FILE')}"
        raise ValueError(
            f"there is no column {candidates!r} for the candidates; the table has {', '.join(frame.columns)}: name the "
            f"labels by {ways}{f'; it looks like {guess}' if guess else ''}"
        )
    return column_sets(frame[candidates], delimiter), None, [candidates]


def _long(frame: pl.DataFrame, annotators: Sequence[str], ids: np.ndarray) -> pl.DataFrame:
    """One column per annotator as votes: task, worker, label."""
    import polars as pl

    columns = {name: column_labels(frame[name]) for name in annotators}
    votes = [(i, name, label) for name, labels in columns.items() for i, label in enumerate(labels)]
    given = [(i, name, str(label)) for i, name, label in votes if label is not None]
    return pl.DataFrame(
        {
            "task": ids[[i for i, _, _ in given]],
            "worker": pl.Series([name for _, name, _ in given], dtype=pl.String),
            "label": pl.Series([label for _, _, label in given], dtype=pl.String),
        }
    )


def _respelled(labels: pl.Series, spelling: Mapping[str, str]) -> pl.Series:
    import polars as pl

    return labels.cast(pl.String).str.strip_chars().replace(spelling) if spelling else labels


def _label_sets(frame: pl.DataFrame, name: str, what: str) -> Sets:
    need(frame, name, what)
    return label_sets(frame[name])


def _clean(
    frame: pl.DataFrame,
    clean: str | os.PathLike[str] | None,
    clean_label: str | None,
    id: str | None,
    ids: np.ndarray,
    skip: Sequence[str],
    reading: dict[str, Any],
) -> tuple[pl.DataFrame, Sets, np.ndarray, np.ndarray]:
    """The clean rows' table, labels and ids, and which rows of the main table they take away."""
    taken = np.zeros(frame.height, dtype=bool)
    if clean is None:
        return frame[:0], Sets.empty(0), ids[:0], taken
    if clean in frame.columns:
        labels = _label_sets(frame, str(clean), "the clean labels")
        rows = np.flatnonzero(~labels.is_empty)
        taken[rows] = True
        return frame[rows], labels[rows], ids[rows], taken
    if not Path(clean).exists():
        raise ValueError(
            f"clean must be a column of the table or a file; there is no file {clean}, and the columns are "
            f"{', '.join(frame.columns)}: {option('clean', 'COLUMN')} or {option('clean', 'FILE')}"
        )
    other = read_frame(clean, **reading)
    features = set(frame.columns) - set(skip)
    column = clean_label or _only_label(other, frame, features, id, clean)
    labels = _label_sets(other, column, "the clean labels")
    rows = np.flatnonzero(~labels.is_empty)
    other, labels = other[rows], labels[rows]
    key = "row" if id is None and "row" not in frame.columns else id  # the rows' numbers, as `label` writes them
    if key is None or key not in other.columns:
        return other, labels, np.array([f"{Path(clean).name}:{i}" for i in rows]), taken
    names = row_ids(other, key)
    found = find_ids(names, ids)
    taken[found[found >= 0]] = True
    if set(other.columns) >= features - {column}:
        return other, labels, names, taken
    if (found < 0).any():
        strange = names[found < 0]
        raise ValueError(
            f"{clean} names {len(strange)} ids that are no row of the table, such as {strange.tolist()[0]!r}: drop "
            "them, or give that file the feature columns too"
        )
    return frame[found], labels, ids[found], taken


def _only_label(other: pl.DataFrame, frame: pl.DataFrame, features: set[str], id: str | None, clean: Any) -> str:
    """The column of the clean table that must be the label: the one that is new, or else neither id nor feature."""
    left = [name for name in other.columns if name != id and name not in features]
    new = [name for name in left if name not in frame.columns]
    if "label" in new:
        return "label"
    if len(new) == 1 or len(left) == 1:
        return (new if len(new) == 1 else left)[0]
    raise ValueError(
        f"clean_label must name the column of {clean} that holds the label; its columns are {', '.join(other.columns)}"
    )
