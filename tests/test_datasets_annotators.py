"""Genuine annotators of images: the union keeps the votes, the aggregates are one label, a wrong file is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mogd.datasets.annotators import annotated, find_annotators
from mogd.datasets.images import CLASS_NAMES, ImageData

SAID = np.array([[0, 0, 1], [2, 2, 2], [3, 4, 5], [1, 1, 0]])
TRUTH = np.array([0, 2, 3, 0])


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageData:
    monkeypatch.setenv("MOGD_DATA", str(tmp_path))
    np.savez(tmp_path / "cifar10n.npz", annotators=SAID.astype(np.uint8), truth=TRUTH.astype(np.uint8))
    X = np.zeros((4, 3, 2, 2), dtype=np.uint8)
    return ImageData("cifar10", X, TRUTH, X[:0], TRUTH[:0], np.array(CLASS_NAMES["cifar10"]))


def test_the_union_keeps_who_said_what(images: ImageData) -> None:
    found = annotated(images)
    assert [set(np.flatnonzero(row)) for row in found.matrix] == [{0, 1}, {2}, {3, 4, 5}, {0, 1}]
    assert found.classes.tolist() == CLASS_NAMES["cifar10"]
    assert found.evidence is not None
    assert found.evidence.totals(10)[0, :2].tolist() == [2, 1]
    assert annotated(images, np.array([3, 0])).matrix.tolist() == found.matrix[[3, 0]].tolist()


def test_aggregates_are_labels_without_votes(images: ImageData) -> None:
    found = annotated(images, aggregate="majority")
    assert [set(np.flatnonzero(row)) for row in found.matrix] == [{0}, {2}, {3, 4, 5}, {1}]  # a tie stays a set
    assert found.evidence is None
    found = annotated(images, aggregate="dawid-skene")
    assert found.sizes.tolist() == [1] * 4
    assert np.all(found.matrix <= annotated(images).matrix)
    with pytest.raises(ValueError, match="aggregate must be one of union, majority, dawid-skene; got 'mean'"):
        annotated(images, aggregate="mean")


def test_another_file_is_refused(images: ImageData, tmp_path: Path) -> None:
    path = tmp_path / "cifar10n.npz"
    np.savez(path, annotators=SAID, truth=TRUTH[::-1])
    with pytest.raises(ValueError, match="its images stand in another order"):
        annotated(images)
    np.savez(path, annotators=SAID + 8, truth=TRUTH)
    with pytest.raises(ValueError, match="class indices from 0 to 9"):
        annotated(images)
    path.write_bytes(b"PK")
    with pytest.raises(ValueError, match="holds no arrays"):
        annotated(images)
    path.unlink()
    assert find_annotators("cifar10") is None
    with pytest.raises(FileNotFoundError, match=r"put cifar10n\.npz"):
        annotated(images)


def test_genuine_figures(missing) -> None:
    from mogd.datasets import load_images
    from mogd.datasets.sources import find

    if find("cifar10") is None or find_annotators("cifar10") is None:
        missing("cifar10 with cifar10n.npz")
    images = load_images("cifar10")
    union, majority = annotated(images), annotated(images, aggregate="majority")
    rows = np.arange(50_000)
    assert round(union.sizes.mean(), 2) == 1.46
    assert round(100 * union.matrix[rows, images.y_train].mean(), 1) == 97.9
    share = majority.matrix[rows, images.y_train] / majority.sizes  # a tie counts by its share
    assert 91.0 < 100 * share.mean() < 91.4


def test_annotators_of_other_images_are_unknown(images: ImageData) -> None:
    with pytest.raises(ValueError, match=r"there are annotators of cifar10.* alone; got 'fashion-mnist'"):
        annotated(replace(images, name="fashion-mnist"))
