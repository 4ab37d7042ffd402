"""Runs that every deep method and callback can be asked for, what breaks them, and their bits."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any

import numpy as np
import polars as pl
from sklearn.datasets import load_digits

import mogd
from mogd import PartialLabelClassifier, compressed
from mogd.algorithms import make_method
from mogd.callbacks.base import Callback
from mogd.candidates import as_candidates
from mogd.compressed import take_dense
from mogd.methods.base import Batch, Method

REFINEMENTS: dict[str, dict[str, Any]] = {
    "clean-weight": {"weight": 3.0, "start_fraction": 0.4},
    "loss-schedule": {},
    "candidate-set-head": {},
    "clean-pretraining": {"fraction": 0.2},
    "candidate-cleaning": {"alpha": 0.1},
    "candidate-noise": {"rate": 0.05},
    "class-weight": {},
    "sharper-targets": {},
    "meta-step": {},
    "early-stopping": {"patience": 2},
}
TABLE = {"backbone": "mlp", "backbone_params": {"hidden": (12,)}}  # with dropout and BatchNorm
IMAGES = {"backbone": "cnn", "backbone_params": None, "augment": "randaugment"}


def rows(images: bool = False) -> tuple[tuple[np.ndarray, np.ndarray], dict[str, np.ndarray]]:
    """What to give to fit: 60 digits with candidate sets, 40 clean ones."""
    x, y = load_digits(return_X_y=True)
    candidates = np.random.default_rng(0).random((len(y), 10)) < 0.3
    candidates[np.arange(len(y)), y] = True
    x = (x.reshape(-1, 1, 8, 8) * 15).astype(np.uint8) if images else x / 16
    return (x[40:100], candidates[40:100]), {"X_val": x[:40], "y_val": y[:40]}


def voted_rows() -> tuple[tuple[np.ndarray, Any], dict[str, Any]]:
    """The same digits with what three annotators said of each, who err three times in ten."""
    x, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    said = [np.where(rng.random(100) < 0.7, y[:100], rng.integers(10, size=100)) for _ in range(3)]
    votes = [(i, f"annotator {j}", label) for j, labels in enumerate(said) for i, label in enumerate(labels.tolist())]
    candidates = as_candidates(pl.DataFrame(votes, ["task", "worker", "label"], orient="row"), form="votes")
    clean = {"X_val": x[:40] / 16, "y_val": y[:40], "candidates_val": candidates[:40]}
    return (x[40:100] / 16, candidates[40:]), clean


def usable(name: str) -> list[dict[str, Any]]:
    """All callbacks but those that a method refuses."""
    method = make_method(name)
    refused = {
        "loss-schedule": not method.uses_surrogate,
        "clean-pretraining": not method.train_on_clean,
        "candidate-noise": not method.uses_log_prior or not compressed.DENSE_CELLS,
        "sharper-targets": not method.uses_log_prior or name == "crosel",
        "meta-step": not method.uses_log_prior or name.startswith("mogd"),
        "class-weight": not method.takes_class_weight,
    }
    return [{"name": key, **params} for key, params in REFINEMENTS.items() if not refused.get(key)]


def classifier(method: str | Method, callbacks: list[Any], **changes: Any) -> PartialLabelClassifier:
    settings = {"epochs": 5, "batch_size": 30, "lr": 0.1, "random_state": 0} | TABLE | changes
    if isinstance(method, Method):
        return PartialLabelClassifier(method, callbacks=callbacks, **settings)
    quick = {"valen": {"method__warmup_epochs": 2}}.get(method, {})
    return mogd.make(method, callbacks=callbacks, **settings).set_params(**quick)


def fitted(
    method: str | Method, callbacks: list[Any], *, images: bool = False, **changes: Any
) -> PartialLabelClassifier:
    given, clean = rows(images)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return classifier(method, callbacks, **changes).fit(*given, **clean)


def bits(model: PartialLabelClassifier) -> str:
    """A digest of the parameters, the buffers, the confidences and the history but for its seconds."""
    digest = hashlib.sha256()
    for tensor in model.module_.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    digest.update(take_dense(model.confidence_).tobytes())
    digest.update(repr([{k: v for k, v in e.items() if k != "seconds"} for e in model.history_]).encode())
    return digest.hexdigest()


class Break(Exception):
    pass


class Breaks(Callback):
    """Ends the run at its `at`-th batch, as a kill would: nothing is saved."""

    observer = True

    def __init__(self, at: int) -> None:
        self.at = at

    def on_batch(self, batch: Batch) -> Batch:
        self.seen = getattr(self, "seen", 0) + 1
        if self.seen == self.at:
            raise Break
        return batch
