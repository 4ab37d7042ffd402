"""A row's columns, text and picture as numbers, to compare rows and to fit a model."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from mogd.datasets.encoder import TableEncoder
from mogd.datasets.folders import open_picture
from mogd.labeling.rows import LabelRows

MOST_VALUES = 50  # a text column of more values than this is a name, not a category
WORDS, TOPICS = 20_000, 64  # of the text: words and pairs of words kept, and the dimensions they are brought to
SIDE = 16  # pictures are compared at this width and height


def features(rows: LabelRows) -> np.ndarray:
    """One row of numbers for each row of the table, without missing cells; a column of zeros where there is nothing."""
    parts = [_columns(rows)]
    if rows.text is not None:
        parts.append(_text(rows.frame[rows.text].to_list()))
    if rows.images is not None:
        parts.append(_pictures(rows))
    X = np.hstack([part for part in parts if part.shape[1]] or [np.zeros((len(rows), 1))])
    return np.nan_to_num(X, posinf=0, neginf=0).astype(np.float32)


def _columns(rows: LabelRows) -> np.ndarray:
    import polars as pl

    apart = {rows.text, rows.image_column}
    names = [
        name
        for name, dtype in rows.frame.schema.items()
        if name not in apart and (dtype.is_numeric() or dtype == pl.Boolean or _is_category(rows.frame[name]))
    ]
    if not names:
        return np.empty((len(rows), 0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cells are filled here whatever they are; the fit itself asks for --impute
        return TableEncoder(impute="median").fit_transform(rows.frame.select(names))


def _is_category(column: Any) -> bool:
    import polars as pl

    return column.dtype in (pl.String, pl.Categorical, pl.Enum) and 1 < column.n_unique() <= MOST_VALUES


def _text(cells: list[Any]) -> np.ndarray:
    """Word and word-pair frequencies, brought to a few dimensions."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = ["" if cell is None else str(cell) for cell in cells]
    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2 if len(texts) > 100 else 1, max_features=WORDS)
    try:
        counts = words.fit_transform(texts)
    except ValueError:  # not a single word
        return np.empty((len(texts), 0))
    if min(counts.shape) <= TOPICS:
        return counts.toarray()
    return TruncatedSVD(TOPICS, random_state=0).fit_transform(counts)


def _pictures(rows: LabelRows) -> np.ndarray:
    """Small copies; a picture that is not there or cannot be read is grey."""
    from mogd.labeling.pictures import find_picture

    found = np.full((len(rows), SIDE * SIDE * 3), 128, dtype=np.float32)
    for row in range(len(rows)):
        try:
            with open_picture(find_picture(rows, row)) as picture:
                picture.draft("RGB", (SIDE, SIDE))
                found[row] = np.asarray(picture.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32).ravel()
        except ImportError:
            raise
        except Exception:  # a damaged picture can raise nearly anything
            continue
    return found
