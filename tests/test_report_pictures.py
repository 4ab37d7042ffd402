"""Charts as files: each stands alone in both colour schemes, and the picture of the README is that of the records."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Browser
from report_records import everything
from typer.testing import CliRunner

from mogd.cli import app
from mogd.experiments.record import read_records
from mogd.experiments.spec import in_recipes
from mogd.report.pictures import write_pictures
from mogd.report.sections import sections
from mogd.report.write import render

ROOT = Path(__file__).parents[1]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    records = everything()
    html = render("html", sections(records), records, {}, "")
    folder = tmp_path_factory.mktemp("pictures") / "new"
    found = write_pictures(html, folder)
    assert len(found) == len(set(found)) == len(re.findall(r"<svg[^>]*aria-labelledby", html)) > 3
    return found


def test_they_are_whole_files_with_a_name_and_a_description(pictures: list[Path]) -> None:
    for path in pictures:
        root = ElementTree.parse(path).getroot()
        assert root.tag == f"{SVG}svg"
        assert root.find(f"{SVG}title").text
        assert root.find(f"{SVG}desc").text
        used = set(re.findall(r"var\((--\w+)\)", path.read_text()))
        assert used <= set(re.findall(r"(--\w+):", root.find(f"{SVG}style").text))


def test_the_colours_follow_the_scheme(pictures: list[Path], browser: Browser) -> None:
    colours = {}
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        page.goto(pictures[0].as_uri())
        colours[scheme] = page.evaluate(
            "[document.querySelector('rect'), document.querySelector('text')].map((e) => getComputedStyle(e).fill)"
        )
        page.close()
    assert not set(colours["light"]) & set(colours["dark"])
    assert len(set(colours["light"])) == 2


def test_only_a_page_has_pictures(tmp_path: Path) -> None:
    records = ROOT / "results" / "clean-size-laptop.jsonl"
    command = ["report", str(records), "--out", str(tmp_path / "t.md"), "--pictures", str(tmp_path / "p")]
    answer = CliRunner().invoke(app, command)
    assert "--pictures are those of a page of HTML" in str(answer.exception)


def test_the_picture_of_the_readme_is_of_the_records(tmp_path: Path) -> None:
    """`mogd report results/clean-size-laptop.jsonl --out report.html --pictures docs/pictures` makes it anew."""
    (name,) = re.findall(r"\]\(docs/pictures/([\w-]+\.svg)\)", (ROOT / "README.md").read_text())
    records = in_recipes(read_records([ROOT / "results" / "clean-size-laptop.jsonl"]))
    write_pictures(render("html", sections(records), records, {}, ""), tmp_path)
    assert (tmp_path / name).read_text() == (ROOT / "docs" / "pictures" / name).read_text()
    figures = re.search(r"MoGD: ([\d.]+) at 50.*Fully supervised: ([\d.]+) at 50", (tmp_path / name).read_text())
    said = re.search(r"MoGD names (\d+) %.*?full supervision (\d+) %", (ROOT / "README.md").read_text(), re.DOTALL)
    assert [round(float(value)) for value in figures.groups()] == [int(value) for value in said.groups()]
