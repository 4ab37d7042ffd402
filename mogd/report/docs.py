"""What Markdown pages take from records: commentary by panel, and figures between markers on the methods' pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from mogd.report.sections import Section

END = "<!-- /figures -->"
# A begin marker alone is a place not yet filled; no fill may reach beyond the next begin marker.
_PLACE = re.compile(rf"(<!-- figures:([\w-]+):([\w-]+) -->)(?:(?:(?!<!-- figures:).)*?{re.escape(END)})?", re.DOTALL)
_HEADING = re.compile(r"^## +(.+?) *$", re.MULTILINE)


def read_notes(path: str | Path) -> dict[str, str]:
    """Commentary by panel: each `## recipe` or `## recipe/panel` of the file opens the paragraphs for it."""
    pieces = _HEADING.split(Path(path).read_text(encoding="utf-8"))
    return {name.strip(): text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True) if text.strip()}


def notes_by_section(sections: Sequence[Section], notes: Mapping[str, str]) -> dict[str, list[str]]:
    """The commentary of each section by its identity: a recipe's own stands at the first of its sections alone."""
    found: dict[str, list[str]] = {}
    seen: set[str] = set()
    for section in sections:
        keys = [*([] if section.recipe in seen else [section.recipe]), f"{section.recipe}/{section.panel}"]
        seen.add(section.recipe)
        found[section.identity] = [notes[key] for key in keys if key in notes]
    return found


def fill(text: str, figures: Callable[[str, str], str | None]) -> str:
    """Replace what stands between `<!-- figures:<recipe>:<algorithm> -->` and its end marker.

    `figures(recipe, algorithm)` gives the new text, or None where there are no records: then the place stays as it is.
    """

    def place(match: re.Match[str]) -> str:
        new = figures(match[2], match[3])
        return match[0] if new is None else f"{match[1]}\n{new.strip()}\n{END}"

    return _PLACE.sub(place, text)


def fill_folder(folder: str | Path, figures: Callable[[str, str], str | None]) -> list[Path]:
    """Fill every page of a folder; the pages that changed."""
    changed = []
    for path in sorted(Path(folder).glob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = fill(before, figures)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed
