"""People's own data: `read_table` turns a table, or a table and a folder of pictures, into a checked data set."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mogd.candidates import Candidates, as_labels, name_rows
from mogd.datasets.base import PartialDataset
from mogd.datasets.encoder import TableEncoder
from mogd.datasets.folders import ImageEncoder
from mogd.datasets.frames import Path_
from mogd.datasets.labelsets import Sets, clean_candidates, vote_evidence
from mogd.datasets.rows import LabelledRows, label_rows
from mogd.datasets.streamed import check_options, features, is_streamed
from mogd.wording import option

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
    files: dict[str, str] | None = None  # of pictures whose rows have other names: id -> file


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
    text: str | Sequence[str] = (),
    text_model: Path_ | None = None,
    ignore: Sequence[str] = (),
    impute: str | None = None,
    delimiter: str | None = None,
    question: str | None = None,
    empty: str = "error",
    abstain: Any = None,
    missing: Sequence[str] = (),
    merge_case: bool = False,
    encoding: str | None = None,
    decimal: str | None = None,
) -> TableDataset:
    """Read a table whose rows carry candidate labels: CSV, TSV, JSON, Excel, Parquet or Feather, or `-`.

    The features of a Parquet or Feather file of more than 1 GiB, or of a folder of them, stay on the disk: they must be
    numbers, and `X` is then what `mogd.open_rows` gives.

    Parameters
    ----------
    candidates : the column of candidate sets: delimited text ("a|b"), a JSON list, an Arrow list, or plain labels.
    annotators : instead, columns that hold one annotator's label each; the set of a row is what any of them said.
    votes : instead, a second table with the columns task (a row's id), worker (or annotator, performer), label and,
        where given, weight.
    id : the column that names the rows, each name once; by default the column `id`, or else the pictures' file names,
        or the row's number from 0.
    clean : where the labels are that are known for sure: a column of this table (empty where not known), or a second
        table, with either the id and the label of rows of this one, or features and labels of further rows. These rows
        leave the partial rows and become `clean_X`, `clean_y`.
    clean_label : the column of the second table that holds the label, where it is not the only one left.
    truth : a column of true labels that is used for evaluation alone; it becomes `y`, −1 where empty.
    images, image_column, size : a folder of pictures, the column with their file names, and the `(height, width)` they
        are brought to. The pictures are then the features.
    text, text_model : columns of free text, learned from by TF-IDF of words and word pairs with a truncated SVD, or by
        the model2vec or sentence-transformers model in the folder `text_model`.
    ignore : columns that are no features.
    impute : None, "median", "mean" or "most_frequent". Missing cells are counted in a warning; filled only if asked.
    delimiter : of candidate sets in text; by default the first of | ; , that occurs in the column.
    question : of an export of Label Studio or Argilla with several questions, the one whose answers are the labels. The
        annotators, predictions and clean labels of an export need not be named.
    empty : what to do with a row without any candidate: "error", "drop" it, or give it "all" labels.
    abstain : of annotators and votes, the value or values that mean that nothing was said; () if there is none and a
        negative number is a label.
    missing : further texts that count as missing, in cells and in labels, such as "n/a".
    merge_case : take labels that differ only in capitals, spaces or Unicode form as one, in its most frequent spelling.
    encoding : of text and JSON; by default UTF-8, or what the first bytes say.
    decimal : "," or ".": the decimal mark of numbers in text columns; by default as the column shows it.
    """
    if empty not in ("error", "drop", "all"):
        raise ValueError(f"empty must be 'error', 'drop' or 'all'; got {empty!r}")
    streamed = is_streamed(path)
    if streamed:
        check_options(path, images=images, text=text, impute=impute, encoding=encoding, decimal=decimal)
    rows = label_rows(
        path,
        candidates,
        annotators=annotators,
        votes=votes,
        id=id,
        clean=clean,
        clean_label=clean_label,
        truth=truth,
        image_column=None if images is None else image_column,
        ignore=ignore,
        delimiter=delimiter,
        question=question,
        abstain=abstain,
        missing=missing,
        merge_case=merge_case,
        encoding=encoding,
    )
    frame, ids, clean_sets, true_sets = rows.frame, rows.ids, rows.clean_sets, rows.true_sets
    kept, sets = _kept_rows(rows, empty)
    text = [text] if isinstance(text, str) else list(text)
    encoder: Encoder
    if streamed:
        encoder, X, clean_X = features(rows, kept)
    else:
        if images is None:
            encoder = TableEncoder(rows.skip, impute, decimal, text, text_model).fit(frame)
        else:
            encoder = _pictures(images, image_column, size, text).fit(frame)
        X, empty_cells = encoder.transform(frame[kept]), Counter(encoder.missing_)
        clean_X = encoder.transform(rows.clean_frame) if clean_sets else X[:0]
        if clean_sets:
            empty_cells += Counter(encoder.missing_)
        _warn_missing(empty_cells, impute, path)
    classes = sorted(sets.labels | clean_sets.labels | true_sets.labels)
    _check_leak(encoder, classes)
    _warn_unseen(sets, clean_sets)
    checked = sets.candidates(classes)
    clean_votes = None
    if rows.votes is not None:
        evidence = vote_evidence(rows.votes, ids.tolist(), classes, abstain)
        checked = replace(checked, evidence=evidence[kept])
        clean_votes = clean_candidates(evidence, ids, rows.clean_ids, checked.classes)
    return TableDataset(
        name=Path(path).name.removesuffix(".gz").rpartition(".")[0] or "table",
        X=X,
        candidates=checked,
        y=_indices(true_sets[kept], classes) if truth else None,
        ids=ids[kept],
        feature_names=encoder.feature_names_,
        clean_X=clean_X,
        clean_y=np.array([row[0] for row in clean_sets]) if clean_sets else np.array(classes)[:0],
        clean_ids=rows.clean_ids,
        clean_candidates=clean_votes,
        id_name=rows.id,
        table_ids=ids,
        encoder=encoder,
        files=_files(rows, encoder),
    )


def _pictures(images: Path_, column: str, size: Sequence[int] | None, text: Sequence[str]) -> ImageEncoder:
    if text:
        raise ValueError("features are either text or pictures: give text or images, not both")
    if not Path(images).is_dir():
        raise FileNotFoundError(f"there is no folder {images} of pictures")
    return ImageEncoder(images, column, size)


def _files(rows: LabelledRows, encoder: Encoder) -> dict[str, str] | None:
    """The pictures' file names by the rows' ids, where these are not the files themselves."""
    if not isinstance(encoder, ImageEncoder) or rows.id == encoder.column:
        return None
    ids = [*rows.ids.tolist(), *rows.clean_ids.tolist()]
    names = [*rows.frame[encoder.column].to_list(), *rows.clean_frame[encoder.column].to_list()]
    return {str(id): name for id, name in zip(ids, names, strict=True)}


def _kept_rows(rows: LabelledRows, empty: str) -> tuple[np.ndarray, Sets]:
    """The partial rows: those that are not clean, without the empty ones where they are dropped."""
    bare = rows.sets.is_empty & ~rows.taken
    if bare.any() and empty == "error":
        raise ValueError(
            f"{name_rows(rows.ids[bare])} of {rows.path} {'has' if bare.sum() == 1 else 'have'} no candidate label: "
            f"pass {option('empty', 'drop')} to leave it out, or {option('empty', 'all')} to give it every label"
        )
    kept = np.flatnonzero(~rows.taken & ~bare if empty == "drop" else ~rows.taken)
    if not len(kept):
        raise ValueError(f"no row of {rows.path} is left to learn from: all are clean or without candidates")
    return kept, rows.sets[kept]


def _warn_missing(cells: Counter[str], impute: str | None, path: Path_) -> None:
    if cells:
        counts = ", ".join(f"{name}: {count}" for name, count in cells.items())
        way = f"filled ({impute})" if impute else f"left missing: pass {option('impute', 'median')} to fill them"
        warnings.warn(f"{path} has missing cells ({counts}), {way}", stacklevel=3)


def _warn_unseen(sets: Sets, clean_sets: Sets) -> None:
    """A label that only clean rows have is often a slip of spelling."""
    alone = sorted(clean_sets.labels - sets.labels)
    if alone and all(sets.distinct):
        shown = ", ".join(map(repr, alone[:5]))
        what = "is a label" if len(alone) == 1 else "are labels"
        warnings.warn(f"{shown} {what} of clean rows alone, in no candidate set: check the spelling", stacklevel=3)


def _check_leak(encoder: Encoder, classes: list[Any]) -> None:
    """Refuse a text column of nothing but labels: as a feature it would give the answer away."""
    names = {str(label) for label in classes}
    for column, values in getattr(encoder, "categories_", {}).items():
        if len(values) > 1 and names.issuperset(values):
            raise ValueError(
                f"column {column!r} holds nothing but labels, so it is no feature: name it as annotator, clean or "
                f"truth, or leave it out by {option('ignore', [column])}"
            )


def _indices(true_sets: Sets, classes: list[Any]) -> np.ndarray:
    known = np.full(len(true_sets.distinct), -1, dtype=np.int64)
    filled = [i for i, row in enumerate(true_sets.distinct) if row]
    if filled:
        known[filled] = as_labels([true_sets.distinct[i][0] for i in filled], np.array(classes), name="truth")
    return known[true_sets.codes]
