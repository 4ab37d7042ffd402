"""A table as people label it: the candidates of every row, what is shown of it, and what is known already."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mogd.candidates import Candidates
from mogd.compressed import dense_or_refuse
from mogd.datasets.encoder import FEW
from mogd.datasets.frames import need, read_frame
from mogd.datasets.labelsets import (
    Sets,
    annotator_sets,
    column_labels,
    column_sets,
    label_sets,
    of_one_kind,
    vote_sets,
)
from mogd.datasets.rows import row_ids

if TYPE_CHECKING:
    import polars as pl

LONG_TEXT = 20  # characters on average; shorter texts are names or codes


@dataclass(frozen=True, eq=False)
class LabelRows:
    """All rows of a table. `frame` has the columns that may be shown and learned from, `said` the votes of each row."""

    name: str
    ids: np.ndarray
    id_name: str | None
    candidates: Candidates
    frame: pl.DataFrame
    known: dict[int, int] = field(default_factory=dict)  # row -> class, where the table has the label already
    said: list[dict[int, int]] = field(default_factory=list)  # row -> class -> votes; empty without annotators
    text: str | None = None
    images: Path | None = None
    image_column: str | None = None
    hidden: tuple[str, ...] = ()  # columns of nothing but labels, which would give the answer away

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def class_names(self) -> list[str]:
        return [label_text(label) for label in self.candidates.classes.tolist()]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the ids and candidate sets: answers belong to these."""
        content = json.dumps([[str(i) for i in self.ids.tolist()], self.class_names])
        sets = np.packbits(dense_or_refuse(self.candidates.matrix, "the labelling page"))
        return hashlib.sha256(content.encode() + sets.tobytes()).hexdigest()


def read_rows(
    path: Path,
    candidates: str | None = "labels",
    *,
    annotators: Sequence[str] = (),
    votes: Path | None = None,
    clean: str | Path | None = None,
    id: str | None = None,
    text: str | None = None,
    images: Path | None = None,
    image_column: str = "file",
    ignore: Sequence[str] = (),
    delimiter: str | None = None,
) -> LabelRows:
    """Read a table to be labelled; the options are those of `read_table`.

    A row without candidates gets all labels. Without `text`, the longest column of free text is taken; columns that
    hold nothing but labels are left out, as they would give the answer away.
    """
    frame = read_frame(path)
    for name in (*ignore, *([text] if text else [])):
        need(frame, name, "--ignore" if name in ignore else "--text")
    id = "id" if id is None and "id" in frame.columns and "id" not in ignore else id
    ids = row_ids(frame, id)
    sets, used = _sets(frame, candidates, annotators, votes, ids, delimiter)
    known_sets, clean_column = _known(frame, clean, id, ids)
    sets, known_sets = of_one_kind(sets, known_sets)
    classes = sorted(sets.labels | known_sets.labels)
    if not classes:
        raise ValueError(f"{path} names no label at all: check --candidates or --annotators")
    if images is not None:
        if not images.is_dir():
            raise FileNotFoundError(f"there is no folder {images} of pictures")
        need(frame, image_column, "the file names of the pictures (--image-column)")
    frame = frame.drop([name for name in {id, clean_column, *used, *ignore} if name and name in frame.columns])
    hidden = [name for name in _label_columns(frame, {label_text(label) for label in classes}) if name != text]
    frame = frame.drop(hidden)
    places = {label: place for place, label in enumerate(classes)}
    return LabelRows(
        name=path.name,
        ids=ids,
        id_name=id,
        candidates=sets.candidates(classes),
        frame=frame,
        known={row: places[labels[0]] for row, labels in enumerate(known_sets) if labels},
        said=[dict(Counter(places[label] for label in row)) for row in sets] if annotators or votes else [],
        text=text or _longest_text(frame, image_column if images else None),
        images=images,
        image_column=image_column if images else None,
        hidden=tuple(hidden),
    )


def label_text(label: Any) -> str:
    return str(label).lower() if isinstance(label, bool) else str(label)


def _sets(
    frame: pl.DataFrame,
    candidates: str | None,
    annotators: Sequence[str],
    votes: Path | None,
    ids: np.ndarray,
    delimiter: str | None,
) -> tuple[Sets, list[str]]:
    if votes is not None and annotators:
        raise ValueError("candidates come from --annotators or from --votes: give one of the two")
    beside = [candidates] if candidates else []
    if votes is not None:
        return vote_sets(read_frame(votes), ids.tolist()), beside
    if annotators:
        return annotator_sets(frame, annotators), [*annotators, *beside]
    if candidates is None:
        raise ValueError("name the column of candidate sets by --candidates, or the --annotators or --votes")
    need(frame, candidates, "the candidates (--candidates, or --annotators A,B,C)")
    return column_sets(frame[candidates], delimiter), [candidates]


def _known(frame: pl.DataFrame, clean: str | Path | None, id: str | None, ids: np.ndarray) -> tuple[Sets, str | None]:
    """The labels that are known already, by a column of the table or a table of ids and labels, such as `--out` is."""
    if clean is None:
        return Sets.empty(frame.height), None
    if str(clean) in frame.columns:
        return label_sets(frame[str(clean)]), str(clean)
    known: list[list[Any]] = [[] for _ in range(frame.height)]
    other = read_frame(clean)
    need(other, "label", f"the labels of {clean}")
    need(other, id or "row", f"the rows of {clean}")
    where = {str(name): row for row, name in enumerate(ids.tolist())}
    for name, label in zip(other[id or "row"].to_list(), column_labels(other["label"]), strict=True):
        if str(name) not in where:
            raise ValueError(f"{clean} names {name!r}, which is no row of the table")
        known[where[str(name)]] = [] if label is None else [label]
    return Sets.of(known), None


def _label_columns(frame: pl.DataFrame, names: set[str]) -> list[str]:
    """Text columns with at least two values and nothing but labels in them."""
    import polars as pl

    found = []
    for name in frame.columns:
        if frame[name].dtype in (pl.String, pl.Categorical, pl.Enum):
            values = {cell.strip() for cell in frame[name].unique().cast(pl.String).to_list() if cell}
            if len(values) > 1 and values <= names:
                found.append(name)
    return found


def _longest_text(frame: pl.DataFrame, apart: str | None) -> str | None:
    """The column of free text with the longest cells: many different values, and longer than names are."""
    import polars as pl

    lengths: dict[str, float] = {}
    for name in frame.columns:
        column = frame[name]
        if name == apart or column.dtype != pl.String:
            continue
        mean = column.str.len_chars().mean()
        if isinstance(mean, float) and mean >= LONG_TEXT and column.n_unique() > min(FEW, frame.height // 2):
            lengths[name] = mean
    return max(lengths, key=lengths.__getitem__) if lengths else None
