"""The site builds without a warning and without the network, and a reader finds every page and name."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from browser_tools import barriers
from playwright.sync_api import Browser

import mogd
from mogd.algorithms import ALGORITHMS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOT_PAGES = {"results-notes"}  # the commentary within results.md


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {str(page.relative_to(DOCS).with_suffix("")) for page in DOCS.rglob("*.md")} - NOT_PAGES
    assert {page for page in pages if not (site / f"{page}.html").is_file()} == set()


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    reference = (site / "reference.html").read_text(encoding="utf-8")
    absent = [name for name in mogd.__all__ if f'id="mogd.{name}"' not in reference]
    assert absent == []
    assert 'id="mogd.PartialLabelClassifier.to_onnx"' in reference
    assert 'id="mogd.PartialLabelClassifier.disambiguate"' in reference  # of the base


def test_the_table_of_methods_is_the_librarys() -> None:
    rows = re.findall(r"^\| \[([\w-]+)\]\([^)]*\)(\*?) \| (.+?) \| (.+?) \|$", (DOCS / "methods.md").read_text(), re.M)
    own = [(a.name, "*" if a.needs_clean_set else "", a.title, a.paper) for a in ALGORITHMS.values()]
    assert rows == own


def test_the_front_page_asks_the_network_for_nothing_and_has_no_barrier(site: Path, browser: Browser) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, bypass_csp=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(site.joinpath("index.html").as_uri())
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert page.evaluate("document.querySelector('img').naturalWidth") > 100
    assert barriers(page) == []
    page.close()


def test_the_citation_is_of_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation


@pytest.mark.parametrize("name", ["reference", "methods/mogd"])
def test_no_signature_or_title_is_cut_on_a_phone(site: Path, browser: Browser, name: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto(site.joinpath(f"{name}.html").as_uri())
    wide = "[...document.querySelectorAll('dt.sig, h1')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.id)"
    assert page.evaluate(wide) == []
    page.close()
