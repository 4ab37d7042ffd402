"""From a cell to its rows: which of them train, are clean and are tested, and the sets of each generator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiment_tools import blobs, write_recipe

from mogd.candidates import Candidates
from mogd.datasets import ImageData
from mogd.datasets.corrupt import CIFAR100_SUPERCLASS_OF
from mogd.datasets.images import CLASS_NAMES
from mogd.experiments import data as module
from mogd.experiments.cell import run_cell
from mogd.experiments.data import characteristics, is_here, make_candidates, needs_network, split_of
from mogd.experiments.spec import Cell, load_recipe


def cell(dataset: str, **changes: Any) -> Cell:
    own: dict[str, Any] = {
        "recipe": "r", "scale": "laptop", "panel": "p", "dataset": dataset, "setting": {}, "algorithm": "cc",
        "label": "CC", "params": {}, "select": None, "select_splits": 0, "seed": 0, "repetition": 0, "fold": None,
        "n_folds": 0, "n_clean": 20, "rows": None, "test_rows": None, "corruption": {"generator": "binomial", "q": 0.3},
        "epoch_rule": "last", "curve": False, "order": [0, 0],
    }  # fmt: skip
    return Cell(**own | changes)


@pytest.fixture(autouse=True)
def pictures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ImageData]:
    """Small pictures in place of every image set, which no other test is to be given."""
    rng = np.random.default_rng(0)
    y, y_test = np.arange(400) % 10, np.arange(100) % 10
    X, X_test = (rng.integers(0, 256, (n, 3, 4, 4), dtype=np.uint8) for n in (400, 100))
    small = ImageData("cifar10", X, y, X_test, y_test, np.array(CLASS_NAMES["cifar10"]))
    monkeypatch.setattr(module, "load_images", lambda name: small)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    forget()
    yield small
    forget()


def forget() -> None:
    for cached in (module._load, module._load_images, module._image_part, module._corrupted):
        cached.cache_clear()


def test_a_data_set_is_here_by_its_name_or_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOGD_DATA", str(tmp_path))
    assert not is_here("lost")
    (tmp_path / "lost.mat").touch()
    assert is_here("lost")
    assert not is_here(str(tmp_path / "own.npz"))
    blobs().save(tmp_path / "own.npz")
    assert is_here(str(tmp_path / "own.npz"))


def test_pictures_are_split_into_training_clean_and_test_rows(pictures: ImageData) -> None:
    split, dataset = split_of(cell("cifar10"))
    assert len(dataset) == 400
    assert dataset.X is pictures.X_train
    assert len(split.clean_y) == 20
    assert sorted([*split.train_index, *split.clean_index]) == list(range(400))
    assert split.clean_y.tolist() == pictures.classes[pictures.y_train[split.clean_index]].tolist()
    assert np.bincount(pictures.y_train[split.clean_index]).tolist() == [2] * 10
    assert split.test_X is pictures.X_test
    assert split.test_y.tolist() == pictures.classes[pictures.y_test].tolist()
    matrix = dataset.candidates.matrix
    assert matrix[np.arange(400), pictures.y_train].all()
    assert dataset.candidates.sizes.mean() == pytest.approx(1 + 0.3 * 9 + 0.7**9, abs=0.3)
    assert dataset.candidates.sizes.min() == 2


def test_the_split_depends_on_the_seed_and_not_on_the_algorithm() -> None:
    first, dataset = split_of(cell("cifar10"))
    forget()
    again, same = split_of(cell("cifar10", algorithm="mogd", label="MoGD"))
    assert dataset.fingerprint == same.fingerprint
    assert first.clean_index.tolist() == again.clean_index.tolist()
    other, another = split_of(cell("cifar10", seed=1))
    assert another.fingerprint != dataset.fingerprint
    assert other.clean_index.tolist() != first.clean_index.tolist()


def test_a_part_of_the_pictures_has_every_class_alike(pictures: ImageData) -> None:
    parts = [split_of(cell("cifar10", rows=60, test_rows=30, n_clean=10, seed=seed)) for seed in (0, 1)]
    for split, dataset in parts:
        assert (len(dataset), len(split.train), len(split.test_y)) == (60, 50, 30)
        assert np.bincount(dataset.known_y()).tolist() == [6] * 10
        assert np.unique(split.test_y, return_counts=True)[1].tolist() == [3] * 10
    assert not np.array_equal(parts[0][1].X, parts[1][1].X)


def test_pictures_need_a_corruption() -> None:
    with pytest.raises(ValueError, match="cifar10 has no candidates of its own: give the panel a corruption"):
        split_of(cell("cifar10", corruption=None))


def test_a_saved_table_is_split_into_folds(tmp_path: Path) -> None:
    path = str(tmp_path / "blobs.npz")
    blobs().save(path)
    tested = []
    for fold in range(3):
        split, dataset = split_of(cell(path, fold=fold, n_folds=3, n_clean=12, corruption=None))
        assert dataset.fingerprint == blobs().fingerprint
        assert split.test_index is not None
        assert sorted([*split.train_index, *split.clean_index, *split.test_index]) == list(range(90))
        assert (len(split.clean_index), len(split.test_index)) == (12, 30)
        tested += split.test_index.tolist()
    assert sorted(tested) == list(range(90))


def test_characteristics_are_measured(tmp_path: Path) -> None:
    found, fingerprint = characteristics(cell("cifar10"))
    assert found == {"n_train": 400, "n_test": 100, "n_features": 48, "n_classes": 10}
    assert len(fingerprint) == 64
    path = str(tmp_path / "blobs.npz")
    blobs().save(path)
    found, fingerprint = characteristics(cell(path))
    assert fingerprint == blobs().fingerprint
    assert (found["n_rows"], found["n_features"], found["n_classes"]) == (90, 4, 3)
    assert found["average_candidates"] == pytest.approx(blobs().candidates.sizes.mean())
    assert all(isinstance(value, (int, float)) for value in found.values())


def test_a_cell_that_describes_trains_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = write_recipe(tmp_path, '"describe"', repetitions=1)
    described = load_recipe(recipe).cells()[0]
    monkeypatch.setattr("mogd.experiments.cell.split_of", lambda cell: pytest.fail("it was split"))
    record = run_cell(described)
    assert record["error"] is None
    assert record["data_fingerprint"] == blobs().fingerprint
    assert record["metrics"]["n_classes"] == 3


def test_the_record_of_pictures_says_how_their_sets_were_made() -> None:
    quick = {"backbone": "linear", "epochs": 1}
    record = run_cell(cell("cifar10", params=quick, rows=60, test_rows=30, n_clean=10, seed=4))
    assert record["error"] is None
    assert record["corruption"] == {"generator": "binomial", "q": 0.3, "seed": 4}
    assert 0 <= record["metrics"]["accuracy"] <= 1


def test_each_generator_makes_its_own_kind_of_set(monkeypatch: pytest.MonkeyPatch) -> None:
    y = np.arange(3000) % 100
    rows = np.arange(3000)

    def made(corruption: dict[str, Any], seed: int = 0) -> np.ndarray:
        matrix = make_candidates("cifar100", np.zeros((3000, 1)), y, 100, corruption, seed)
        assert matrix[rows, y].all()
        return matrix

    free = made({"generator": "binomial", "q": 0.1, "at_least_one": False})
    assert free.sum(axis=1).mean() == pytest.approx(1 + 99 * 0.1, abs=0.3)
    assert np.array_equal(free, made({"generator": "binomial", "q": 0.1, "at_least_one": False}))
    assert not np.array_equal(free, made({"generator": "binomial", "q": 0.1, "at_least_one": False}, seed=1))
    pairs = made({"generator": "pair", "q": 0.5})
    pairs[rows, y] = False
    assert pairs.any()
    assert np.unique((np.nonzero(pairs)[1] - y[np.nonzero(pairs)[0]]) % 100).tolist() == [1]
    near = made({"generator": "hierarchical", "q": 0.5})
    assert near.sum(axis=1).mean() == pytest.approx(1 + 4 * 0.5, abs=0.3)
    row, label = np.nonzero(near)
    assert np.array_equal(CIFAR100_SUPERCLASS_OF[label], CIFAR100_SUPERCLASS_OF[y[row]])

    def certain(name: str, X: np.ndarray, y: np.ndarray, **params: Any) -> np.ndarray:
        assert (name, params) == ("cifar100", {"epochs": 2})
        return np.eye(100)[(y + 7) % 100]

    monkeypatch.setattr("mogd.experiments.clean_network.probabilities", certain)
    alike = made({"generator": "instance-dependent", "network": {"epochs": 2}, "normalisation": "max"})
    assert [np.flatnonzero(alike[i]).tolist() for i in (0, 1)] == [[0, 7], [1, 8]]
    assert (alike.sum(axis=1) == 2).all()


@pytest.mark.parametrize("corruption", [{"generator": "guess"}, {"q": 0.1}])
def test_an_unknown_generator_is_named(corruption: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"corruption\.generator must be one of binomial, pair, .*; got ('guess'|None)"
    ):
        make_candidates("cifar10", np.zeros((2, 1)), np.arange(2), 2, corruption, 0)


def test_annotators_are_asked_about_the_chosen_rows(pictures: ImageData, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def annotated(images: ImageData, rows: np.ndarray | None, aggregate: str) -> Candidates:
        asked.append((rows, aggregate))
        own = images.y_train if rows is None else images.y_train[rows]
        return Candidates(np.eye(10, dtype=bool)[own], images.classes)

    monkeypatch.setattr(module, "annotated", annotated)
    corruption = {"generator": "annotators", "aggregate": "majority"}
    _, whole = split_of(cell("cifar10", corruption=corruption))
    _, part = split_of(cell("cifar10", corruption=corruption, rows=40, n_clean=10))
    assert asked[0] == (None, "majority")
    assert np.array_equal(part.X, pictures.X_train[asked[1][0]])
    assert len(whole) == 400
    assert (part.candidates.matrix.argmax(axis=1) == part.known_y()).all()


def test_only_instance_dependent_sets_need_a_network() -> None:
    assert needs_network(cell("cifar10", corruption={"generator": "instance-dependent"}))
    assert not needs_network(cell("cifar10"))
    assert not needs_network(cell("lost", corruption=None))
