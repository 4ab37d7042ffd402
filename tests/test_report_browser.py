"""The page in a real browser: silent, within its width, readable in both themes, named for screen readers, on paper."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser_tools import CLIPPED, OPEN_ALL, barriers, overheard
from playwright.sync_api import Browser, Page
from report_records import everything

from mogd.report.sections import sections
from mogd.report.svg import N_COLOURS
from mogd.report.write import render

# Each text with its colour and the first ground below it that is not transparent.
TEXTS = """() => {
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest('script, title, desc')) continue;
    const style = getComputedStyle(element);
    const colour = element.closest('svg') ? style.fill : style.color;
    let ground = element;
    while (ground && getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)') ground = ground.parentElement;
    const below = ground ? getComputedStyle(ground).backgroundColor : 'rgb(255, 255, 255)';
    found.set(colour + below, [colour, below, walker.currentNode.data.trim().slice(0, 40)]);
  }
  return [...found.values()];
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    records = everything()
    long = "a method whose name is far longer than any that a table should have to hold"
    records += [{**r, "key": r["key"][::-1], "label": long} for r in records if r["algorithm"] == "lws"]
    path = tmp_path_factory.mktemp("report") / "report.html"
    notes = {
        "real-world": "What we tried: `mogd bench benchmarks/real-world.toml --scale laptop --only " + "x" * 90 + "`."
    }
    path.write_text(render("html", sections(records), records, notes, ""), encoding="utf-8")
    return path.as_uri()


def opened(browser: Browser, address: str, width: int = 1280, scheme: Any = "light") -> Page:
    page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.goto(address)
    return page


def channels(colour: str) -> np.ndarray:
    return np.array([float(part) for part in re.findall(r"[\d.]+", colour)[:3]]) / 255


def linear_light(colour: str) -> np.ndarray:
    c = channels(colour)
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """WCAG 2.2's ratio."""
    light, dark = sorted((float(linear_light(c) @ (0.2126, 0.7152, 0.0722)) for c in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_it_is_silent_and_asks_the_network_for_nothing(browser: Browser, address: str) -> None:
    page = browser.new_page()
    said, asked = overheard(page)
    page.goto(address)
    page.evaluate(OPEN_ALL)
    page.get_by_role("button").click()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [address]


@pytest.mark.parametrize("width", [360, 1280])
def test_it_never_scrolls_sideways(browser: Browser, address: str, width: int) -> None:
    page = opened(browser, address, width)
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Wide things do scroll, in boxes that the keyboard reaches.
    boxes = "[...document.querySelectorAll('.scroll')].filter((box) => box.scrollWidth > box.clientWidth + 1)"
    assert page.evaluate(f"{boxes}.every((box) => box.tabIndex === 0 && box.getAttribute('aria-label'))")
    assert page.evaluate(f"{boxes}.length") > 0


def test_no_chart_cuts_its_text(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    page.evaluate(OPEN_ALL)
    assert page.evaluate(CLIPPED) == []


def test_the_switch_changes_the_theme_and_is_remembered(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark page").click()
    dark = page.evaluate(ground)
    assert channels(dark).max() < 0.2 < 0.9 < channels(light).min()
    page.reload()
    assert page.evaluate(ground) == dark
    page.get_by_role("button", name="Light page").click()
    assert page.evaluate(ground) == light


def test_it_follows_the_system_without_script(browser: Browser, address: str) -> None:
    context = browser.new_context(color_scheme="dark", java_script_enabled=False)
    page = context.new_page()
    page.goto(address)
    assert page.get_by_role("button").count() == 0  # a switch that cannot work is not shown
    shot = page.screenshot(clip={"x": 0, "y": 0, "width": 4, "height": 4})
    context.close()
    light_page = opened(browser, address).screenshot(clip={"x": 0, "y": 0, "width": 4, "height": 4})
    assert shot != light_page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out(browser: Browser, address: str, scheme: str) -> None:
    page = opened(browser, address, scheme=scheme)
    page.evaluate(OPEN_ALL)
    texts = page.evaluate(TEXTS)
    assert len(texts) > 6
    weak = [
        (text, round(contrast(colour, ground), 2)) for colour, ground, text in texts if contrast(colour, ground) < 4.5
    ]
    assert weak == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [colour for colour in line_colours(page) if contrast(colour, ground) < 3] == []


def line_colours(page: Page) -> list[str]:
    code = """(n) => [...Array(n).keys()].map((i) => {
      const probe = document.body.appendChild(document.createElement('i'));
      probe.style.color = `var(--c${i})`;
      return getComputedStyle(probe).color;
    })"""
    return page.evaluate(code, N_COLOURS)


# Machado, Oliveira and Fernandes 2009: how the colours look to eyes that lack one kind of cone.
EYES = {
    "normal": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_line_colours_differ_for_every_kind_of_eye(browser: Browser, address: str, scheme: str) -> None:
    colours = line_colours(opened(browser, address, scheme=scheme))
    for eye, matrix in EYES.items():
        seen = [_lab(np.clip(np.asarray(matrix) @ linear_light(colour), 0, 1)) for colour in colours]
        assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > 30, eye


def _lab(light: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ light / (0.9505, 1.0, 1.089)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_chart_and_table_has_a_name(browser: Browser, address: str) -> None:
    page = opened(browser, address)
    page.evaluate(OPEN_ALL)
    charts = page.locator("svg").count()
    assert charts > 10
    assert page.get_by_role("img", name=re.compile(r"\w+.* \d")).count() == charts  # title and figures
    assert page.get_by_role("table", name=re.compile(r"\w{4,}")).count() == page.locator("table").count()
    assert page.get_by_role("heading", level=1).count() == 1
    best = page.locator("#real-world-laptop-real-world-accuracy td.best").first
    assert best.locator("strong").count() == 1
    assert "best of its column" in best.inner_text()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_axe_finds_no_barrier(browser: Browser, address: str, width: int, scheme: str) -> None:
    page = opened(browser, address, width, scheme)
    page.evaluate(OPEN_ALL)
    assert barriers(page) == []


def test_it_prints(browser: Browser, address: str, tmp_path: Path) -> None:
    page = opened(browser, address, width=720, scheme="dark")
    folded = page.locator("details:not([open])").count()
    count = "folded = document.querySelectorAll('details:not([open])').length"
    page.evaluate(f"addEventListener('beforeprint', () => {{ {count}; }})")
    pdf = page.pdf(format="A4", path=tmp_path / "report.pdf")
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", pdf)) > 3
    assert page.evaluate("folded") == 0  # paper cannot be unfolded
    assert page.locator("details:not([open])").count() == folded > 0
    page.emulate_media(media="print")
    page.evaluate(OPEN_ALL)
    assert channels(page.evaluate("getComputedStyle(document.body).color")).max() < 0.2  # ink on paper, not a dark page
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    assert not page.get_by_role("button").is_visible()
