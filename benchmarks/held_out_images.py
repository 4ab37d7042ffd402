"""Variants compared on training images that were held out; `docs/studies/` has what came of it.

    python -m benchmarks.held_out_images instance-dependent --seeds 2 --only CC default
    python -m benchmarks.held_out_images uniform --q 0.5 0.7 --only CC default
    python -m benchmarks.held_out_images cifar10 --q 0.1 --n-clean 32 128 --seeds 3 --only CC default

`instance-dependent` has 12,000 rows of Fashion-MNIST and a small CNN, `cifar10-instance-dependent` 4,000 rows and a
narrow Wide-ResNet, `uniform` 55,000 rows and the linear model of fashion-linear, `cifar10` 5,000 rows and a narrow
ConvNet; the kinds `airbench…` have 8,000 rows of CIFAR-10 and a quarter of airbench's width. The candidates are made
and the models scored on training images alone; the test images are never read.
"""

from __future__ import annotations

import argparse
import time
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.airbench_epochs import SETTINGS as AIRBENCH_SETTINGS
from benchmarks.training_folds import score
from mogd.candidates import Candidates
from mogd.datasets import PartialDataset, Split, load_images, split_dataset
from mogd.experiments.data import make_candidates

CNN: dict[str, Any] = {
    "backbone": "cnn",
    "backbone_params": {"width": 0.5},
    "epochs": 10,
    "batch_size": 64,
    "lr": 0.02,
    "weight_decay": 5e-4,
}
LINEAR: dict[str, Any] = {"backbone": "linear", "epochs": 20, "batch_size": 256, "lr": 0.02}
CONVNET: dict[str, Any] = {
    "backbone": "convnet",
    "backbone_params": {"width": 0.0625, "dropout": 0.0},
    "augment": "cutout",
    "epochs": 10,
    "batch_size": 64,
    "weight_decay": 5e-4,
}
RESNET: dict[str, Any] = {
    "backbone": "wide-resnet",
    "backbone_params": {"depth": 10, "widen": 2, "width": 0.25},
    "epochs": 10,
    "batch_size": 64,
    "weight_decay": 5e-4,
}
# 8,000 rows in batches of 250: as many steps as 32,000 rows in batches of 1000
AIRBENCH: dict[str, Any] = AIRBENCH_SETTINGS | {"backbone_params": {"width": 0.25}, "epochs": 8, "batch_size": 250}


class Kind(NamedTuple):
    """Where the images come from, how many are trained on and held out, and with which network."""

    dataset: str
    rows: int
    held_out: int
    settings: dict[str, Any]
    corruption: dict[str, Any]


INSTANCE: dict[str, Any] = {"generator": "instance-dependent", "normalisation": "mean-rate", "rate": 0.4}
KINDS = {
    "instance-dependent": Kind("fashion-mnist", 12000, 5000, CNN, INSTANCE | {"network": CNN}),
    "cifar10-instance-dependent": Kind(
        "cifar10", 4000, 5000, RESNET | {"augment": "cutout"}, INSTANCE | {"network": RESNET}
    ),
    "uniform": Kind("fashion-mnist", 55000, 5000, LINEAR, {"generator": "binomial"}),
    "cifar10": Kind("cifar10", 5000, 5000, CONVNET, {"generator": "binomial"}),
    "airbench": Kind("cifar10", 8000, 5000, AIRBENCH, {"generator": "binomial"}),
    "airbench-instance-dependent": Kind("cifar10", 8000, 5000, AIRBENCH, INSTANCE | {"network": AIRBENCH}),
}
PRETRAINED = ["clean-weight", "clean-pretraining"]
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "supervised": ("supervised", {"callbacks": ()}),
    "PRODEN": ("proden", {"callbacks": ()}),
    "PRODEN, same callbacks": ("proden", {}),
    "CC": ("cc", {"callbacks": ()}),
    "CC, same callbacks": ("cc", {}),
    **{f"CC, clean ×{w}": ("cc", {"callbacks": (), "clean_weight": w}) for w in (3, 5, 10)},
    "PCE": ("pce", {"callbacks": ()}),
    "default": ("mogd", {}),
    "all parameters": ("mogd", {"meta": "all"}),
    "running prior": ("mogd", {"prior": "running"}),
    "no callbacks": ("mogd", {"callbacks": ()}),
    **{f"strength {k}": ("mogd", {"strength": k}) for k in (0.0, 0.3, 3.0, 10.0)},
    **{f"clean ×{w}": ("mogd", {"callbacks": (), "clean_weight": w}) for w in (1, 2, 5)},
    "clean weight": ("mogd", {"callbacks": ["clean-weight"]}),
    "clean weight, all parameters": ("mogd", {"callbacks": ["clean-weight"], "meta": "all"}),
    **{
        f"clean weight, strength {k}": ("mogd", {"callbacks": ["clean-weight"], "strength": k})
        for k in (0.0, 2.0, 5.0, 20.0)
    },
    "clean weight, pretraining": ("mogd", {"callbacks": PRETRAINED}),
    **{
        f"clean weight, pretraining {f}": (
            "mogd",
            {"callbacks": ["clean-weight", {"name": "clean-pretraining", "fraction": f}]},
        )
        for f in (0.015, 0.02, 0.1, 0.5, 1.5)
    },
    "clean weight, candidate-set head": ("mogd", {"callbacks": ["clean-weight", "candidate-set-head"]}),
    **{
        f"pretraining, candidate-set head {t}": (
            "mogd",
            {"callbacks": ["clean-weight", {"name": "candidate-set-head", "weight": t}, "clean-pretraining"]},
        )
        for t in (0.1, 0.3, 1.0)
    },
    **{  # for linear models; at 55,000 rows the warm-up that is recommended is a fiftieth of the epochs
        f"warm-up {w}, finish {f}": (
            "mogd",
            {"callbacks": ["clean-weight", {"name": "loss-schedule", "warmup_fraction": w, "finish_fraction": f}]},
        )
        for w in (0.0, 0.02, 0.5)
        for f in (0.0, 0.25, 0.5)
    },
    **{
        f"LWS, lr {lr}, warm-up {epochs}": ("lws", {"lr": lr, "warmup_epochs": epochs, "callbacks": ()})
        for lr in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
        for epochs in (1, 2, 3, 5, 10, 15)
    },
}


