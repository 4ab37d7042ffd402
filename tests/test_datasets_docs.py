"""The page on data sets says what is so: its Python runs, and its table is the library's."""

from __future__ import annotations

import re
from pathlib import Path

from mogd.datasets.sources import SOURCES

PAGE = (Path(__file__).parents[1] / "docs" / "datasets.md").read_text(encoding="utf-8")


def test_every_line_of_python_runs(genuine_data, fashion_mnist, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    for block in blocks:
        exec(compile(block, "docs/datasets.md", "exec"), scope)
    assert len(blocks) == 4
    shown = capsys.readouterr().out
    for piece in ("'n_rows': 1122", "798 100 224", "(60000, 1, 28, 28) uint8 Ankle boot", "3.74", "'n_rows': 1000"):
        assert piece in shown


def test_the_table_is_the_librarys():
    for source in SOURCES.values():
        average = "made" if source.average_candidates is None else f"{source.average_candidates:.2f}"
        cells = [
            f"`{source.name}`",
            source.n,
            source.n_test or "",
            source.n_features,
            source.n_classes,
            average,
            source.domain,
        ]
        assert "| " + " | ".join(str(cell) for cell in cells).replace("|  |", "| |") + " |" in PAGE
