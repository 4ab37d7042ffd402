"""One rank of tests/test_distributed.py: fit what a JSON file asks for, and write what came of it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from mogd import PartialLabelClassifier, distributed
from mogd.callbacks.base import Callback, Run
from mogd.callbacks.checkpoint import Checkpoint

NET = {"hidden": [20], "dropout": 0.0, "batch_norm": False}


class Die(Callback):
    """Rank 1 ends without a word after an epoch."""

    observer = True

    def __init__(self, after: int = 2) -> None:
        self.after = after

    def on_save_point(self, run: Run) -> None:
        if run.at.epoch == self.after and distributed.rank() == 1:
            os._exit(3)


def fitted(method: str, *, checkpoint: str | None = None, die: bool = False, **params: Any) -> PartialLabelClassifier:
    """A small fit of three epochs, the same in every rank."""
    x, y = load_digits(return_X_y=True)
    candidates = np.random.default_rng(0).random((len(y), 10)) < 0.3
    candidates[np.arange(len(y)), y] = True
    callbacks: list[Any] = ["auto"]
    callbacks += [Checkpoint(checkpoint, resume=True)] if checkpoint else []
    callbacks += [Die()] if die else []
    given = {"epochs": 3, "batch_size": 50, "scale": "standard", "random_state": 0, "lr": 0.02} | params
    if given.get("backbone") == "mlp":
        given.setdefault("backbone_params", NET)
    model = PartialLabelClassifier(method, callbacks=callbacks, **given)
    with np.errstate(all="ignore"):
        return model.fit(x[60:360], candidates[60:360], X_val=x[:60], y_val=y[:60])


def state(model: PartialLabelClassifier) -> dict[str, np.ndarray]:
    arrays = {name: value.numpy() for name, value in model.module_.state_dict().items()}
    return arrays | {"confidence_": model.confidence_, "loss_": np.array([e["loss"] for e in model.history_])}


def main(asked: Path, out: Path) -> None:
    distributed.join()
    for name, params in json.loads(asked.read_text(encoding="utf-8")).items():
        try:
            np.savez(out / f"{name}-{distributed.rank()}.npz", **state(fitted(**params)))
        except ValueError as error:
            (out / f"{name}-{distributed.rank()}.txt").write_text(str(error), encoding="utf-8")
    distributed.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
