"""Small fitted models to save, shared by the tests of saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_iris

import mogd
from mogd.algorithms import ALGORITHMS
from mogd.candidates import as_candidates
from mogd.modelfolder import MODEL, _checksum

NAMES = np.array(["rose", "tulip, red", "百合"])


def flowers(classes: np.ndarray = NAMES) -> tuple[np.ndarray, Any, np.ndarray, np.ndarray]:
    """Iris with one wrong candidate in half of the rows: 120 partial rows and 30 clean ones."""
    X, y = load_iris(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))
    X, y = X[order], y[order]
    matrix = np.eye(3, dtype=bool)[y]
    wrong = rng.random(len(X)) < 0.5
    matrix[wrong, (y[wrong] + rng.integers(1, 3, wrong.sum())) % 3] = True
    matrix = matrix[:, : len(classes)]
    candidates = as_candidates(matrix[:120][matrix[:120].any(axis=1)], classes=classes)
    return X[:120][matrix[:120].any(axis=1)], candidates, X[120:], classes[np.minimum(y[120:], len(classes) - 1)]


def file_of(path: Path, role: str) -> Path:
    (found,) = path.glob(f"{role}-*.safetensors")
    return found


def fitted(name: str = "mogd", classes: np.ndarray = NAMES, **params: Any) -> Any:
    X, candidates, X_val, y_val = flowers(classes)
    if ALGORITHMS[name].kind == "deep":
        params = {"epochs": 2, "random_state": 0, **params}
    return mogd.make(name, **params).fit(X, candidates, X_val=X_val, y_val=y_val)


def change(path: Path, sign: bool = True, **values: Any) -> None:
    """Change plain values of a model; when signed, as one who can compute checksums does."""
    described = json.loads((path / MODEL).read_text()) | values
    if sign:
        described.pop("checksum")
        described["checksum"] = _checksum(described)
    (path / MODEL).write_text(json.dumps(described))
