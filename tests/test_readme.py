"""The README is executed: its Python runs as it stands and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

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


# without what the README's own install line does not bring
WITHOUT_EXTRAS = """
import sys

from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {extras!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from mogd.cli import main
main()
"""
MODULES = {"pillow": "PIL", "sentence-transformers": "sentence_transformers"}  # where the name differs


def test_the_install_line_is_enough_for_the_commands(tmp_path: Path) -> None:
    assert "pip install -c constraints.txt .\n" in README
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    groups = project["optional-dependencies"]
    names = {need.split(">")[0] for name, group in groups.items() if name != "dev" for need in group}
    extras = {MODULES.get(name, name) for name in names}
    assert {"PIL", "openpyxl", "optuna", "ray"} <= extras
    wine, rng = load_wine(), np.random.default_rng(0)
    truth = wine.target_names[wine.target]
    lines = [
        f"{','.join(map(str, row))},{t}|{rng.choice(wine.target_names)},{t if i % 9 == 0 else ''}"
        for i, (row, t) in enumerate(zip(wine.data.tolist(), truth, strict=True))
    ]
    header = ",".join(name.replace("/", "_") for name in wine.feature_names) + ",labels,checked"
    (tmp_path / "rows.csv").write_text("\n".join([header, *lines]))
    (tmp_path / "new-rows.csv").write_text("\n".join([header, *lines[:20]]))
    (block,) = (b for b in re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL) if "mogd fit" in b)
    for line in block.splitlines():
        command = [sys.executable, "-c", WITHOUT_EXTRAS.format(extras=extras), *shlex.split(line, comments=True)[1:]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)
    assert {"resolved.csv", "predicted.csv"} <= {file.name for file in tmp_path.iterdir()}
