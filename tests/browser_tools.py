"""What tests of pages in a real browser share."""

from __future__ import annotations

from playwright.sync_api import Page

OPEN_ALL = "document.querySelectorAll('details').forEach((d) => { d.open = true; })"
# Chart labels beyond the frame of their chart.
CLIPPED = """() => [...document.querySelectorAll('svg text')].filter((t) => {
  const box = t.getBoundingClientRect(), frame = t.ownerSVGElement.getBoundingClientRect();
  const inside = box.left >= frame.left - 1 && box.right <= frame.right + 1;
  return !(inside && box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1);
}).map((t) => t.textContent)"""


def barriers(page: Page) -> list[str]:
    """What axe-core finds wrong with a page, as a line each."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {v['help']} ({v['nodes'][0]['html'][:120]})" for v in found]


def overheard(page: Page) -> tuple[list[str], list[str]]:
    """What a page says from now on (console, errors, dialogs) and the addresses that it asks for: lists that grow."""
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    return said, asked
