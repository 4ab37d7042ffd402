"""Genuine annotators of an image set: who said what of each training image, as candidate sets that keep the votes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mogd import crowd
from mogd.candidates import Candidates, as_candidates
from mogd.datasets.images import CLASS_NAMES, ImageData
from mogd.datasets.sources import cache_folder, folders

# J. Wei et al., CIFAR-10N, ICLR 2022: three people for each training image, in the official order of the images
FILES = {"cifar10": "cifar10n.npz"}
AGGREGATES = ("union", "majority", "dawid-skene")


def annotated(images: ImageData, rows: np.ndarray | None = None, aggregate: str = "union") -> Candidates:
    """The training images' candidates by their annotators; of `rows` alone, where given.

    "union" is every label that somebody gave, with who gave it. The others keep no votes: "majority" is the label of
    most annotators, or those that tie; "dawid-skene" the most probable label by Dawid and Skene's estimate.
    """
    if aggregate not in AGGREGATES:
        raise ValueError(f"aggregate must be one of {', '.join(AGGREGATES)}; got {aggregate!r}")
    said = read_annotators(images)
    union = as_candidates(
        images.classes[said[rows] if rows is not None else said],
        form="annotators",
        classes=images.classes,
        unseen="keep",
    )
    if aggregate == "union":
        return union
    assert union.evidence is not None
    if aggregate == "majority":
        return Candidates(crowd.majority(union.evidence, union.matrix) > 0, union.classes)
    best = crowd.dawid_skene(union.evidence, union.matrix).confidence.argmax(axis=1)
    return Candidates(np.eye(len(union.classes), dtype=bool)[best], union.classes)


def read_annotators(images: ImageData) -> np.ndarray:
    """What each annotator said of each training image: class indices of shape `(n, annotators)`."""
    if images.name not in FILES:
        raise ValueError(f"there are annotators of {', '.join(FILES)} alone; got {images.name!r}")
    path = find_annotators(images.name)
    if path is None:
        raise FileNotFoundError(
            f"the annotators of {images.name} are not on this machine: put {FILES[images.name]}, with the arrays "
            f"`annotators` (n, people) and `truth` (n,), into {cache_folder() / 'datasets'} or into a folder named by "
            "the environment variable MOGD_DATA"
        )
    try:
        with np.load(path, allow_pickle=False) as arrays:
            said, truth = arrays["annotators"], arrays["truth"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ValueError(f"{path} holds no arrays `annotators` and `truth`: {error}") from None
    n_classes = len(CLASS_NAMES[images.name])
    if said.ndim != 2 or said.dtype.kind not in "iu" or not 0 <= said.min() <= said.max() < n_classes:
        raise ValueError(f"{path}: annotators must be class indices from 0 to {n_classes - 1}, one column each")
    if not np.array_equal(truth, images.y_train):
        raise ValueError(f"{path}: truth differs from the labels of {images.name}: its images stand in another order")
    return said.astype(np.int64)


def find_annotators(name: str) -> Path | None:
    """The file with the annotators of an image set, or None."""
    places = (folder / FILES[name] for folder in folders(name))
    return next((path for path in places if path.is_file()), None)
