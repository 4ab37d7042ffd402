"""Who may import whom, read from the source; and what stays unloaded until it is used, seen in a fresh interpreter."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mogd
from mogd.algorithms import ALGORITHMS
from mogd.callbacks import CALLBACKS

ROOT = Path(mogd.__file__).parent
WITHOUT_TORCH = ("datasets", "classical", "report")
PAPERS = {algorithm.module for algorithm in ALGORITHMS.values()}

# the part of the package, a folder or a single file -> the parts it may import beside itself; every part has a rule
BELOW = {"candidates", "compressed", "evidence", "labels", "pooling", "crowd", "metrics"}
FACE = BELOW | {"estimator", "algorithms", "classifier", "classical"}
MAY_IMPORT = {
    "labels": set(),
    "compressed": set(),
    "evidence": {"compressed", "labels"},
    "forms": {"compressed", "evidence", "labels"},
    "candidates": {"compressed", "evidence", "forms", "labels"},
    "pooling": {"evidence"},
    "crowd": {"evidence", "pooling"},
    "metrics": {"compressed"},
    "wording": set(),
    "agreement": set(),
    "inspection": BELOW | {"agreement", "datasets", "wording"},
    "nets": set(),
    "augment": set(),
    "scalers": set(),
    "advice": set(),
    "views": set(),
    "threads": set(),
    "memory": set(),
    "optim": set(),
    "nextrows": {"candidates", "compressed"},
    "datasets": BELOW | {"arrowfiles", "wording"},
    "distributed": set(),
    "methods": BELOW | {"distributed"},
    "guard": {"candidates", "wording"},
    "callbacks": {"methods", "datasets", "guard", "evidence", "pooling", "crowd", "distributed"},
    "config": {"compressed", "methods"},
    "rowsource": {"labels"},
    "arrowfiles": {"rowsource"},
    "estimator": BELOW | {"report", "rowsource", "scalers"},  # `model.report()`, loaded when it is called
    "classical": BELOW | {"estimator"},
    "fitchecks": {"compressed", "estimator", "methods", "rowsource"},
    "tensors": {"compressed", "estimator", "methods", "callbacks", "nets", "rowsource"},
    "training": {"methods", "callbacks", "guard", "optim", "distributed"},
    "classifier": BELOW
    | {
        "estimator",
        "rowsource",
        "advice",
        "fitchecks",
        "tensors",
        "distributed",
        "methods",
        "callbacks",
        "config",
        "nets",
        "augment",
        "views",
        "threads",
        "memory",
        "training",
        "algorithms",
        "choice",  # loaded where the method or the backbone is "auto"
        "onnxfile",  # `model.to_onnx()`, loaded when it is called
    },
    "onnxfile": {"scalers", "wording"},
    "plots": {"candidates", "metrics"},
    "algorithms": {"estimator", "methods", "classical", "classifier", "auto"},
    "modelfolder": {"datasets", "wording"},
    "auto": {"estimator", "choice"},
    "saving": FACE | {"auto", "modelfolder", "datasets", "callbacks", "conformal", "scalers"},
    "comparison": BELOW | {"estimator", "algorithms"},
    "selection": BELOW | {"estimator", "rowsource"},
    "tuning": {"scalers", "algorithms", "selection"},
    "conformal": BELOW | {"estimator", "selection"},
    "evaluation": {"metrics", "conformal"},
    "choice": {"candidates", "estimator", "algorithms", "rowsource", "selection"},
    "experiments": FACE | {"datasets", "selection", "methods", "callbacks"},
    "report": {
        "compressed",
        "experiments",
        "datasets",
        "algorithms",
        "conformal",
        "evaluation",
        "modelfolder",
        "saving",
    },
    "cli": None,  # the shell may import all
    "__main__": None,
    "labeling": BELOW | {"datasets", "algorithms", "nextrows"},
}


def name_of(file: Path) -> str:
    """`mogd.methods.rc` for `mogd/methods/rc.py`; a package has the name of its folder."""
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {name_of(file): file for file in sorted(ROOT.rglob("*.py"))}
TREES = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in SOURCES.items()}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module imported anywhere in the source, below functions too, as `package.module`; not for types alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imports(node)


def own_parts(module: str) -> set[str]:
    """The parts of the package that a module imports, itself apart."""
    found = {name.split(".")[1] for name in imports(TREES[module]) if name.startswith("mogd.")}
    return found - {module.split(".")[1]}


def test_the_source_was_found() -> None:
    assert {"mogd.candidates", "mogd.methods.mogd", "mogd.cli"} <= set(SOURCES)
    assert "mogd.methods.common" in set(imports(TREES["mogd.methods.cc"]))


@pytest.mark.parametrize("module", [name for name in SOURCES if name != "mogd"])
def test_who_may_import_whom(module: str) -> None:
    allowed = MAY_IMPORT[module.split(".")[1]]
    assert allowed is None or own_parts(module) <= allowed


def test_every_part_has_a_rule_and_every_rule_a_part() -> None:
    assert {name.split(".")[1] for name in SOURCES if name != "mogd"} == set(MAY_IMPORT)


CALLBACK_FILES = {path.split(":")[0] for path in CALLBACKS.values()}


@pytest.mark.parametrize("module", sorted(CALLBACK_FILES))
def test_no_callback_imports_another_or_a_paper(module: str) -> None:
    assert not set(imports(TREES[module])) & ((PAPERS | CALLBACK_FILES) - {module})


@pytest.mark.parametrize("module", sorted(PAPERS))
def test_no_paper_imports_another(module: str) -> None:
    assert not set(imports(TREES[module])) & (PAPERS - {module})


@pytest.mark.parametrize("module", [name for name in SOURCES if name.split(".")[1:2] == ["training"]])
def test_the_loop_knows_no_method(module: str) -> None:
    found = {name for name in imports(TREES[module]) if name.startswith(("mogd.methods.", "mogd.callbacks."))}
    assert {".".join(name.split(".")[:3]) for name in found} <= {
        "mogd.methods.base",
        "mogd.methods.rows",
        "mogd.callbacks.base",
    }
    words = {algorithm.lower() for algorithm in ALGORITHMS} | set(CALLBACKS)
    names = {node.id.lower() for node in ast.walk(TREES[module]) if isinstance(node, ast.Name)}
    texts = {node.value for node in ast.walk(TREES[module]) if isinstance(node, ast.Constant)}
    assert not (names | texts) & words


@pytest.mark.parametrize("module", SOURCES)
def test_only_public_scikit_learn(module: str) -> None:
    private = [
        n for n in imports(TREES[module]) if n.startswith("sklearn.") and any(p[:1] == "_" for p in n.split("."))
    ]
    assert not private


@pytest.mark.parametrize(
    "module", [name for name in SOURCES if name.split(".")[1:2] and name.split(".")[1] in WITHOUT_TORCH]
)
def test_torch_is_named_nowhere_in_its_source(module: str) -> None:
    assert not [name for name in imports(TREES[module]) if name.split(".")[0] == "torch"]


def loaded_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running the code."""
    program = f"import sys\n{code}\nprint(*sys.modules, file=sys.stderr)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(result.stderr.split())


