"""From a recipe (TOML) to its cells: one cell is one fit of one algorithm on one split of one data set.

A recipe holds the protocol at its top level, `[scale.<name>]` tables that are laid over it, and `[[panel]]` tables (one
for each table or figure), which may have scales of their own, or stand in some `scales` alone. What a cell is decides
everything that it computes.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from mogd.algorithms import ALGORITHMS, AUTO

CONTROLS = {"clean-logistic": "logistic regression, clean rows alone", "clean-forest": "forest, clean rows alone"}
DESCRIBE = "describe"  # a cell that measures a data set and trains nothing
LABELS = {DESCRIBE: "characteristics", AUTO: "auto", **CONTROLS}
EPOCH_RULES = ("last", "clean")
WHOLE = {
    "seed": 0,
    "repetitions": 1,
    "folds": 0,
    "n_clean": 0,
    "rows": 1,
    "test_rows": 1,
    "select_splits": 2,
}  # least values
PACKAGED = Path(__file__).parents[1] / "recipes"  # the project's folder `benchmarks`, as the package carries it
PLACE = ("recipe", "scale", "panel", "label", "repetition", "order")  # where a cell is shown, not what it computes


@dataclass(frozen=True)
class Cell:
    """Everything that decides one record, and nothing else; `key` names it."""

    recipe: str
    scale: str
    panel: str
    dataset: str
    setting: dict[str, Any]  # what the table varies: {"q": 0.3}, {"n_clean": 100}
    algorithm: str
    label: str
    params: dict[str, Any]
    select: dict[str, list[Any]] | None
    select_splits: int  # 0 where nothing is selected
    seed: int
    repetition: int
    fold: int | None  # None where the data set has test rows of its own
    n_folds: int
    n_clean: int
    rows: int | None  # a random, stratified part of the training images; None takes them all
    test_rows: int | None
    corruption: dict[str, Any] | None
    epoch_rule: str
    curve: bool
    order: list[int]  # where it stands in its table: column, then row; no part of what is computed

    @property
    def key(self) -> str:
        return self._hash_without("order")

    @property
    def work(self) -> str:
        """Equal for cells that compute the same, in whatever tables they stand."""
        return self._hash_without(*PLACE)

    def _hash_without(self, *names: str) -> str:
        definition = {name: value for name, value in asdict(self).items() if name not in names}
        return hashlib.sha256(json.dumps(definition, sort_keys=True, ensure_ascii=False).encode()).hexdigest()

    def matches(self, only: str) -> bool:
        """Whether a word of the cell begins with each word of `only`, and none with those that have a minus before."""
        setting = " ".join(f"{name}={value}" for name, value in self.setting.items())
        text = f"{self.panel} {self.dataset} {self.algorithm} {self.label} {setting}".lower()
        own = text.replace(",", " ").split()
        wanted = [(word.removeprefix("-"), not word.startswith("-")) for word in only.lower().split()]
        return all(any(mine.startswith(word) for mine in own) == present for word, present in wanted)

    def derived_seed(self, purpose: str) -> int:
        """A seed for one purpose, the same for every algorithm, so that all are given the same data and start."""
        what = [purpose, self.dataset, self.setting, self.seed, self.fold]
        return int.from_bytes(hashlib.sha256(json.dumps(what, sort_keys=True).encode()).digest()[:4]) % (2**31 - 1)


@dataclass(frozen=True)
class Panel:
    """One table or figure of a recipe, with everything that holds for all of its cells."""

    name: str
    title: str
    datasets: list[str]
    methods: list[str | dict[str, Any]]
    settings: dict[str, list[Any]] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)  # for every algorithm
    deep: dict[str, Any] = field(default_factory=dict)  # for every deep one: backbone, optimizer, epochs
    corruption: dict[str, Any] | None = None
    seed: int = 0
    repetitions: int = 1
    folds: int = 5  # 0 for data sets with test rows of their own
    n_clean: int = 100
    rows: int | None = None
    test_rows: int | None = None
    epoch_rule: str = "last"
    curve: bool = False
    select_splits: int = 3

    def __post_init__(self) -> None:
        if self.epoch_rule not in EPOCH_RULES:
            raise ValueError(f"epoch_rule must be one of {', '.join(EPOCH_RULES)}; got {self.epoch_rule!r}")
        for name, least in WHOLE.items():
            value = getattr(self, name)
            if not (value is None and name in ("rows", "test_rows")) and not (type(value) is int and value >= least):
                raise ValueError(f"{name} must be a whole number of {least} or more; got {value!r}")
        lists = {"datasets": self.datasets, "methods": self.methods}
        for name, value in (lists | {f"settings.{k}": v for k, v in self.settings.items()}).items():
            if not isinstance(value, list) or not value:
                raise ValueError(f"{name} must be a list that is not empty; got {value!r}")
        if self.corruption is None and (strange := sorted(set(self.settings) - {"n_clean"})):
            raise ValueError(
                f"settings.{strange[0]} would change nothing: settings are n_clean and the parameters of a corruption"
            )


@dataclass(frozen=True)
class Recipe:
    """A recipe at one of its scales."""

    name: str
    title: str
    scale: str
    panels: list[Panel]

    def cells(self, only: str = "") -> list[Cell]:
        """Every cell, a whole repetition before the next; `only` keeps those that match all of its words."""
        found = [cell for number, panel in enumerate(self.panels) for cell in _cells(self, panel, number)]
        return sorted((cell for cell in found if cell.matches(only)), key=lambda cell: cell.repetition)


def find_recipe(name: str | Path) -> Path:
    """The file of a recipe given by its path, or by its name in the folder `benchmarks`, in this one or the library."""
    places = (Path(name), *(folder / f"{name}.toml" for folder in (Path("benchmarks"), Path(), PACKAGED)))
    for path in places:
        if path.is_file():
            return path
    found = {path.stem for folder in (Path("benchmarks"), PACKAGED) for path in folder.glob("*.toml")}
    known = ", ".join(sorted(found - {"paper"}))
    raise FileNotFoundError(f"no recipe {str(name)!r}: give the path of a TOML file, or one of {known or 'none here'}")


def command(recipe: str, scale: str) -> str:
    """What remakes the tables of a recipe."""
    try:
        path = find_recipe(recipe)
    except FileNotFoundError:
        path = Path("benchmarks") / f"{recipe}.toml"
    return f"mogd bench {recipe if path.parent == PACKAGED else path.as_posix()} --scale {scale}"


def in_recipes(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without those that their recipe no longer asks for, in the places that it gives them now; where it cannot
    be found, all of them as they are."""
    asked: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for name, scale in {(record["recipe"], record["scale"]) for record in records}:
        own = {record["key"] for record in records if (record["recipe"], record["scale"]) == (name, scale)}
        try:
            cells = load_recipe(find_recipe(name), scale).cells()
        except (FileNotFoundError, ValueError):
            cells = []
        wanted: dict[str, dict[str, Any]] = {cell.key: {"order": cell.order} for cell in cells if cell.key in own}
        asked[name, scale] = wanted or {key: {} for key in own}  # another recipe of that name is not this one
    places = ((record, asked[record["recipe"], record["scale"]].get(record["key"])) for record in records)
    return [record | place for record, place in places if place is not None]


