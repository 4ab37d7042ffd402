"""The site: `make docs`. Plain Markdown pages, the API reference from the docstrings, nothing from the network."""

from __future__ import annotations

import re
from typing import Any

import mogd

project = "mogd"
author = "the mogd contributors"
copyright = author
version = release = mogd.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["results-notes.md"]  # the commentary that `mogd report` puts into results.md
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # an ellipsis in a block of Python, which is coloured all the same
default_role = "code"  # a single backtick in a docstring, as in Markdown
autodoc_typehints = "none"  # the signatures have them
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
toc_object_entries = False

html_theme = "pydata_sphinx_theme"
html_title = "mogd"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options: dict[str, Any] = {
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "show_toc_level": 2,
}

SECTIONS = ("Parameters", "Attributes")
ENTRY = re.compile(r"^(\w[\w, ]*) : (.*)$")


BARE = re.compile(r"(?<=\w)_(?=[\s:,.;)]|$)")  # the end of a learned attribute's name, which would be a link


def escaped(line: str) -> str:
    """The line with names such as confidence_ as text, where they do not stand in backticks."""
    return "`".join(BARE.sub(r"\\_", part) if i % 2 == 0 else part for i, part in enumerate(line.split("`")))


def as_definitions(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """The library's `name : text` lines below an underlined title as a list of definitions."""
    made: list[str] = []
    within = False
    apart = [part for line in lines for part in re.split(r"(?<=[.;]) (?=\w+_ : )", line)]  # two names in one line
    for line in apart:
        if line in SECTIONS:
            within = True
            made += [f"**{line}**", ""]
        elif re.fullmatch(r"-{4,}", line):
            made.append("")
        elif within and (found := ENTRY.match(line)):
            made += ["", f"`{found[1]}`", f"    {escaped(found[2])}"]
        elif within and line.startswith(" "):
            made.append(f"    {escaped(line.strip())}")
        else:
            within = within and not line.strip()
            made.append(escaped(line))
    lines[:] = made


def of_the_site(app: Any, docname: str, source: list[str]) -> None:
    """Links to the files beside `docs/` lead to the pages that include them."""
    if docname == "studies/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
    source[0] = re.sub(r"\]\((?:\.\./)+CONTRIBUTING\.md", "](/contributing.md", source[0])


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", as_definitions)
    app.connect("source-read", of_the_site)
