"""The shell within this process, which need not import everything again."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mogd.cli import main


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> object:
    """The exit code of `mogd …`, given in a folder, on a screen of 80 columns."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["mogd", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code