def split_of(kind: Kind, seed: int, q: float | None, n_clean: int = 128) -> Split:
    """Training rows with candidates, clean rows, and held-out training images in place of the test rows."""
    images = load_images(kind.dataset)
    order = np.random.default_rng([seed, 5]).permutation(len(images.y_train))
    rows, held_out = order[: kind.rows], order[-kind.held_out :]
    X, y = images.X_train[rows], images.y_train[rows]
    corruption = kind.corruption if q is None else kind.corruption | {"q": q}
    matrix = make_candidates(kind.dataset, X, y, len(images.classes), corruption, seed)
    dataset = PartialDataset(kind.dataset, X, Candidates(matrix, images.classes), y)
    return split_dataset(dataset, n_clean=n_clean, seed=seed, test=(images.X_train[held_out], images.y_train[held_out]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--q", type=float, nargs="+", default=[0.5], help="of uniform candidates")
    parser.add_argument("--n-clean", type=int, nargs="+", default=[128])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="instead of the recipe's")
    parser.add_argument("--lr", type=float, help="instead of the recipe's, of the network behind the candidates too")
    parser.add_argument("--only", nargs="+", default=[], help="variants of these names")
    options = parser.parse_args()
    torch.set_num_threads(1)
    unknown = sorted(set(options.only) - set(VARIANTS))
    if unknown:
        parser.error(f"no variant {', '.join(map(repr, unknown))}; there are {', '.join(map(repr, VARIANTS))}")
    kind = KINDS[options.kind]
    if options.lr is not None:
        network = {"network": kind.corruption["network"] | {"lr": options.lr}} if "network" in kind.corruption else {}
        kind = kind._replace(settings=kind.settings | {"lr": options.lr}, corruption=kind.corruption | network)
    changes = {} if options.epochs is None else {"epochs": options.epochs}
    rates = options.q if kind.corruption["generator"] == "binomial" else [None]
    for q, n_clean in product(rates, options.n_clean):
        for label, (algorithm, params) in VARIANTS.items():
            if options.only and label not in options.only:
                continue
            if kind.settings["backbone"] == "linear" and "candidate-set head" in label:
                continue  # it is refused: there is no layer before the last
            scores, began = [], time.perf_counter()
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                split = split_of(kind, seed, q, n_clean)
                scores.append(score(algorithm, split, **{**kind.settings, **changes, **params, "random_state": seed}))
            seconds = (time.perf_counter() - began) / options.seeds
            each = " ".join(f"{score:.2f}" for score in scores)
            print(
                f"{options.kind} q={q} M={n_clean} {label:42s} {np.mean(scores):6.2f}  ({each})  {seconds:.0f} s a fit",
                flush=True,
            )


if __name__ == "__main__":
    main()
