"""People's own data: `read_table` turns a table, or a table and a folder of pictures, into a checked data set."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mogd.candidates import Candidates, as_candidates, as_labels, name_rows
from mogd.datasets.base import PartialDataset
from mogd.datasets.encoder import TableEncoder
from mogd.datasets.folders import ImageEncoder
from mogd.datasets.frames import MISSING, Path_, need, read_frame
from mogd.datasets.labelsets import (
    Sets,
    annotator_evidence,
    annotator_sets,
    clean_candidates,
    column_labels,
    column_sets,
    of_one_kind,
    vote_evidence,
    vote_sets,
)

if TYPE_CHECKING:
    import polars as pl

Encoder = TableEncoder | ImageEncoder


@dataclass(frozen=True, eq=False)
class TableDataset(PartialDataset):
    """Rows of a table with candidate sets, its clean rows apart, and the encoder that made its features."""

    clean_X: np.ndarray | None = None
    clean_y: np.ndarray | None = None  # labels
    clean_ids: np.ndarray | None = None
    clean_candidates: Candidates | None = None  # what annotators or votes said of the clean rows
    id_name: str | None = None  # the column that names the rows
    table_ids: np.ndarray | None = None  # the names of all rows of the table, in its order
    encoder: Encoder | None = None


def read_table(
    path: Path_,
    candidates: str | None = "labels",
    *,
    annotators: Sequence[str] | None = None,
    votes: Path_ | None = None,
    id: str | None = None,
    clean: str | os.PathLike[str] | None = None,
    clean_label: str | None = None,
    truth: str | None = None,
    images: Path_ | None = None,
    image_column: str = "file",
    size: Sequence[int] | None = None,
    ignore: Sequence[str] = (),
    impute: str | None = None,
    delimiter: str | None = None,
    empty: str = "error",
    abstain: Any = None,
    missing: Sequence[str] = MISSING,
) -> TableDataset:
    """Read a CSV, TSV, Parquet or Feather table whose rows carry candidate labels.

    Parameters
    ----------
    candidates : the column of candidate sets: delimited text ("a|b"), a JSON list, an Arrow list, or plain labels.
    annotators : instead, columns that hold one annotator's label each; the set of a row is what any of them said.
    votes : instead, a second table with the columns task (a row's id), worker (or annotator, performer), label and,
        where given, weight.
    id : the column that names the rows, each name once; by default the column `id`, or the row's number from 0.
    clean : where the labels are that are known for sure: a column of this table (empty where not known), or a second
        table, with either the id and the label of rows of this one, or features and labels of further rows. These rows
        leave the partial rows and become `clean_X`, `clean_y`.
    clean_label : the column of the second table that holds the label, where it is not the only one left.
    truth : a column of true labels that is used for evaluation alone; it becomes `y`, −1 where empty.
    images, image_column, size : a folder of pictures, the column with their file names, and the `(height, width)` they
        are brought to. The pictures are then the features.
    ignore : columns that are no features.
    impute : None, "median", "mean" or "most_frequent". Missing cells are counted in a warning; filled only if asked.
    delimiter : of candidate sets in text; by default the first of | ; , that occurs in the column.
    empty : what to do with a row without any candidate: "error", "drop" it, or give it "all" labels.
    abstain : of annotators and votes, the value or values that mean that nothing was said; () if there is none and a
        negative number is a label.
    missing : the cells of a text file that count as missing.
    """
    if empty not in ("error", "drop", "all"):
        raise ValueError(f"empty must be 'error', 'drop' or 'all'; got {empty!r}")
    frame = read_frame(path, missing=missing)
    id = "id" if id is None and "id" in frame.columns and "id" not in ignore else id
    ids = row_ids(frame, id)
    said = read_frame(votes, missing=missing) if votes else None
    sets, used = _sets(frame, candidates, annotators, said, ids, delimiter, abstain)
    true_sets = _label_sets(frame, truth, "the true labels") if truth else [[] for _ in sets]
    for name in ignore:
        need(frame, name, "ignore")
    own_clean = [clean] if clean in frame.columns else []
    skip = [str(name) for name in dict.fromkeys([id, truth, *used, *own_clean, *ignore]) if name]
    clean_frame, clean_sets, clean_ids, taken = _clean(frame, clean, clean_label, id, ids, skip, missing)
    sets, true_sets, clean_sets = of_one_kind(sets, true_sets, clean_sets)
    kept, sets = _kept_rows(sets, taken, ids, empty, path)
    encoder = _encoder(images, image_column, size, skip, impute).fit(frame)
    X, empty_cells = encoder.transform(frame[kept]), Counter(encoder.missing_)
    clean_X = encoder.transform(clean_frame) if clean_sets else X[:0]
    if clean_sets:
        empty_cells += Counter(encoder.missing_)
    _tell_missing(empty_cells, impute, path)
    classes = sorted({label for row in (*sets, *clean_sets, *true_sets) for label in row})
    _check_leak(encoder, classes)
    _tell_unseen(sets, clean_sets)
    known = _indices(true_sets, classes)
    checked = as_candidates([set(row or classes) for row in sets], classes=classes, form="sets", unseen="keep")
    clean_votes = None
    evidence = None
    if annotators:
        evidence = annotator_evidence(frame, annotators, classes, abstain)
    elif said is not None:
        evidence = vote_evidence(said, ids.tolist(), classes, abstain)
    if evidence is not None:
        checked = replace(checked, evidence=evidence[kept])
        clean_votes = clean_candidates(evidence, ids, clean_ids, checked.classes)
    return TableDataset(
        name=Path(path).stem,
        X=X,
        candidates=checked,
        y=known[kept] if truth else None,
        ids=ids[kept],
        feature_names=encoder.feature_names_,
        clean_X=clean_X,
        clean_y=np.array([row[0] for row in clean_sets]) if clean_sets else np.array(classes)[:0],
        clean_ids=clean_ids,
        clean_candidates=clean_votes,
        id_name=id,
        table_ids=ids,
        encoder=encoder,
    )


def row_ids(frame: pl.DataFrame, id: str | None) -> np.ndarray:
    """The names of the rows, each different: a column, or the numbers from 0."""
    if id is None:
        return np.arange(frame.height)
    need(frame, id, "the ids")
    column = frame[id]
    absent = np.flatnonzero(column.is_null().to_numpy())
    if len(absent):
        raise ValueError(f"id column {id!r} is empty in {name_rows(absent)}: every row needs a name of its own")
    repeated = column.filter(column.is_duplicated()).unique(maintain_order=True).to_list()
    if repeated:
        raise ValueError(
            f"id column {id!r} repeats {len(repeated)} of its names, such as {repeated[0]!r}: make them unique, "
            "name another id column, or add it to ignore"
        )
    return column.to_numpy() if column.dtype.is_integer() else np.array([str(name) for name in column.to_list()])


def _sets(
    frame: pl.DataFrame,
    candidates: str | None,
    annotators: Sequence[str] | None,
    votes: pl.DataFrame | None,
    ids: np.ndarray,
    delimiter: str | None,
    abstain: Any,
) -> tuple[Sets, list[str]]:
    """The candidate sets, and the columns that held them."""
    if annotators and votes is not None:
        raise ValueError("candidates come from annotators or from votes: give one of the two")
    beside = [candidates] if candidates in frame.columns and (annotators or votes is not None) else []
    if beside:  # it would give the answer away as a feature
        source = "annotators" if annotators else "votes"
        warnings.warn(f"the labels come from the {source}; column {candidates!r} is left out", stacklevel=3)
    if votes is not None:
        return vote_sets(votes, ids.tolist(), abstain), beside
    if annotators:
        sets = annotator_sets(frame, annotators, abstain)
        return sets, [*annotators, *(name for name in beside if name not in annotators)]
    if candidates is None:
        raise ValueError("candidates must name the column of candidate sets; or give annotators or votes")
    need(frame, candidates, "the candidates")
    return column_sets(frame[candidates], delimiter), [candidates]


def _label_sets(frame: pl.DataFrame, name: str, what: str) -> Sets:
    need(frame, name, what)
    return [[] if label is None else [label] for label in column_labels(frame[name])]


def _clean(
    frame: pl.DataFrame,
    clean: str | os.PathLike[str] | None,
    clean_label: str | None,
    id: str | None,
    ids: np.ndarray,
    skip: Sequence[str],
    missing: Sequence[str],
) -> tuple[pl.DataFrame, Sets, np.ndarray, np.ndarray]:
    """The clean rows' table, labels and ids, and which rows of the main table they take away."""
    taken = np.zeros(frame.height, dtype=bool)
    if clean is None:
        return frame[:0], [], ids[:0], taken
    if clean in frame.columns:
        labels = _label_sets(frame, str(clean), "the clean labels")
        rows = np.flatnonzero([bool(row) for row in labels])
        taken[rows] = True
        return frame[rows], [labels[i] for i in rows], ids[rows], taken
    if not Path(clean).exists():
        raise ValueError(
            f"clean must be a column of the table or a file; there is no file {clean}, and the columns are "
            f"{', '.join(frame.columns)}"
        )
    other = read_frame(clean, missing=missing)
    features = set(frame.columns) - set(skip)
    column = clean_label or _only_label(other, frame, features, id, clean)
    labels = _label_sets(other, column, "the clean labels")
    rows = np.flatnonzero([bool(row) for row in labels])
    other, labels = other[rows], [labels[i] for i in rows]
    if id is None or id not in other.columns:
        return other, labels, np.array([f"{Path(clean).name}:{i}" for i in rows]), taken
    names = row_ids(other, id)
    where = {str(name): row for row, name in enumerate(ids.tolist())}
    found = np.array([where.get(str(name), -1) for name in names.tolist()], dtype=np.int64)
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
    if len(new) == 1 or len(left) == 1:
        return (new if len(new) == 1 else left)[0]
    raise ValueError(
        f"clean_label must name the column of {clean} that holds the label; its columns are {', '.join(other.columns)}"
    )


def _encoder(
    images: Path_ | None, image_column: str, size: Sequence[int] | None, skip: Sequence[str], impute: str | None
) -> Encoder:
    if images is None:
        return TableEncoder(skip, impute)
    if not Path(images).is_dir():
        raise FileNotFoundError(f"there is no folder {images} of pictures")
    return ImageEncoder(images, image_column, size)


def _kept_rows(sets: Sets, taken: np.ndarray, ids: np.ndarray, empty: str, path: Path_) -> tuple[np.ndarray, Sets]:
    """The partial rows: those that are not clean, without the empty ones where they are dropped."""
    bare = np.array([not row for row in sets]) & ~taken
    if bare.any() and empty == "error":
        raise ValueError(
            f"{name_rows(ids[bare])} of {path} {'has' if bare.sum() == 1 else 'have'} no candidate label: "
            "pass empty='drop' (--empty drop) to leave it out, or empty='all' (--empty all) to give it every label"
        )
    kept = np.flatnonzero(~taken & ~bare if empty == "drop" else ~taken)
    if not len(kept):
        raise ValueError(f"no row of {path} is left to learn from: all are clean or without candidates")
    return kept, [sets[i] for i in kept]


def _tell_missing(cells: Counter[str], impute: str | None, path: Path_) -> None:
    if cells:
        counts = ", ".join(f"{name}: {count}" for name, count in cells.items())
        way = f"filled ({impute})" if impute else "left missing: pass impute='median' (--impute median) to fill them"
        warnings.warn(f"{path} has missing cells ({counts}), {way}", stacklevel=3)


def _tell_unseen(sets: Sets, clean_sets: Sets) -> None:
    """A label that only clean rows have is often a slip of spelling."""
    in_sets = {label for row in sets for label in row}
    alone = sorted({label for row in clean_sets for label in row} - in_sets)
    if alone and all(sets):
        shown = ", ".join(map(repr, alone[:5]))
        warnings.warn(f"{shown} is a label of clean rows alone, in no candidate set: check its spelling", stacklevel=3)


def _check_leak(encoder: Encoder, classes: list[Any]) -> None:
    """Refuse a text column of nothing but labels: as a feature it would give the answer away."""
    names = {str(label) for label in classes}
    for column, values in getattr(encoder, "categories_", {}).items():
        if len(values) > 1 and names.issuperset(values):
            raise ValueError(
                f"column {column!r} holds nothing but labels, so it is no feature: name it as annotator, clean or "
                "truth, or add it to ignore"
            )


def _indices(true_sets: Sets, classes: list[Any]) -> np.ndarray:
    known = np.full(len(true_sets), -1, dtype=np.int64)
    rows = [i for i, row in enumerate(true_sets) if row]
    if rows:
        known[rows] = as_labels([true_sets[i][0] for i in rows], np.array(classes), name="truth")
    return known