def test_packages_without_torch_load_none() -> None:
    names = [name for name in SOURCES if name.split(".")[1:2] and name.split(".")[1] in WITHOUT_TORCH]
    loaded = loaded_after("import " + ", ".join(names))
    assert set(names) <= loaded
    assert "torch" not in loaded


def test_import_mogd_loads_neither_torch_nor_scikit_learn() -> None:
    assert not loaded_after("import mogd; mogd.__version__; dir(mogd)") & {"torch", "sklearn", "numpy"}


def test_help_loads_neither_torch_nor_scikit_learn() -> None:
    shell = "from typer.testing import CliRunner; from mogd.cli import app; "
    shell += "assert CliRunner().invoke(app, ['--help']).exit_code == 0"
    assert not loaded_after(shell) & {"torch", "sklearn", "scipy", "pandas", "polars"}


def test_every_public_name_can_be_had() -> None:
    assert set(mogd.__all__) <= set(dir(mogd))
    for name in mogd.__all__:
        assert getattr(mogd, name) is not None
    for algorithm in ALGORITHMS.values():
        assert algorithm.path.split(":")[1].split(".")[0] in mogd.__all__
    assert {path.split(":")[1] for path in CALLBACKS.values()} <= set(mogd.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = mogd.nothing


def test_every_command_has_its_help() -> None:
    from typer.main import get_command
    from typer.testing import CliRunner

    from mogd.cli import app

    def paths(group: Any, before: list[str]) -> list[list[str]]:
        own = [[*before, name] for name in group.commands]
        return own + [
            p for name, c in group.commands.items() if hasattr(c, "commands") for p in paths(c, [*before, name])
        ]

    found = paths(get_command(app), [])
    assert len(found) > 10
    for path in found:
        answer = CliRunner().invoke(app, [*path, "--help"])
        assert answer.exit_code == 0, (path, answer.output, answer.exception)
        assert "Usage" in answer.output


def test_help_takes_less_than_half_a_second() -> None:
    """The processor's time of the child, the best of five: another process beside it does not count."""
    taken = []
    for _ in range(5):
        before = os.times()
        subprocess.run([sys.executable, "-m", "mogd", "--help"], capture_output=True, check=True)
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(taken) < 0.5, taken
