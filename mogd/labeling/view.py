"""One row as the page shows it: plain values for JSON, every one of them shown as text and never as markup."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from mogd.labeling.rows import LabelRows

SHOWN_FIRST = 8  # columns shown at once; the others unfold
MOST_COLUMNS = 500
MOST_CHARACTERS = 100_000  # of one cell


class RowView:
    """Makes what the page shows of a row."""

    def __init__(self, rows: LabelRows, *, blind: bool = False) -> None:
        self.rows = rows
        self.blind = blind
        self.class_names = rows.class_names

    @cached_property
    def _scales(self) -> dict[str, tuple[float, float]]:
        """Mean and standard deviation of the numeric columns."""
        frame, found = self.rows.frame, {}
        for name, dtype in frame.schema.items():
            if dtype.is_numeric() and name not in (self.rows.text, self.rows.image_column):
                values = frame[name].cast(float).to_numpy()
                values = values[np.isfinite(values)]
                if len(values) and values.std() > 0:
                    found[name] = (float(values.mean()), float(values.std()))
        return found

    def of(self, row: int, belief: np.ndarray | None, reason: str | None) -> dict[str, Any]:
        """The row's cells, its candidates with the guess marked, and why it was chosen."""
        rows = self.rows
        cells = rows.frame.row(row, named=True)
        columns = self._columns(cells)
        likely = self._likely(row, belief)
        indices = np.flatnonzero(rows.candidates.matrix[row]).tolist()
        said = rows.said[row] if rows.said and not self.blind else {}
        return {
            "row": row,
            "id": str(rows.ids[row]),
            "text": None if rows.text is None else _cell(cells[rows.text]),
            "text_name": rows.text,
            "image": f"/image/{row}" if rows.images is not None else None,
            "image_name": None if rows.image_column is None else _cell(cells[rows.image_column]),
            "columns": columns[:SHOWN_FIRST] if rows.text is None and rows.images is None else [],
            "more_columns": columns[SHOWN_FIRST:] if rows.text is None and rows.images is None else columns,
            "candidates": [
                {
                    "index": k,
                    "label": self.class_names[k],
                    "votes": said.get(k, 0),
                    "probability": None if likely is None else float(likely[k]),
                }
                for k in indices
            ],
            "guess": self._guess(row, likely),
            "reason": reason,
        }

    def _likely(self, row: int, belief: np.ndarray | None) -> np.ndarray | None:
        return None if belief is None or self.blind else belief[row]

    def _guess(self, row: int, likely: np.ndarray | None) -> int | None:
        """The model's best candidate; before there is a model, the label with the most votes if it is alone."""
        if self.blind:
            return None
        if likely is not None:
            return int(likely.argmax())
        votes = self.rows.said[row] if self.rows.said else {}
        best = [k for k, count in votes.items() if count == max(votes.values())]
        return best[0] if len(best) == 1 else None

    def _columns(self, cells: dict[str, Any]) -> list[list[str]]:
        """Names and cells, those first in which the row differs most from the others."""
        apart = {self.rows.text, self.rows.image_column}
        names = [name for name in cells if name not in apart and cells[name] is not None]
        names.sort(key=lambda name: -self._distance(name, cells[name]))
        return [[name, _cell(cells[name])] for name in names[:MOST_COLUMNS]]

    def _distance(self, name: str, value: Any) -> float:
        if name not in self._scales:
            return 1.0  # a category is as telling as a number one standard deviation from its mean
        mean, std = self._scales[name]
        distance = abs(float(value) - mean) / std
        return distance if np.isfinite(distance) else 0.0


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text)} characters)"
