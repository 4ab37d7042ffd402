"""The charts of a page as picture files: each stands alone, with the page's colours, light and dark."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

DRAWING = re.compile(r"<svg\b(.*?)>(.*?)</svg>", re.DOTALL)
IDENTITY = re.compile(r'id="([\w-]+)-t"')
VARIABLE = re.compile(r"(--[\w]+): light-dark\(([^,]+), ([^)]+)\)")


def write_pictures(html: str, folder: Path) -> list[Path]:
    """Write every chart of a page into the folder, named as it is on the page; the files in their order."""
    folder.mkdir(parents=True, exist_ok=True)
    style = _style()
    written = []
    for attributes, content in DRAWING.findall(html):
        name = IDENTITY.search(content)
        if name is None:
            continue  # a sign in the text, no chart
        path = folder / f"{name[1]}.svg"
        ground = '<rect width="100%" height="100%" fill="var(--ground)"/>'
        path.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg"{attributes}><style>{style}</style>{ground}{content}</svg>\n',
            encoding="utf-8",
        )
        written.append(path)
    return written


def _style() -> str:
    """What of the page's style concerns charts. Two colour schemes by a media query, which every viewer knows."""
    page = files("mogd.report").joinpath("page.css").read_text(encoding="utf-8")
    colours = VARIABLE.findall(page)
    light = "".join(f"{name}:{value};" for name, value, _ in colours)
    dark = "".join(f"{name}:{value};" for name, _, value in colours)
    rules = "".join(line for line in page.splitlines() if line.startswith("svg ") and line.endswith("}"))
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}"
