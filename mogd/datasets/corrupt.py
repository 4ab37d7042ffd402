"""Candidate sets made from true labels: pure functions of the labels, their parameters and a generator.

`y` holds class indices; what comes back is a matrix `(n, n_classes)` of bool in which the true label is always set.
Nothing here runs over rows in Python.
"""

from __future__ import annotations

import numpy as np

NORMALISATIONS = ("mean-rate", "max")

# CIFAR-100: its superclasses and the classes of each, both in the order of the archive's own numbering (alphabetical)
CIFAR100_SUPERCLASSES = {
    "aquatic_mammals": "beaver dolphin otter seal whale",
    "fish": "aquarium_fish flatfish ray shark trout",
    "flowers": "orchid poppy rose sunflower tulip",
    "food_containers": "bottle bowl can cup plate",
    "fruit_and_vegetables": "apple mushroom orange pear sweet_pepper",
    "household_electrical_devices": "clock keyboard lamp telephone television",
    "household_furniture": "bed chair couch table wardrobe",
    "insects": "bee beetle butterfly caterpillar cockroach",
    "large_carnivores": "bear leopard lion tiger wolf",
    "large_man-made_outdoor_things": "bridge castle house road skyscraper",
    "large_natural_outdoor_scenes": "cloud forest mountain plain sea",
    "large_omnivores_and_herbivores": "camel cattle chimpanzee elephant kangaroo",
    "medium_mammals": "fox porcupine possum raccoon skunk",
    "non-insect_invertebrates": "crab lobster snail spider worm",
    "people": "baby boy girl man woman",
    "reptiles": "crocodile dinosaur lizard snake turtle",
    "small_mammals": "hamster mouse rabbit shrew squirrel",
    "trees": "maple_tree oak_tree palm_tree pine_tree willow_tree",
    "vehicles_1": "bicycle bus motorcycle pickup_truck train",
    "vehicles_2": "lawn_mower rocket streetcar tank tractor",
}
_PARENT = {fine: i for i, names in enumerate(CIFAR100_SUPERCLASSES.values()) for fine in names.split()}
CIFAR100_CLASSES = tuple(sorted(_PARENT))
CIFAR100_SUPERCLASS_OF = np.array([_PARENT[fine] for fine in CIFAR100_CLASSES])


def binomial(
    y: np.ndarray, n_classes: int, q: float, rng: np.random.Generator, *, at_least_one: bool = True
) -> np.ndarray:
    """Every other label joins with probability `q`; a row left alone gets one more, drawn evenly, if asked to.

    The expected set size is 1 + q(K−1), and (1−q)^(K−1) more with `at_least_one`, the paper's rule.
    """
    _check_share("q", q)
    y = _check_labels(y, n_classes)
    matrix = rng.random((len(y), n_classes), dtype=np.float32) < q
    matrix[np.arange(len(y)), y] = True
    if at_least_one:
        _add_one(matrix, y, rng)
    return matrix


def instance_dependent(
    y: np.ndarray,
    probabilities: np.ndarray,
    rng: np.random.Generator,
    *,
    normalisation: str = "mean-rate",
    rate: float = 0.4,
) -> np.ndarray:
    """A label joins the more often, the more a clean network takes the row for it.

    With u the network's probabilities and u_y = 0, a label joins with probability u / max u ("max", as printed: the
    strongest rival always joins) or min(1, rate · u / mean u), the mean over all K entries ("mean-rate", as in the
    released code, where `rate` is 0.4 for ten classes and 0.04 for a hundred).
    """
    if normalisation not in NORMALISATIONS:
        raise ValueError(f"normalisation must be one of {', '.join(NORMALISATIONS)}; got {normalisation!r}")
    if not rate >= 0:
        raise ValueError(f"rate must be 0 or more; got {rate!r}")
    u = np.array(probabilities, dtype=np.float32)
    if u.ndim != 2 or len(u) != len(y) or not np.isfinite(u).all() or (u < 0).any():
        raise ValueError(f"probabilities must be finite, not negative and of shape ({len(y)}, K); got shape {u.shape}")
    y = _check_labels(y, u.shape[1])
    rows = np.arange(len(y))
    u[rows, y] = 0
    base = (u.max(axis=1) if normalisation == "max" else u.mean(axis=1))[:, None]
    np.divide(u, base, out=u, where=base > 0)  # a network that is certain of the truth leaves no rival
    if normalisation == "mean-rate":
        u *= rate
    matrix = rng.random(u.shape, dtype=np.float32) < u
    matrix[rows, y] = True
    return matrix


def transition(y: np.ndarray, matrix: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Label j joins a row of class i with probability `matrix[i, j]`; the diagonal plays no part."""
    matrix = np.asarray(matrix, dtype=np.float32)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"matrix must be square, one row and one column per class; got shape {matrix.shape}")
    if not ((matrix >= 0) & (matrix <= 1)).all():
        raise ValueError(f"matrix must hold probabilities from 0 to 1; got {matrix.min()} to {matrix.max()}")
    y = _check_labels(y, len(matrix))
    result = rng.random((len(y), len(matrix)), dtype=np.float32) < matrix[y]
    result[np.arange(len(y)), y] = True
    return result


def pair(y: np.ndarray, n_classes: int, q: float, rng: np.random.Generator) -> np.ndarray:
    """Only the next class, y + 1 modulo the number of classes, joins, with probability `q`."""
    _check_share("q", q)
    y = _check_labels(y, n_classes)
    matrix = np.zeros((len(y), n_classes), dtype=bool)
    rows = np.arange(len(y))
    matrix[rows, (y + 1) % n_classes] = rng.random(len(y)) < q
    matrix[rows, y] = True
    return matrix


def hierarchical(y: np.ndarray, superclass: np.ndarray, q: float, rng: np.random.Generator) -> np.ndarray:
    """Labels of the same superclass join with probability `q`; `superclass` names the one of each class."""
    _check_share("q", q)
    superclass = np.asarray(superclass)
    return transition(y, q * (superclass[:, None] == superclass), rng)


def _add_one(matrix: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> None:
    n_classes = matrix.shape[1]
    if n_classes < 2:
        raise ValueError("at_least_one needs two classes or more; pass at_least_one=False")
    alone = np.flatnonzero(matrix.sum(axis=1) == 1)
    other = rng.integers(n_classes - 1, size=len(alone))
    matrix[alone, other + (other >= y[alone])] = True


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be a probability from 0 to 1; got {value!r}")


def _check_labels(y: np.ndarray, n_classes: int) -> np.ndarray:
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(f"y must hold one class index for each row; got {y.dtype} of shape {y.shape}")
    y = y.astype(np.int64, copy=False)
    if len(y) and not 0 <= y.min() <= y.max() < n_classes:
        raise ValueError(f"y must hold class indices from 0 to {n_classes - 1}; got {y.min()} to {y.max()}")
    return y
