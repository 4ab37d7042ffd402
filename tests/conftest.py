"""What all tests share: where the genuine data are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
if "MOGD_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["MOGD_DATA"] = str(_BESIDE)


@pytest.fixture(scope="session")
def genuine_data() -> Path:
    """The folder with the genuine Lost, MSRCv2 and BirdSong; a test that needs them fails where they are missing."""
    for folder in os.environ.get("MOGD_DATA", "").split(os.pathsep):
        if folder and all(Path(folder, f"{name}.mat").is_file() for name in ("lost", "MSRCv2", "BirdSong")):
            return Path(folder)
    pytest.fail("the tests need the genuine lost.mat, MSRCv2.mat and BirdSong.mat: set MOGD_DATA to their folder")
