"""The labelling page in a real browser: by keyboard, over a reload and kill -9, hostile cells, every kind of reader."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from browser_tools import barriers
from labeling_tools import Server, eventually, write_table
from PIL import Image
from playwright.sync_api import APIResponse, Browser, Page, Route, expect

HOSTILE = {
    "html": "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>&amp;",
    "quotes": "it's \"quoted\", `ticked`, ${templated}; 'x' OR 1=1 --",
    "emoji": "👩🏽‍🔬🏳️‍🌈 naïve café ﬁ\u0301",
    "rtl": "שלום עולם – مرحبا بالعالم",
    "long": "lorem ipsum " * 833 + "end!",
    "lines": "first line\nsecond\tline, with a comma",
}


def opened(browser: Browser, address: str, **options: Any) -> Page:
    page = browser.new_page(**options)
    page.set_default_timeout(60_000)
    page.goto(address)
    page.locator(".choice").first.wait_for()
    return page


def row_of(page: Page) -> str:
    return page.locator("#row-name").inner_text().removeprefix("Row ")


def answer_by_key(page: Page, label: str) -> str:
    """Press the number of the candidate with this label; the row that was answered."""
    row, count = row_of(page), page.locator("#count").inner_text()
    names = page.locator(".choice .name").all_inner_texts()
    page.keyboard.press(str(names.index(label) + 1))
    expect(page.locator("#count")).not_to_have_text(count, timeout=60_000)
    return row


def test_fifty_rows_by_keyboard_over_a_reload_and_kill_9(browser: Browser, tmp_path: Path) -> None:
    truth = write_table(tmp_path / "rows.csv", 60)
    label_of = {f"r{i}": str(label) for i, label in enumerate(truth)}
    arguments = (tmp_path / "rows.csv", "--out", tmp_path / "clean.csv", "--every", 20)
    server = Server(*arguments)
    page = opened(browser, f"{server.address}/?name=ann")
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    answered = [answer_by_key(page, label_of[row_of(page)]) for _ in range(15)]
    before = row_of(page)
    page.reload()
    page.locator(".choice").first.wait_for()
    assert row_of(page) == before  # the row that was open is still hers
    answered += [answer_by_key(page, label_of[row_of(page)]) for _ in range(10)]
    server.kill()
    row, label = row_of(page), label_of[row_of(page)]
    names = page.locator(".choice .name").all_inner_texts()
    page.keyboard.press(str(names.index(label) + 1))
    expect(page.locator("#problem")).to_contain_text("The server does not answer")
    server = Server(*arguments, port=server.port)
    expect(page.locator("#problem")).to_be_hidden(timeout=60_000)  # the answer was sent again
    answered.append(row)
    answered += [answer_by_key(page, label_of[row_of(page)]) for _ in range(24)]
    page.close()
    assert "50 answers in" in server.stop()
    written = pl.read_csv(tmp_path / "clean.csv")
    assert written["id"].to_list() == answered
    assert len(set(answered)) == 50
    assert written["label"].to_list() == [label_of[row] for row in answered]
    assert set(written["answered_by"]) == {"ann"}
    assert said == []


def test_a_late_reply_to_a_poll_does_not_turn_the_count_back(browser: Browser, tmp_path: Path) -> None:
    truth = write_table(tmp_path / "rows.csv", 20)
    label_of = {f"r{i}": str(label) for i, label in enumerate(truth)}
    server = Server(tmp_path / "rows.csv", "--out", tmp_path / "clean.csv", "--every", 0)
    page = opened(browser, f"{server.address}/?name=ann")
    held: list[tuple[Route, APIResponse]] = []
    page.route("**/api/status", lambda route: held.append((route, route.fetch())))
    deadline = time.monotonic() + 60
    while not held and time.monotonic() < deadline:
        page.wait_for_timeout(100)
    answer_by_key(page, label_of[row_of(page)])
    count = page.locator("#count").inner_text()
    (route, response), *_ = held
    with page.expect_response("**/api/status"):
        route.fulfill(response=response)
    page.wait_for_timeout(300)
    assert page.locator("#count").inner_text() == count
    page.close()
    server.stop()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """Cells, labels, ids and column names that try to be markup, or too much."""
    folder = tmp_path_factory.mktemp("hostile")
    cells = list(HOSTILE.values())
    sets = [json.dumps([cell, cells[(i + 1) % len(cells)]], ensure_ascii=False) for i, cell in enumerate(cells)]
    pl.DataFrame({"id": cells, "<b>text</b>": cells[::-1], "labels": sets, "n": [1.5, 2, 3, 4, 5, 1e9]}).write_csv(
        folder / "rows.csv"
    )
    server = Server(folder / "rows.csv", "--text", "<b>text</b>", "--out", folder / "clean.csv", "--every", 0)
    yield server, folder
    server.stop()


def test_hostile_cells_show_and_survive(browser: Browser, hostile: tuple[Server, Path]) -> None:
    server, folder = hostile
    page = opened(browser, f"{server.address}/?name=<b>ann</b>")
    cells = list(HOSTILE.values())
    given: dict[str, str] = {}
    for _ in range(len(cells)):
        count = page.locator("#count").inner_text()
        row = page.locator("#row-name").text_content() or ""
        place = cells.index(row.removeprefix("Row "))
        assert page.locator("#text").text_content() == cells[::-1][place]
        buttons = page.locator(".choice .name")
        assert sorted(buttons.all_text_contents()) == sorted([cells[place], cells[(place + 1) % len(cells)]])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        given[cells[place]] = buttons.first.text_content() or ""
        page.keyboard.press("1")
        expect(page.locator("#count")).not_to_have_text(count)
    assert page.title() == "Label rows.csv"
    assert page.locator("#last b, #row b, #row script, #row img[src=x]").count() == 0
    eventually(lambda: pl.read_csv(folder / "clean.csv").height == len(cells))
    written = pl.read_csv(folder / "clean.csv")
    assert dict(zip(written["id"], written["label"], strict=True)) == given
    assert set(written["answered_by"]) == {"<b>ann</b>"}
    page.close()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """Rows with pictures, votes of annotators and a text."""
    folder = tmp_path_factory.mktemp("pictures")
    truth = write_table(folder / "rows.csv", 40)
    rng = np.random.default_rng(1)
    for i in range(40):
        Image.fromarray(rng.integers(255, size=(12, 12, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    votes = {f"by{a}": [str(t) if rng.random() < 0.7 else "ant" for t in truth] for a in "ABC"}
    table = pl.read_csv(folder / "rows.csv").drop("labels")
    table = table.with_columns(file=pl.Series([f"{i}.png" for i in range(40)]))
    table.with_columns(**{name: pl.Series(cells) for name, cells in votes.items()}).write_csv(folder / "rows.csv")
    options = ("--annotators", "byA,byB,byC", "--images", folder, "--every", 5)
    server = Server(folder / "rows.csv", *options, "--out", folder / "clean.csv")
    yield server, folder
    server.stop()


def test_every_key_does_what_the_help_says(browser: Browser, pictures: tuple[Server, Path]) -> None:
    server, _ = pictures
    page = opened(browser, f"{server.address}/?name=keys")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    eventually(lambda: page.evaluate("document.getElementById('image').naturalWidth") == 12)
    count = page.locator("#count")
    skipped = row_of(page)
    page.keyboard.press(" ")
    expect(page.locator("#row-name")).not_to_have_text(f"Row {skipped}")
    page.keyboard.press("Backspace")
    expect(page.locator("#row-name")).to_have_text(f"Row {skipped}")
    page.keyboard.press("x")
    page.keyboard.type("ham and 1 x a")  # keys within the field are text
    page.keyboard.press("Enter")
    expect(page.locator("#last .label")).to_have_text(["ham and 1 x a"])
    page.keyboard.press("Control+z")
    expect(page.locator("#row-name")).to_have_text(f"Row {skipped}")
    expect(page.locator("#last .label")).to_have_count(0)
    page.keyboard.press("x")
    page.keyboard.press("Escape")
    expect(page.locator("#typing")).to_be_hidden()
    page.keyboard.press("h")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("1")  # nothing is answered behind the dialog
    page.keyboard.press("Escape")
    expect(page.locator("#last .label")).to_have_count(0)
    for _ in range(12):  # a row with one label that most people gave
        if page.locator(".choice.guess").count():
            break
        row = row_of(page)
        page.keyboard.press(" ")
        expect(page.locator("#row-name")).not_to_have_text(f"Row {row}")
    guess = page.locator(".choice.guess .name").inner_text()
    page.keyboard.press("Enter")
    expect(page.locator("#last .label")).to_have_text([guess])
    page.keyboard.press("9")
    expect(page.locator("#said")).to_have_text("There is no candidate 9.")
    before = row_of(page)
    page.locator("#last button").click()
    expect(page.locator("#editing")).to_be_visible()
    page.keyboard.press("x")
    page.keyboard.type("bee")
    page.keyboard.press("Enter")
    expect(page.locator("#last .label")).to_have_text(["bee"])
    expect(page.locator("#row-name")).to_have_text(f"Row {before}")
    expect(page.locator("#editing")).to_be_hidden()
    assert count.inner_text().startswith("1 of")
    assert {url.split("/")[2] for url in asked} == {server.address.split("/")[2]}  # nothing else is asked for
    page.close()


def test_keys_can_be_switched_off_and_buttons_work(browser: Browser, pictures: tuple[Server, Path]) -> None:
    page = opened(browser, f"{pictures[0].address}/?name=mouse")
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("checkbox").uncheck()
    page.get_by_role("button", name="Close").click()
    row = row_of(page)
    page.keyboard.press("1")
    page.wait_for_timeout(300)
    assert row_of(page) == row
    page.locator(".choice").first.click()
    expect(page.locator("#last button")).to_have_count(1)
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#row-name")).to_have_text(f"Row {row}")
    page.close()


def test_a_screen_reader_hears_what_happens(browser: Browser, pictures: tuple[Server, Path]) -> None:
    page = opened(browser, f"{pictures[0].address}/?name=reader")
    live = page.get_by_role("status")
    assert live.get_attribute("aria-live") == "polite"
    expect(live).to_contain_text("candidate")
    assert page.evaluate("document.activeElement.id") == "row"
    label = page.locator(".choice .name").first.inner_text()
    page.keyboard.press("1")
    expect(live).to_contain_text(f"Kept: {label}.")
    assert page.evaluate("document.activeElement.id") == "row"
    assert page.get_by_role("progressbar").count() == 1
    assert (page.get_by_role("img", name="Picture").get_attribute("alt") or "").endswith(".png")
    page.close()


def test_the_curve_comes_after_refits(browser: Browser, pictures: tuple[Server, Path]) -> None:
    server, _ = pictures
    page = opened(browser, f"{server.address}/?name=curve")
    for _ in range(14):
        count = page.locator("#count").inner_text()
        page.keyboard.press("1")
        expect(page.locator("#count")).not_to_have_text(count)
    eventually(lambda: server.ask("status")["curve"], 300)
    expect(page.locator("#accuracy")).to_contain_text("are resolved rightly", timeout=30_000)
    assert "Held-out accuracy over answers" in (page.locator("#chart title").text_content() or "")
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_no_violation(browser: Browser, pictures: tuple[Server, Path], scheme: Any, width: int) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, bypass_csp=True, has_touch=width < 500
    )
    page = context.new_page()
    page.goto(f"{pictures[0].address}/?name=axe")
    page.locator(".choice").first.wait_for()
    found = {}

    def check(state: str) -> None:
        found[state] = barriers(page)

    page.keyboard.press("1")
    expect(page.locator("#last button").first).to_be_visible()
    check("row")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("x")
    check("typing")
    page.keyboard.press("Escape")
    page.keyboard.press("h")
    check("help")
    page.keyboard.press("Escape")
    page.locator("#last button").first.click()
    expect(page.locator("#editing")).to_be_visible()
    check("editing")
    page.evaluate("problem('Something is wrong.'); item = null; byId('row').hidden = true; byId('done').hidden = false;"
                  "showDone({open: 0}, '')")  # fmt: skip
    check("done")
    context.close()
    assert found == {state: [] for state in ("row", "typing", "help", "editing", "done")}
