"""What a fit reports of its clean set: whether it was large enough for the meta step, and how many rows would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

LEAST = 0.1  # a shrinkage that never rises above this leaves the confidences as the model alone would have them
ENOUGH = 0.5  # half of the alignment is signal


@dataclass(frozen=True)
class CleanSetAdvice:
    """How far the halves of the clean set agreed, and what that means for its size.

    With M rows the shrinkage is s = a² / (a² + v/M), a² the signal and v the noise of one row, so that one fit gives
    the whole curve: s(M') = 1 / (1 + (1/s − 1) · M/M').
    """

    n_clean: int
    shrinkage: float  # the highest of any epoch: it falls to 0 in the end, when the clean rows are fitted

    @property
    def enough(self) -> bool:
        """Whether a step was taken at all; whether it helped, only rows that were held out can say."""
        return self.shrinkage > LEAST

    def expected(self, n_clean: int) -> float:
        """The shrinkage to expect of a clean set of that size."""
        if self.shrinkage <= 0 or n_clean <= 0:
            return 0.0
        return 1 / (1 + (1 / self.shrinkage - 1) * self.n_clean / n_clean)

    def needed(self, shrinkage: float = ENOUGH) -> int | None:
        """The number of clean rows at which that shrinkage is to be expected; None where the halves never agreed."""
        if self.shrinkage <= 0:
            return None
        return max(1, round(self.n_clean * (1 / self.shrinkage - 1) * shrinkage / (1 - shrinkage)))

    def curve(self) -> dict[int, float]:
        """The expected shrinkage at this size and at 2, 4, 8 and 16 times as many rows."""
        return {self.n_clean * k: self.expected(self.n_clean * k) for k in (1, 2, 4, 8, 16)}

    @property
    def _rows(self) -> str:
        return "one clean row was" if self.n_clean == 1 else f"{self.n_clean} clean rows were"

    def __str__(self) -> str:
        if self.enough:
            return f"taken: the halves of the {self.n_clean} clean rows agreed to {self.shrinkage:.0%} at best"
        finding = f"the {self._rows} too few for it: their halves agreed to {self.shrinkage:.0%} at best"
        rows = self.needed()
        if rows is None:
            return f"{finding}; label more rows, {10 * self.n_clean} to begin with, and check the labels you have"
        curve = ", ".join(f"{m} rows {s:.0%}" for m, s in self.curve().items())
        return f"{finding}; with about {rows} rows half of the step would be kept (expected: {curve})"


def clean_set_advice(history: list[dict[str, Any]], n_clean: int) -> CleanSetAdvice | None:
    """Advice from the history of a fit; None for a method that measures no shrinkage."""
    seen = [entry["shrinkage"] for entry in history if "shrinkage" in entry]
    return CleanSetAdvice(n_clean, max(seen)) if seen and n_clean else None