def scales(path: str | Path) -> list[str]:
    """The scales of a recipe."""
    return list(_read(Path(path)).get("scale", {}))


def load_recipe(path: str | Path, scale: str = "laptop") -> Recipe:
    """Read a recipe and lay one of its scales over it; an unknown word is an error."""
    try:
        return _load_recipe(Path(path), scale)
    except (TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{path} has a value of another kind than a recipe takes: {error}") from None


def _load_recipe(path: Path, scale: str) -> Recipe:
    table = _read(path)
    title, panels, overlays = table.pop("title", path.stem), table.pop("panel", []), table.pop("scale", {})
    if scale not in overlays:
        remedy = f"it has {', '.join(overlays)}" if overlays else f"an empty [scale.{scale}] will do"
        raise ValueError(f"{path} has no scale {scale!r}; {remedy}")
    if not panels or not isinstance(panels, list):
        raise ValueError(f"{path} has no [[panel]]: name at least one table with its datasets and methods")
    lines = [entry for part in (table, *panels) for entry in part.get("methods", []) if isinstance(entry, dict)]
    named = {name for part in (*panels, *lines) for name in (*part.get("scale", {}), *part.get("scales", []))}
    if strange := named - set(overlays):
        raise ValueError(f"{path} has no scale {', '.join(sorted(strange))}; it has {', '.join(overlays)}")
    known = {entry.name for entry in fields(Panel)}
    made = []
    for panel in panels:
        if scale not in panel.pop("scales", overlays):
            continue
        own = panel.pop("scale", {})
        merged = {"title": title}
        for layer in (table, overlays[scale], panel, own.get(scale, {})):
            merged = _merge(merged, layer)
        unknown = set(merged) - known
        if unknown:
            raise ValueError(f"{path} has unknown {', '.join(sorted(unknown))}; known are {', '.join(sorted(known))}")
        if lacking := [name for name in ("name", "datasets", "methods") if name not in merged]:
            raise ValueError(f"{path} has a panel without {', '.join(lacking)}")
        try:
            made.append(Panel(**merged))
            _check_images(made[-1])
        except ValueError as error:
            raise ValueError(f"{path}, panel {merged['name']!r}: {error}") from None
    names = {panel.get("name") for panel in panels}
    for panel in made:
        for line in (_method(entry, scale) for entry in panel.methods):
            if strange := set(line["panels"] or []) - names:
                raise ValueError(f"{path} has no panel {', '.join(sorted(strange))}, which {line['label']!r} names")
        for line in _lines(panel, scale):
            for name, values in line["settings"].items():
                if not set(values) & set(panel.settings.get(name, [])):
                    raise ValueError(
                        f"{path}: {panel.name!r} has no column with {name} in {values} for {line['label']!r}"
                    )
        labels = [line["label"] for line in _lines(panel, scale)]
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise ValueError(f"{path}: two methods of {panel.name!r} are called {twice[0]!r}; give one another label")
    return Recipe(path.stem, title, scale, made)


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        json.dumps(table, allow_nan=False, default=str)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not a TOML file: {error}") from None
    except ValueError:
        raise ValueError(f"{path} holds a number that is not finite: a record could not say it") from None
    return table


def _check_images(panel: Panel) -> None:
    """What a panel says of images must be said of images."""
    from mogd.datasets.sources import SOURCES

    tables = [name for name in panel.datasets if not (name in SOURCES and SOURCES[name].is_image)]
    for word in ("corruption", "rows", "test_rows"):
        if tables and getattr(panel, word) is not None:
            raise ValueError(f"{word} is for images, and {tables[0]} has candidates of its own")


def default_label(algorithm: str) -> str:
    """How an algorithm is called in tables."""
    if algorithm in LABELS:
        return LABELS[algorithm]
    if algorithm not in ALGORITHMS:
        known = ", ".join((*ALGORITHMS, AUTO, *CONTROLS))
        raise ValueError(f"unknown algorithm {algorithm!r} in a recipe; choose one of {known}")
    return ALGORITHMS[algorithm].label or ALGORITHMS[algorithm].path.rsplit(":", 1)[-1]


def is_deep(algorithm: str) -> bool:
    return algorithm in ALGORITHMS and ALGORITHMS[algorithm].is_deep


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged entry by entry; anything else above replaces what is below."""
    merged = dict(below)
    for name, value in above.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(name), Mapping)
        merged[name] = _merge(merged[name], value) if both else value
    return merged


def _method(entry: str | dict[str, Any], scale: str) -> dict[str, Any]:
    """A line of a table, with `scale` laid over it.

    Where given, `panels` names those in which it stands, `settings` the columns (`{"q": [0.1]}`), and `repetitions` is
    how many of the panel's it has.
    """
    method: dict[str, Any] = {"algorithm": entry} if isinstance(entry, str) else dict(entry)
    method = _merge(method, method.pop("scale", {}).get(scale, {}))
    words = ("algorithm", "label", "params", "select", "panels", "settings", "repetitions")
    if set(method) - set(words) or "algorithm" not in method:
        raise ValueError(f"a method is a name or a table of {', '.join(words)}, scale; got {entry!r}")
    count = method.get("repetitions", 1)
    if type(count) is not int or count < 1:
        raise ValueError(f"repetitions of {method['algorithm']} must be a whole number of 1 or more; got {count!r}")
    defaults: dict[str, Any] = {
        "label": default_label(method["algorithm"]),
        "params": {},
        "select": None,
        "panels": None,
    }
    return defaults | {"settings": {}, "repetitions": None} | method


def _lines(panel: Panel, scale: str) -> list[dict[str, Any]]:
    """The methods that stand in a panel."""
    lines = (_method(entry, scale) for entry in panel.methods)
    return [line for line in lines if panel.name in (line["panels"] or [panel.name])]


def _has_cell(method: Mapping[str, Any], setting: Mapping[str, Any], repetition: int) -> bool:
    """Whether a line has a cell in a column and repetition of its panel."""
    in_column = all(setting[name] in values for name, values in method["settings"].items())
    return in_column and (method["repetitions"] is None or repetition < method["repetitions"])


def _cells(recipe: Recipe, panel: Panel, number: int) -> Iterator[Cell]:
    grid = [dict(zip(panel.settings, values, strict=True)) for values in product(*panel.settings.values())]
    folds: list[int | None] = list(range(panel.folds)) or [None]
    methods = _lines(panel, recipe.scale)
    columns = list(enumerate(product(panel.datasets, grid)))
    for repetition, (column, (dataset, setting)), fold in product(range(panel.repetitions), columns, folds):
        corruption = panel.corruption and panel.corruption | {k: v for k, v in setting.items() if k != "n_clean"}
        for row, method in enumerate(methods):
            if not _has_cell(method, setting, repetition):
                continue
            own = _merge(panel.params, panel.deep) if is_deep(method["algorithm"]) else panel.params
            yield Cell(
                recipe=recipe.name,
                scale=recipe.scale,
                panel=panel.name,
                dataset=dataset,
                setting=setting,
                algorithm=method["algorithm"],
                label=method["label"],
                params=_merge(own, method["params"]),
                select=method["select"],
                select_splits=panel.select_splits if method["select"] else 0,
                seed=panel.seed + repetition,
                repetition=repetition,
                fold=fold,
                n_folds=panel.folds,
                n_clean=setting.get("n_clean", panel.n_clean),
                rows=panel.rows,
                test_rows=panel.test_rows,
                corruption=corruption,
                epoch_rule=panel.epoch_rule,
                curve=panel.curve,
                order=[1000 * number + column, row],  # panels of one name share a table
            )
