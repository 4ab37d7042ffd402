"""What all tests share: where the genuine data are, and what happens where something from outside is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from playwright.sync_api import Browser, sync_playwright

from mogd import compressed
from mogd.algorithms import ALGORITHMS
from mogd.methods import rows as row_matrices
from mogd.training import seeded

# algorithms, and methods by their class, that need every cell of rows × classes
REFUSING = {"lws", "d2cnn", "LWS", "D2CNN"} | {name for name, algorithm in ALGORITHMS.items() if not algorithm.is_deep}

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
if "MOGD_DATA" not in os.environ and _BESIDE.is_dir():
    os.environ["MOGD_DATA"] = str(_BESIDE)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logstart(nodeid: str) -> None:
    """Under `make coverage`: which lines each test runs, by which `make mutants` chooses the tests of a mutant."""
    if "coverage" in sys.modules and (measuring := sys.modules["coverage"].Coverage.current()) is not None:
        measuring.switch_context(nodeid)


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """What a test calls when data or a program are missing: it fails on CI, and is skipped elsewhere."""

    def stop(message: str) -> NoReturn:
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)

    return stop


@pytest.fixture(scope="session")
def genuine_data(missing: Callable[[str], NoReturn]) -> Path:
    """The folder with the genuine Lost, MSRCv2 and BirdSong."""
    for folder in os.environ.get("MOGD_DATA", "").split(os.pathsep):
        if folder and all(Path(folder, f"{name}.mat").is_file() for name in ("lost", "MSRCv2", "BirdSong")):
            return Path(folder)
    missing("this needs the genuine lost.mat, MSRCv2.mat and BirdSong.mat: set MOGD_DATA to their folder")


@pytest.fixture(scope="session")
def fashion_mnist(missing: Callable[[str], NoReturn]) -> Path:
    """The folder of the complete Fashion-MNIST."""
    from mogd.datasets.sources import find

    return find("fashion-mnist") or missing("this needs Fashion-MNIST: `apt-get install dataset-fashion-mnist`")


@pytest.fixture(scope="session")
def browser(missing: Callable[[str], NoReturn]) -> Iterator[Browser]:
    """A real Chromium without a window."""
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("pages are tested in a browser: `apt-get install chromium`")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        yield found
        found.close()


@pytest.fixture(params=["dense", "compressed"])
def both_forms(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The test with dense candidates, and with compressed ones a few rows at a time; not where these are refused."""
    if request.param == "compressed":
        params = request.node.callspec.params
        refused = {params.get("name"), getattr(params.get("method"), "__name__", type(params.get("method")).__name__)}
        if refused & REFUSING:
            pytest.skip("it refuses compressed candidate sets, as test_compressed.py shows")
        monkeypatch.setattr(compressed, "DENSE_CELLS", 0)
        monkeypatch.setattr(row_matrices, "CELLS_AT_ONCE", 100)
    return request.param


@pytest.fixture
def same_weights() -> Iterator[None]:
    """Networks that a test makes start alike in every run."""
    with seeded(0, torch.device("cpu")):
        yield
