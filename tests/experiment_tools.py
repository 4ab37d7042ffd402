"""Small data and recipes for the tests of experiments."""

from pathlib import Path

import numpy as np

from mogd.candidates import Candidates
from mogd.datasets import PartialDataset
from mogd.experiments.record import VOLATILE

DEEP = '"mogd", "cc", "supervised", { algorithm = "cc", label = "weighted", select = { clean_weight = [1, 3] } }, '
CLASSICAL = '"plknn", "clpl", "clean-logistic", "clean-forest"'


def blobs(n=90, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = rng.normal(size=(n, 4)) + 2.0 * np.eye(n_classes, 4)[y]
    matrix = rng.random((n, n_classes)) < 0.4
    matrix[np.arange(n), y] = True
    return PartialDataset("blobs", X, Candidates(matrix, np.array(["a", "b", "c"][:n_classes])), y)


def write_recipe(folder: Path, methods: str = DEEP + CLASSICAL, *, repetitions=2, extra="", name="quick") -> Path:
    """A recipe over one saved data set, with the scale laptop."""
    data = folder / "blobs.npz"
    if not data.exists():
        blobs().save(data)
    path = folder / f"{name}.toml"
    path.write_text(
        f'title = "quick"\nrepetitions = {repetitions}\nfolds = 3\nn_clean = 12\nselect_splits = 2\n'
        f"methods = [{methods}]\n{extra}\n[deep]\nepochs = 3\nbatch_size = 16\n[scale.laptop]\n"
        f'[[panel]]\nname = "quick"\ndatasets = ["{data}"]\n'
    )
    return path


def essence(records):
    """Records by key, without what may differ between two equal runs (and the code, which may be edited meanwhile)."""
    return {r["key"]: {k: v for k, v in r.items() if k not in (*VOLATILE, "code")} for r in records}
