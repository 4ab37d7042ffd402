"""Nothing that is there is replaced unless `--force` says so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

STANDARD = "-"  # the standard output
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]


def check_free(out: Path | None, force: bool, option: str = "--out") -> None:
    """Refuse a file that is there, or a folder, before the time is spent to make another."""
    if out is not None and out.is_dir():
        raise IsADirectoryError(f"{out} is a folder: name a file in it by {option}")
    if out is not None and str(out) != STANDARD and out.is_file() and not force:
        raise FileExistsError(f"{out} is there already: --force replaces it; or name another file by {option}")
