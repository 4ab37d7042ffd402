"""The paper's own figures, kept as data in `benchmarks/paper.toml`, each with the label of its table as source."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mogd.experiments.spec import PACKAGED, default_label

DEFAULT = Path("benchmarks") / "paper.toml"
SAME_ROW = {"mogd-paper": "mogd"}  # both forms stand beside the paper's one MoGD


@dataclass(frozen=True)
class Figure:
    """A printed figure in percent, and the table that it is printed in."""

    mean: float
    std: float
    source: str


class PaperFigures:
    """Look up what the paper printed; empty where there is no such file."""

    def __init__(self, path: str | Path | None = None) -> None:
        self._found: dict[tuple[str, str, str, str], Figure] = {}
        path = Path(path) if path is not None else DEFAULT if DEFAULT.is_file() else PACKAGED / "paper.toml"
        if path.is_file():
            for table in tomllib.loads(path.read_text(encoding="utf-8"))["table"]:
                self._add(table)

    def __len__(self) -> int:
        return len(self._found)

    def find(self, panel: str, dataset: str, setting: dict[str, Any], algorithm: str, label: str) -> Figure | None:
        """The figure for a cell of a table; a variant with a label of its own has none."""
        if label != default_label(algorithm):
            return None
        return self._found.get((panel, dataset, _text(setting), SAME_ROW.get(algorithm, algorithm)))

    def _add(self, table: dict[str, Any]) -> None:
        for algorithm, figures in table["rows"].items():
            for column, (mean, std) in zip(table["columns"], figures, strict=True):
                setting = {name: value for name, value in column.items() if name != "dataset"}
                place = (table["panel"], column["dataset"], _text(setting), algorithm)
                self._found[place] = Figure(mean, std, table["source"])


def _text(setting: dict[str, Any]) -> str:
    return json.dumps(setting, sort_keys=True)
