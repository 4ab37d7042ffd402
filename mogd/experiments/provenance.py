"""Where a figure comes from: the versions, the commit, and a hash of the code that can change it."""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mogd
from mogd.algorithms import ALGORITHMS, AUTO
from mogd.callbacks import CALLBACKS
from mogd.experiments.spec import CONTROLS, is_deep

SHARED = ("mogd.experiments.cell", "mogd.experiments.data", "mogd.datasets.splits", "mogd.datasets.corrupt")
NOT_FOLLOWED = {
    *("mogd.algorithms", "mogd.classifier", "mogd.selection", "mogd.datasets", "mogd.callbacks.progress_bar"),
    *("mogd.report.modelpage", "mogd.onnxfile"),
    "mogd.choice",  # where the method or the backbone is "auto", `modules_behind` is asked for it
    *(f"mogd.datasets.{name}" for name in ("annotators", "base", "images", "realworld", "sources")),
    *(f"mogd.experiments.{name}" for name in ("clean_network", "controls", "provenance", "record", "spec", "watcher")),
}
AUTO_CHOICES = ("sure", "mogd", "crosel", "cc", "majority", "dawid-skene")
PACKAGE = Path(mogd.__file__).parent


@cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name, package in (("torch", "torch"), ("sklearn", "scikit-learn"), ("numpy", "numpy")):
        found[name] = version(package)
    return found | {"mogd": mogd.__version__}


def host() -> dict[str, Any]:
    """The kind of machine, not its name: records are public."""
    return {"system": f"{platform.system()} {platform.machine()}", "cpus": os.cpu_count(), "threads": 1}


def commit() -> tuple[str | None, bool | None]:
    """The commit of the package's repository and whether the package differs from it; None outside of one."""
    try:
        head = _git("rev-parse", "HEAD")
        return head, bool(_git("status", "--porcelain", "--", str(PACKAGE)))
    except (OSError, subprocess.CalledProcessError):
        return None, None


def code_of(definition: Mapping[str, Any]) -> str:
    """The hash of the code behind a cell or a record, given as a mapping."""
    corruption, algorithm = definition["corruption"] or {}, definition["algorithm"]
    has_callbacks = is_deep(algorithm) or algorithm == AUTO
    return code_hash(
        algorithm,
        bool(definition["select"]),
        corruption.get("generator") == "instance-dependent",
        _callbacks(definition.get("params", {}).get("callbacks", "auto")) if has_callbacks else (),
    )


def _callbacks(given: str | list[Any]) -> tuple[str, ...]:
    """The names of the callbacks that a cell may use; "auto" may take any that the library recommends."""
    entries = [given] if isinstance(given, str) else given
    names = {entry["name"] if isinstance(entry, dict) else entry for entry in entries}
    return tuple(sorted(CALLBACKS if "auto" in names else names & set(CALLBACKS)))


def has_changed(record: Mapping[str, Any]) -> bool:
    """Whether code that can change a record's figures differs from the code that made, or last confirmed, them."""
    return code_of(record) not in (record["code"], record.get("confirmed"))


@cache
def code_hash(
    algorithm: str, selects: bool = False, clean_network: bool = False, callbacks: tuple[str, ...] = ()
) -> str:
    """SHA-256 over the modules that an algorithm's figures depend on, without comments and docstrings."""
    digest = hashlib.sha256()
    for name in sorted(modules_behind(algorithm, selects, clean_network, callbacks)):
        digest.update(f"{name}\n{_essence(name)}\n".encode())
    return digest.hexdigest()


def modules_behind(
    algorithm: str, selects: bool = False, clean_network: bool = False, callbacks: tuple[str, ...] = ()
) -> set[str]:
    """The modules that the algorithm's own, the shared ones and their imports reach, functions' imports included.

    Loaders are left out, because the data's fingerprint speaks for them; so is the table of algorithms, because the
    record holds all parameters.
    """
    waiting = list(SHARED)
    if selects:
        waiting.append("mogd.selection")
    if algorithm in CONTROLS:
        waiting.append("mogd.experiments.controls")
    elif algorithm == AUTO:  # it may end in any of these
        waiting += ["mogd.auto", "mogd.choice", "mogd.selection", *(ALGORITHMS[name].module for name in AUTO_CHOICES)]
    elif algorithm in ALGORITHMS or is_deep(algorithm):
        waiting.append(ALGORITHMS[algorithm].module)
    if is_deep(algorithm) or algorithm == AUTO or clean_network:
        waiting.append("mogd.classifier")
    waiting += [CALLBACKS[name].split(":")[0] for name in callbacks]
    if clean_network:
        waiting += ["mogd.experiments.clean_network", "mogd.methods.supervised"]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += [other for other in _imports(name) if other not in NOT_FOLLOWED]
    return found


@cache
def _tree(name: str) -> ast.Module:
    path = PACKAGE.joinpath(*name.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(name: str) -> list[str]:
    names = []
    for node in ast.walk(_tree(name)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [found for found in names if found.startswith("mogd.") and _is_module(found)]


def _is_module(name: str) -> bool:
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return path.with_suffix(".py").is_file() or path.is_dir()


@cache
def _essence(name: str) -> str:
    tree = ast.parse(ast.unparse(_tree(name)))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body or not isinstance(body[0], ast.Expr):
            continue
        if isinstance(body[0].value, ast.Constant):  # a docstring
            body[:1] = [] if len(body) > 1 else [ast.Pass()]
    return ast.unparse(tree)


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE.parent), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
