"""Why a network resolves fewer rows of Lost than a linear model does (see `benchmarks.training_folds` for the splits).

python -m benchmarks.mlp_on_lost --repetitions 3
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import torch

from benchmarks.training_folds import inner_split
from mogd.algorithms import make
from mogd.datasets import load
from mogd.metrics import accuracy, disambiguation_accuracy

MLP: dict[str, Any] = {"backbone": "mlp", "scale": "standard", "epochs": 50}
VARIANTS: dict[
    str, tuple[str, dict[str, Any], int]
] = {  # an algorithm, its settings, and over how many fits to average
    "MoGD, mlp": ("mogd", MLP, 1),
    "200 epochs": ("mogd", MLP | {"epochs": 200}, 1),
    "batch 16": ("mogd", MLP | {"batch_size": 16, "lr": 0.01}, 1),
    "batch 16, strength 0": ("mogd", MLP | {"batch_size": 16, "lr": 0.01, "strength": 0.0}, 1),
    "two networks": ("mogd", MLP, 2),
    "weight decay 1e-2": ("mogd", MLP | {"weight_decay": 1e-2}, 1),
    "min-max": ("mogd", MLP | {"scale": "minmax"}, 1),
    "CroSel": ("crosel", MLP | {"callbacks": ()}, 1),
    "CroSel, same callbacks": ("crosel", MLP, 1),
    "PRODEN, same callbacks": ("proden", MLP, 1),
    "MoGD, linear": ("mogd", {"scale": "standard"}, 1),
    "MoGD, rbf": ("mogd", {"backbone": "rbf", "scale": "minmax"}, 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--dataset", default="lost")
    parser.add_argument("--only", nargs="*", default=[""], help="variants whose name holds one of these")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dataset = load(options.dataset)
    for label, (algorithm, settings, n_fits) in VARIANTS.items():
        if not any(part in label for part in options.only):
            continue
        began, found = time.process_time(), []
        for r in range(options.repetitions):
            split = inner_split(dataset, r)
            fits = [make(algorithm, random_state=100 * k + r, unseen="keep", **settings) for k in range(n_fits)]
            for model in fits:
                model.fit(split.train.X, split.train.candidates, X_val=split.clean_X, y_val=split.clean_y)
            guess = np.mean([model.predict_proba(split.test_X) for model in fits], axis=0).argmax(axis=1)
            tested = accuracy(split.test_y, fits[0].classes_[guess])
            confidence = np.mean([model.confidence_ for model in fits], axis=0)
            found.append((tested, disambiguation_accuracy(split.train.known_y(), confidence)))
        means, errors = 100 * np.mean(found, axis=0), 100 * np.std(found, axis=0) / len(found) ** 0.5
        seconds = (time.process_time() - began) / options.repetitions
        line = f"{means[0]:.1f} ± {errors[0]:.1f} | {means[1]:.1f} ± {errors[1]:.1f} | {seconds:.0f}"
        print(f"| {label} | {line} |", flush=True)


if __name__ == "__main__":
    main()
