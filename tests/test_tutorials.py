"""The tutorials are executed on genuine data: every block runs, and prints what the page says."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from mogd.cli import main

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "settings.md", *sorted((DOCS / "tutorials").glob("*.md"))]
BLOCK = re.compile(r"```(python|sh|text)\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"\d[\d,]*\.?\d*")
TOLERANCE = 0.015  # of a figure: the last digits differ between processors


def like(printed: str, shown: str) -> bool:
    """Whether two lines are the same but for spaces and for figures that are nearly equal."""
    if " ".join(NUMBER.sub("0", printed).split()) != " ".join(NUMBER.sub("0", shown).split()):
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True)
    numbers = [(float(a.replace(",", "").rstrip(".")), float(b.replace(",", "").rstrip("."))) for a, b in pairs]
    return all(abs(a - b) <= max(TOLERANCE * abs(b), 1) for a, b in numbers)


def test_lines_are_compared_by_their_words_and_figures() -> None:
    assert like("mogd  76.1 % of 950", "mogd 75.9 % of 950")
    assert not like("mogd 60.1 % of 950", "mogd 75.9 % of 950")
    assert not like("cc 75.9 % of 950", "mogd 75.9 % of 950")


def genuine(name: str, missing: Callable[[str], NoReturn]) -> Path:
    for folder in os.environ.get("MOGD_DATA", "").split(os.pathsep):
        if Path(folder, name).is_file():
            return Path(folder, name)
    missing(f"this needs the genuine {name}: set MOGD_DATA to its folder")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_does_what_the_page_says(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    missing: Callable[[str], NoReturn],
) -> None:
    text = page.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    if "nyt.csv" in text:
        Path("nyt.csv").symlink_to(genuine("nyt.csv", missing))
    if 'load("lost")' in text:
        genuine("lost.mat", missing)
    names: dict[str, object] = {}
    printed: list[str] = []
    for kind, block in BLOCK.findall(text):
        if kind == "text":
            for line in block.splitlines():
                assert any(like(found, line) for found in printed), (line, printed)
        elif kind == "python":
            exec(compile(block, page.name, "exec"), names)
            printed = capsys.readouterr().out.splitlines()
        else:
            for line in block.replace("\\\n", " ").splitlines():
                monkeypatch.setattr(sys, "argv", shlex.split(line))
                with pytest.raises(SystemExit) as stopped:
                    main()
                assert stopped.value.code == 0, (line, capsys.readouterr().err)
            printed = capsys.readouterr().out.splitlines()
