"""Do the recommended callbacks help every method, or MoGD alone? Paired differences inside training folds.

    python -m benchmarks.callbacks_for_every_method --backbone linear --repetitions 6

Repetition r takes the training part of fold r % 5 under seed r, splits it again into five folds, and scores on one: the
test folds are never looked at.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
import torch

from benchmarks.training_folds import inner_split
from mogd.algorithms import make
from mogd.datasets import load

METHODS = {
    "mogd": {},
    "cc": {},
    "proden": {},
    "rc": {},
    "pce": {},
    "valen": {},
    "mse": {},
    "lws": {"lr": 0.3, "warmup_epochs": 20},
    "exp": {"lr": 0.3},
    "ga": {"lr": 0.01, "weight_decay": 0.05},
    "d2cnn": {},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backbone", default="linear")
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrcv2", "birdsong"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in options.datasets:
        dataset = load(name)
        for method in options.methods:
            scores: dict[str, list[float]] = {"none": [], "auto": []}
            for r in range(options.repetitions):
                split = inner_split(dataset, r)
                for label, callbacks in (("none", ()), ("auto", "auto")):
                    given = {"backbone": options.backbone, "epochs": options.epochs, "scale": "standard"}
                    given |= METHODS[method] | {"callbacks": callbacks, "random_state": r, "unseen": "keep"}
                    model = make(method, **given)
                    model.fit(split.train.X, split.train.candidates, X_val=split.clean_X, y_val=split.clean_y)
                    scores[label].append(100 * model.score(split.test_X, split.test_y))
            gain = np.subtract(scores["auto"], scores["none"])
            error = gain.std(ddof=1) / len(gain) ** 0.5
            means = f"{np.mean(scores['none']):.1f} | {np.mean(scores['auto']):.1f}"
            print(f"| {name} | {method} | {means} | {gain.mean():+.1f} ± {error:.1f} |", flush=True)


if __name__ == "__main__":
    main()
