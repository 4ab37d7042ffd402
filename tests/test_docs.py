"""The pages say what the code is: every callback and public name has its place, every link and command its target."""

from __future__ import annotations

import re
import subprocess
from inspect import signature
from pathlib import Path

import pytest

import mogd
from mogd.algorithms import ALGORITHMS
from mogd.callbacks import CALLBACKS, make_callback

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_a_target(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_callback_has_a_section_with_its_signature() -> None:
    page = text_of("docs/callbacks.md")
    for name in CALLBACKS:
        own = type(make_callback(name))
        written = ", ".join(f"{p.name}={p.default!r}" for p in signature(own).parameters.values())
        assert f"\n## {name}\n\n[`{own.__name__}({written})`]" in page


def test_every_algorithm_has_a_page() -> None:
    pages = {path.stem for path in (ROOT / "docs/methods").glob("*.md")}
    forms = {a.name for a in ALGORITHMS.values() if "." in a.path.partition(":")[2]}  # on the page of their class
    assert pages == set(ALGORITHMS) - forms


def test_every_public_name_is_on_the_page() -> None:
    page = text_of("docs/api.md")
    assert [name for name in mogd.__all__ if f"`{name}`" not in page] == []


def test_mogds_page_is_short() -> None:
    assert len(text_of("docs/methods/mogd.md").splitlines()) <= 120


def test_every_constant_of_the_choices_names_a_study() -> None:
    named = set(re.findall(r"studies/([\w-]+\.md)", text_of("mogd/config.py")))
    assert named
    assert named <= {path.name for path in (ROOT / "docs/studies").glob("*.md")}


def test_variants_of_the_studies_exist() -> None:
    """Each name after `--only` in a study's command is a variant of the script, or a part of one's name."""
    from benchmarks import held_out_images, training_folds

    for path in (ROOT / "docs/studies").glob("*.md"):
        for line in path.read_text(encoding="utf-8").splitlines():
            command = re.match(r"    python -m benchmarks\.(training_folds|held_out_images) .*?--only (.+)", line)
            if not command:
                continue
            asked = re.findall(r'"([^"]+)"|(\S+)', command[2])
            for name in (quoted or plain for quoted, plain in asked):
                if command[1] == "held_out_images":
                    assert name in held_out_images.VARIANTS, (path.name, name)
                else:
                    assert any(name in label for label in training_folds.VARIANTS), (path.name, name)


def test_commits_of_the_studies_exist() -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("needs the whole history")
    for path in (ROOT / "docs/studies").glob("*.md"):
        for commit in re.findall(r"`([0-9a-f]{7})`", path.read_text(encoding="utf-8")):
            assert git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0, (path.name, commit)
