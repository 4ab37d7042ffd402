"""From the columns of a table to features, the same at training and at prediction time; kept as plain JSON."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder

from mogd.candidates import name_rows
from mogd.datasets.frames import need
from mogd.datasets.numbers import MARKS, decimal_mark, numbers, stray_cells
from mogd.datasets.text import Arrays, FolderText, TextFeatures, TfidfText
from mogd.datasets.text import from_json as text_from_json
from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl

IMPUTE = ("median", "mean", "most_frequent")
SENTENCE = 4  # words on average; as many make a text of a column that has few rows
FEW = 20  # a text column of no more values than this is a category, however few rows there are


class TableEncoder:
    """Numbers and booleans as they are, text columns one-hot, missing cells counted and filled only when asked.

    Parameters
    ----------
    skip : columns that are no features: the id, the labels, whatever is to be left out.
    impute : None leaves missing cells missing; "median" and "mean" fill numbers by their column's, and text by its most
        frequent value; "most_frequent" fills both by that.
    decimal : the decimal mark of numbers in text, "," or "."; None finds it in each column.
    text : columns of free text, each made numbers by TF-IDF and a truncated SVD, or by the model in the folder
        `text_model`.

    Attributes
    ----------
    numeric_ : name -> what fills a missing cell, or None. categories_ : name -> the values of a text column.
    fill_ : name -> what fills a missing cell of a text column. feature_names_ : the columns of what `transform` gives.
    missing_ : name -> the number of missing cells, in the table that was last transformed, before they were filled.
    texts_ : name -> what makes numbers of a column of free text.
    marks_ : name -> the decimal mark of a column of numbers in text.
    ignored_ : columns of a kind that is no feature (dates, lists), left out with a warning.
    """

    kind = "columns"

    def __init__(
        self,
        skip: Sequence[str] = (),
        impute: str | None = None,
        decimal: str | None = None,
        text: Sequence[str] = (),
        text_model: str | os.PathLike[str] | None = None,
    ) -> None:
        self.skip = skip
        self.impute = impute
        self.decimal = decimal
        self.text = text
        self.text_model = text_model

    def fit(self, frame: pl.DataFrame) -> Self:
        """Learn the columns, their categories and what fills their missing cells."""
        if self.impute is not None and self.impute not in IMPUTE:
            raise ValueError(f"impute must be None or one of {', '.join(IMPUTE)}; got {self.impute!r}")
        if self.decimal is not None and self.decimal not in MARKS:
            raise ValueError(f"decimal must be None, ',' or '.'; got {self.decimal!r}")
        numeric, text, self.ignored_ = _kinds(frame, {*self.skip, *self.text})
        self.marks_ = self._marks(frame, text)
        numeric, text = (
            [name for name in frame.columns if name in numeric or name in self.marks_],
            [name for name in text if name not in self.marks_],
        )
        if not numeric and not text and not self.text:
            raise ValueError(
                f"the table has no feature column: of its columns ({', '.join(frame.columns)}) none is left when ids, "
                "labels and dates are taken away"
            )
        if self.ignored_:
            warnings.warn(
                f"column {', '.join(self.ignored_)} is left out, because it holds dates or lists: make numbers of it "
                "to use it",
                stacklevel=2,
            )
        self.numeric_: dict[str, float | None] = dict.fromkeys(numeric)
        self.fill_: dict[str, str | None] = dict.fromkeys(text)
        self.categories_: dict[str, list[str]] = {}
        if self.impute and numeric:
            imputer = SimpleImputer(strategy=self.impute, keep_empty_features=True).fit(
                numbers(frame, numeric, self.marks_)
            )
            self.numeric_ = dict(zip(numeric, imputer.statistics_.tolist(), strict=True))
        for name in text:
            values = _texts(frame, name)
            known = values[values != np.array(None)].reshape(-1, 1)
            self.categories_[name] = OneHotEncoder().fit(known).categories_[0].tolist() if len(known) else []
            if is_free_text(self.categories_[name], len(known)):
                if stray := _describe_stray(frame[name]):
                    raise ValueError(stray)
                raise ValueError(
                    f"text column {name!r} has {len(self.categories_[name])} different values in {len(known)} rows, so "
                    f"it is free text, a name or an id and no category: {option('text', name)} learns from its words, "
                    f"{option('id', name)} makes it the id, {option('ignore', [name])} leaves it out"
                )
            if stray := _describe_stray(frame[name]):
                warnings.warn(f"{stray}; as it is, its numbers are taken for names", stacklevel=2)
            if self.impute and len(known):
                self.fill_[name] = SimpleImputer(strategy="most_frequent").fit(known).statistics_[0]
        self.texts_: dict[str, TextFeatures] = {}
        for name in self.text:
            features = TfidfText() if self.text_model is None else FolderText(self.text_model)
            self.texts_[name] = features.fit(_words(frame, name), name)
        return self

    @property
    def feature_names_(self) -> list[str]:
        one_hot = (f"{name}={value}" for name, values in self.categories_.items() for value in values)
        words = (f"{name}#{i}" for name, text in self.texts_.items() for i in range(text.width))
        return [*self.numeric_, *one_hot, *words]

    def transform(self, frame: pl.DataFrame) -> np.ndarray:
        """Features of shape `(n, len(feature_names_))`; a cell that is missing and not filled is NaN."""
        absent = [name for name in (*self.numeric_, *self.categories_, *self.texts_) if name not in frame.columns]
        if absent:
            more = f" and {len(absent) - 5} more" if len(absent) > 5 else ""
            raise ValueError(
                f"the table lacks column {', '.join(map(repr, absent[:5]))}{more}, which the model was fitted on; "
                f"it has {', '.join(frame.columns)}"
            )
        values = numbers(frame, list(self.numeric_), self.marks_)
        empty = np.isnan(values).sum(axis=0)
        self.missing_ = {name: int(count) for name, count in zip(self.numeric_, empty, strict=True) if count}
        for column, fill in enumerate(self.numeric_.values()):
            if fill is not None:
                cells = values[:, column]
                cells[np.isnan(cells)] = fill
        parts = [values, *(self._one_hot(frame, name) for name in self.categories_)]
        parts += [text.transform(_words(frame, name)) for name, text in self.texts_.items()]
        return np.hstack(parts) if len(parts) > 1 else values

    def fit_transform(self, frame: pl.DataFrame) -> np.ndarray:
        return self.fit(frame).transform(frame)

    def _marks(self, frame: pl.DataFrame, text: list[str]) -> dict[str, str]:
        import polars as pl

        found = {name: decimal_mark(frame[name].cast(pl.String), self.decimal) for name in text}
        marks = {name: mark for name, mark in found.items() if mark is not None}
        commas = [name for name, mark in marks.items() if mark == ","]
        if commas and self.decimal is None:
            warnings.warn(f"column {', '.join(commas)} is read as numbers with decimal commas", stacklevel=3)
        return marks

    def _one_hot(self, frame: pl.DataFrame, name: str) -> np.ndarray:
        categories, values = self.categories_[name], _texts(frame, name)
        missing = values == np.array(None)
        if missing.any():
            self.missing_[name] = int(missing.sum())
        if not categories:
            return np.empty((len(values), 0))
        fill = self.fill_[name]
        values[missing] = categories[0] if fill is None else fill
        new = ~np.isin(values.astype(str), categories)
        if new.any():
            warnings.warn(
                f"column {name!r} has {len(set(values[new]))} values that were not seen in training (such as "
                f"{values[new][0]!r}, {name_rows(np.flatnonzero(new))}): they count as none of the known ones",
                stacklevel=3,
            )
        encoder = OneHotEncoder(categories=[categories], handle_unknown="ignore", sparse_output=False)
        columns = encoder.fit([[categories[0]]]).transform(values.reshape(-1, 1))
        if fill is None:
            columns[missing] = np.nan
        return columns

    def to_json(self) -> dict[str, Any]:
        """Everything `transform` needs, as plain values."""
        return {
            "kind": self.kind,
            "skip": list(self.skip),
            "impute": self.impute,
            "numeric": self.numeric_,
            "categories": self.categories_,
            "fill": self.fill_,
            "marks": self.marks_,
            "texts": {name: text.to_json() for name, text in self.texts_.items()},
        }

    def arrays(self) -> Arrays:
        """What JSON has no room for: the weights and directions of text columns."""
        texts = enumerate(self.texts_.values())
        return {f"{i}.{key}": array for i, text in texts for key, array in text.arrays().items()}

    @classmethod
    def from_json(
        cls, state: Mapping[str, Any], arrays: Arrays | None = None, text_model: str | os.PathLike[str] | None = None
    ) -> Self:
        encoder = cls(state["skip"], state["impute"])
        encoder.texts_ = {}
        for i, (name, text) in enumerate(state.get("texts", {}).items()):
            own = {key.removeprefix(f"{i}."): a for key, a in (arrays or {}).items() if key.startswith(f"{i}.")}
            encoder.texts_[str(name)] = text_from_json(text, own, text_model)
        encoder.numeric_ = {str(k): None if v is None else float(v) for k, v in state["numeric"].items()}
        encoder.categories_ = {str(k): [str(value) for value in v] for k, v in state["categories"].items()}
        encoder.fill_ = {name: state["fill"][name] for name in encoder.categories_}
        encoder.marks_ = {str(k): str(v) for k, v in state.get("marks", {}).items()}
        return encoder


def _describe_stray(column: pl.Series) -> str | None:
    """What is said of a column of numbers that a few cells turn into text, by the first of them."""
    import polars as pl

    stray = stray_cells(column) if column.dtype == pl.String else np.empty(0, dtype=np.int64)
    if not len(stray):
        return None
    cell = column[int(stray[0])]
    return (
        f"column {column.name!r} holds numbers, but for {name_rows(stray)}: {cell!r}; correct the cell, let it count "
        f"as missing by {option('missing', [cell])}, or leave the column out by {option('ignore', [column.name])}"
    )


def is_free_text(values: Sequence[str], n_rows: int) -> bool:
    """Whether a text column is no category: most rows have a value of their own, or a sentence."""
    if len(values) <= n_rows // 2:
        return False
    return len(values) > FEW or sum(len(value.split()) for value in values) >= SENTENCE * len(values)


def _kinds(frame: pl.DataFrame, skip: set[str]) -> tuple[list[str], list[str], list[str]]:
    """The names of the numeric columns, of the text columns, and of those that are neither."""
    import polars as pl

    numeric, text, neither = [], [], []
    for name, dtype in frame.schema.items():
        if name in skip:
            continue
        if dtype.is_numeric() or dtype in (pl.Boolean, pl.Null):
            numeric.append(name)
        elif dtype in (pl.String, pl.Categorical, pl.Enum):
            text.append(name)
        else:
            neither.append(name)
    return numeric, text, neither


def _words(frame: pl.DataFrame, name: str) -> list[str]:
    import polars as pl

    need(frame, name, "the text")
    return frame[name].cast(pl.String).fill_null("").to_list()


def _texts(frame: pl.DataFrame, name: str) -> np.ndarray:
    import polars as pl

    return np.array(frame[name].cast(pl.String).to_list(), dtype=object)
