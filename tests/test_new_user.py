"""As a new user would: from a file with three raters to resolved labels and a page, in five commands."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import polars as pl
import pytest
from labeling_tools import Server
from playwright.sync_api import Browser, expect
from test_labeling_browser import opened, row_of
from test_tutorials import genuine

READING = "--annotators rater1,rater2,rater3 --text text --ignore truth,rater4,rater5"
N_ANSWERS = 50
MOST_SECONDS = 600  # of processor time, the browser's apart: another process beside it does not count


@pytest.mark.slow
def test_from_the_file_to_resolved_labels_and_a_page(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Callable[[str], NoReturn]
) -> None:
    table = pl.read_csv(genuine("nyt.csv", missing))
    monkeypatch.chdir(tmp_path)
    table.write_csv("nyt.csv")
    truth = dict(table.select("id", "truth").iter_rows())
    began, before = time.monotonic(), os.times()
    run(f"inspect nyt.csv {READING}")
    label_in_browser(browser, truth)
    run(f"fit nyt.csv {READING} --clean clean.csv --out model --quiet")
    run("disambiguate model --out resolved.csv")
    run("report model --table nyt.csv --text text --annotators rater1,rater2,rater3 --out model.html")
    after, seconds = os.times(), time.monotonic() - began
    own = sum(getattr(after, name) - getattr(before, name) for name in ("children_user", "children_system"))
    clean = pl.read_csv("clean.csv")
    assert len(clean) == clean["id"].n_unique() == N_ANSWERS
    assert clean["label"].to_list() == [truth[id] for id in clean["id"]]
    resolved = pl.read_csv("resolved.csv").filter(~pl.col("clean")).join(table, on="id")
    right = (resolved["label"] == resolved["truth"]).mean()
    print(f"five commands: {seconds:.0f} s, {own:.0f} of them processor's; {right:.1%} of {len(resolved)} rows right")
    assert right > 0.74  # a majority vote of the three has 73.7 %
    assert "rater1" in Path("model.html").read_text(encoding="utf-8")
    assert own < MOST_SECONDS


def run(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", "mogd", *shlex.split(command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def label_in_browser(browser: Browser, truth: dict[str, str]) -> None:
    """`mogd label`, and a person at the page who knows every answer and has a keyboard."""
    server = Server("nyt.csv", *shlex.split(READING), "--out", "clean.csv")
    page = opened(browser, f"{server.address}/?name=ann")
    for _ in range(N_ANSWERS):
        count, label = page.locator("#count").inner_text(), truth[row_of(page)]
        names = page.locator(".choice .name").all_inner_texts()
        if label in names:
            page.keyboard.press(str(names.index(label) + 1))
        else:  # nobody named it
            page.keyboard.press("x")
            page.keyboard.type(label)
            page.keyboard.press("Enter")
        expect(page.locator("#count")).not_to_have_text(count, timeout=60_000)
    page.close()
    server.stop()
