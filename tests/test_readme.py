"""The README is executed: its Python runs as it stands and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_python_blocks_run_and_print_what_the_readme_says() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(compile(block, "README.md", "exec"), names)
    (told,) = re.findall(r"<!-- readme-output -->\n```\n(.*?)```", README, flags=re.DOTALL)
    share, said = (float(re.match(r"([\d.]+)%", text).group(1)) for text in (printed.getvalue(), told))
    assert abs(share - said) <= 0.3  # the last digit may differ between processors
    assert printed.getvalue().split("%")[1] == told.split("%")[1]


def test_links_lead_somewhere() -> None:
    root = Path(__file__).parent.parent
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert len(links) > 5
    missing = [link for link in links if not (root / link).exists()]
    assert not missing
