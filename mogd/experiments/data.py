"""From a cell to its rows: load once per process, make candidates where the data set has none, split."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mogd.candidates import Candidates
from mogd.datasets import ImageData, PartialDataset, Split, load, load_images, split_dataset
from mogd.datasets.annotators import annotated
from mogd.datasets.corrupt import CIFAR100_SUPERCLASS_OF, binomial, hierarchical, instance_dependent, pair
from mogd.datasets.sources import SOURCES, find
from mogd.datasets.splits import hold_out
from mogd.experiments.spec import Cell

GENERATORS = ("binomial", "pair", "hierarchical", "instance-dependent", "annotators")


def is_here(dataset: str) -> bool:
    """Whether a data set (a name, or the path of a saved one) is on this machine."""
    return find(dataset) is not None if dataset in SOURCES else Path(dataset).is_file()


def split_of(cell: Cell) -> tuple[Split, PartialDataset]:
    """The split of a cell and the data set it was cut from; the same for every algorithm."""
    if dataset_is_image(cell.dataset):
        if cell.corruption is None:
            raise ValueError(f"{cell.dataset} has no candidates of its own: give the panel a corruption")
        _, test = _image_part(cell.dataset, cell.rows, cell.test_rows, cell.seed)
        dataset = _corrupted(cell.dataset, cell.rows, cell.test_rows, cell.seed, json.dumps(cell.corruption))
        return split_dataset(dataset, n_clean=cell.n_clean, seed=cell.seed, test=test), dataset
    dataset = _load(cell.dataset)
    return split_dataset(dataset, n_clean=cell.n_clean, seed=cell.seed, fold=cell.fold, n_folds=cell.n_folds), dataset


def characteristics(cell: Cell) -> tuple[dict[str, float], str]:
    """What the paper's two tables say of a data set, measured, and the fingerprint of what was measured."""
    if dataset_is_image(cell.dataset):
        images = _load_images(cell.dataset)
        matrix = np.eye(len(images.classes), dtype=bool)[images.y_train]
        dataset = PartialDataset(images.name, images.X_train, Candidates(matrix, images.classes), images.y_train)
        found: dict[str, float] = {"n_train": len(images.y_train), "n_test": len(images.y_test)}
        found |= {"n_features": int(np.prod(images.X_train.shape[1:])), "n_classes": len(images.classes)}
        return found, dataset.fingerprint
    dataset = _load(cell.dataset)
    facts = dataset.describe()
    return {key: value for key, value in facts.items() if isinstance(value, (int, float))}, dataset.fingerprint


def needs_network(cell: Cell) -> bool:
    """Whether its candidates come from a clean network."""
    return cell.corruption is not None and cell.corruption.get("generator") == "instance-dependent"


def dataset_is_image(dataset: str) -> bool:
    return dataset in SOURCES and SOURCES[dataset].is_image


@lru_cache(maxsize=8)
def _load(name: str) -> PartialDataset:
    return load(name) if name in SOURCES else PartialDataset.load(name)


@lru_cache(maxsize=2)
def _load_images(name: str) -> ImageData:
    return load_images(name)


@lru_cache(maxsize=2)
def _image_part(
    name: str, rows: int | None, test_rows: int | None, seed: int
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Training and test rows: all of them, or a stratified part, another one in every repetition."""
    images = _load_images(name)
    parts = []
    for X, y, count in ((images.X_train, images.y_train, rows), (images.X_test, images.y_test, test_rows)):
        chosen = _chosen(y, count, seed)
        parts.append((X, y) if chosen is None else (X[chosen], y[chosen]))
    return parts[0], parts[1]


def _chosen(y: np.ndarray, count: int | None, seed: int) -> np.ndarray | None:
    """The rows of a stratified part; None for all."""
    return None if count is None else hold_out(y, count, np.random.default_rng([seed, 2]))


@lru_cache(maxsize=4)
def _corrupted(name: str, rows: int | None, test_rows: int | None, seed: int, corruption: str) -> PartialDataset:
    (X, y), _ = _image_part(name, rows, test_rows, seed)
    images, how = _load_images(name), json.loads(corruption)
    if how["generator"] == "annotators":
        options = {key: value for key, value in how.items() if key != "generator"}
        return PartialDataset(name, X, annotated(images, _chosen(images.y_train, rows, seed), **options), y)
    matrix = make_candidates(name, X, y, len(images.classes), how, seed)
    return PartialDataset(name, X, Candidates(matrix, images.classes), y)


def make_candidates(
    name: str, X: np.ndarray, y: np.ndarray, n_classes: int, corruption: dict[str, Any], seed: int
) -> np.ndarray:
    """Candidate sets by the generator that a recipe names, with its parameters."""
    params = dict(corruption)
    generator = params.pop("generator", None)
    rng = np.random.default_rng([seed, 3])
    if generator == "binomial":
        return binomial(y, n_classes, params.pop("q"), rng, **params)
    if generator == "pair":
        return pair(y, n_classes, params.pop("q"), rng, **params)
    if generator == "hierarchical":
        return hierarchical(y, CIFAR100_SUPERCLASS_OF, params.pop("q"), rng, **params)
    if generator == "instance-dependent":
        from mogd.experiments.clean_network import probabilities

        return instance_dependent(y, probabilities(name, X, y, **params.pop("network", {})), rng, **params)
    raise ValueError(f"corruption.generator must be one of {', '.join(GENERATORS)}; got {generator!r}")
