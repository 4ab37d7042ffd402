"""How long should MoGD's step have been? Asked of the true labels of partial rows, inside training folds.

    python -m benchmarks.right_step --backbone rbf --datasets lost msrcv2 birdsong --repetitions 3

At every step of training, the posterior on the candidates is moved by t times the alignment, for a few t; the best t of
an epoch is the one under which the true labels are most probable. Training itself sees none of it.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from benchmarks.training_folds import inner_split, score
from mogd.callbacks.base import Callback
from mogd.datasets import load
from mogd.methods.base import Batch, Output
from mogd.methods.steps import average

LENGTHS = (0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
EPOCHS = (1, 2, 3, 5, 10, 20, 40)


class RightStep(Callback):
    """Notes the mean log-probability of the true labels of rows with two candidates or more, for every length."""

    observer = True

    def __init__(self, labels: np.ndarray | None = None) -> None:
        self.labels = labels

    def start(self, run: Any) -> None:
        self.truth = torch.from_numpy(np.asarray(self.labels))
        self.sum_, self.rows_ = torch.zeros(len(LENGTHS)), 0
        self.found_: list[list[float]] = []

    def on_output(self, out: Output, batch: Batch) -> None:
        asked = (batch.index < len(self.truth)) & (batch.candidates.sum(dim=1) > 1)
        logits, sets, moved = out.logits.detach()[asked], batch.candidates[asked], average(out.alignments)[asked]
        truth = self.truth[batch.index[asked]][:, None]
        for i, t in enumerate(LENGTHS):
            found = torch.log_softmax((logits + t * moved).masked_fill(~sets, -torch.inf), dim=1)
            self.sum_[i] += found.gather(1, truth).sum()
        self.rows_ += int(asked.sum())

    def on_epoch_end(self, run: Any, entry: dict[str, Any]) -> None:
        self.found_.append([entry["shrinkage"], run.method.step_.size, *(self.sum_ / self.rows_).tolist()])
        self.sum_, self.rows_ = torch.zeros(len(LENGTHS)), 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backbone", default="rbf")
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrcv2", "birdsong"])
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.datasets:
        dataset, found = load(name), []
        for r in range(options.repetitions):
            split = inner_split(dataset, r)
            notes = RightStep(split.train.known_y())
            watched = {"backbone": options.backbone, "callbacks": ["auto", notes]}
            score("mogd", split, scale="minmax", random_state=r, **watched)
            found.append(notes.found_)
        means = np.mean(found, axis=0)
        for epoch in EPOCHS:
            shrinkage, taken, *values = means[epoch - 1]
            at = "  ".join(f"{t:g}: {value:.3f}" for t, value in zip(LENGTHS, values, strict=True))
            print(f"{name:9s} epoch {epoch:3d}  shrinkage {shrinkage:.2f}, step {taken:.2f}  {at}", flush=True)


if __name__ == "__main__":
    main()
