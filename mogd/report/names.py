"""How recipes, panels, data sets and settings are called where a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from mogd.algorithms import ALGORITHMS
from mogd.datasets.sources import SOURCES
from mogd.experiments.spec import default_label, find_recipe, load_recipe

OURS = default_label("mogd")
# The order of a report: the paper's tables and figures as the paper has them, then what it has not, ablations last.
ORDER = (
    *("characteristics", "fashion-linear", "cifar-convnet", "cifar-resnet", "cifar", "instance-dependent"),
    *("real-world", "real-world-rbf", "real-world-mlp", "curves", "clean-size"),
)
ABLATION = "ablation"
AXES = {"q": "q, the rate of false candidates", "n_clean": "M, the number of clean rows"}
SETTINGS = {"n_clean": "M"}
FACTS = {
    "n_rows": "rows",
    "n_train": "training rows",
    "n_test": "test rows",
    "n_features": "features",
    "n_classes": "classes",
    "average_candidates": "candidates a row",
    "single_share": "rows with one candidate",
    "full_share": "rows with all candidates",
    "true_in_candidates": "true label among the candidates",
    "classes_occurring": "classes that occur",
}


def place(recipe: str) -> tuple[int, int]:
    """Where a recipe stands in a report: by its name, or else by the longest beginning of it that `ORDER` has."""
    if recipe.startswith(ABLATION):
        return len(ORDER) + 1, 0
    known = [name for name in ORDER if recipe == name or recipe.startswith(f"{name}-")]
    return (ORDER.index(max(known, key=len)), int(recipe not in ORDER)) if known else (len(ORDER), 0)


def is_ours(label: str) -> bool:
    """Whether a row is what the others are tested against: MoGD, or the variant that a recipe calls default."""
    return label == OURS or label.endswith("(default)")


def count_methods(algorithms: Iterable[str]) -> int:
    """How many methods of the library are among them: variants of one count once, controls not at all."""
    return len({name.removesuffix("-paper") for name in algorithms} & set(ALGORITHMS))


def dataset_title(name: str) -> str:
    """The data set's own name, as its authors write it."""
    return SOURCES[name].title if name in SOURCES else name


def setting_title(setting: Mapping[str, Any]) -> str:
    """As in `q = 0.3, M = 100`; empty where nothing is varied."""
    return ", ".join(f"{SETTINGS.get(name, name)} = {_value(value)}" for name, value in setting.items())


def column_title(dataset: str, setting: Mapping[str, Any]) -> str:
    """A data set at a setting."""
    return ", ".join(part for part in (dataset_title(dataset), setting_title(setting)) if part)


@cache
def panel_title(recipe: str, scale: str, panel: str) -> str:
    """The recipe's title of a panel, with the panel's name where several share it; without a recipe, the bare names."""
    try:
        found = load_recipe(find_recipe(recipe), scale)
    except (FileNotFoundError, ValueError):
        return recipe if panel == recipe else f"{recipe}: {panel}"
    titles = {p.name: p.title for p in found.panels}
    title = titles.get(panel, found.title)
    return f"{title}: {panel}" if list(titles.values()).count(title) > 1 else title


def identity(*words: str) -> str:
    """Words as the name of an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-") or "section"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
