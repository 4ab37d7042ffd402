"""Variants compared inside training folds, whose test folds are never read; `docs/studies/` has what came of it.

    python -m benchmarks.training_folds --backbone linear --datasets lost msrcv2 birdsong --repetitions 10
    python -m benchmarks.training_folds --backbone mlp --datasets lost msrcv2 --repetitions 8 --only "clean pretraining"

Repetition r takes the training part of fold r % 5 under seed r, splits it again into five folds, and scores on one.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from mogd.algorithms import make
from mogd.candidates import Candidates
from mogd.datasets import PartialDataset, Split, load, split_dataset

CLEAN_WEIGHT = {"name": "clean-weight"}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "CC": ("cc", {"callbacks": ()}),
    "CC, same callbacks": ("cc", {}),
    **{f"CC, clean ×{w}": ("cc", {"callbacks": (), "clean_weight": w}) for w in (3, 5, 10)},
    "PRODEN": ("proden", {"callbacks": ()}),
    "PRODEN, same callbacks": ("proden", {}),
    **{
        f"PRODEN, candidate cleaning, holdout {h:g}": (
            "proden",
            {"callbacks": [{"name": "candidate-cleaning", "holdout": h}]},
        )
        for h in (0.0, 0.5)
    },
    "PRODEN, holdout 0.5, nothing cleaned": (
        "proden",
        {"callbacks": [{"name": "candidate-cleaning", "holdout": 0.5, "start_fraction": 1.0}]},
    ),
    "POP": ("pop", {"callbacks": ()}),
    "CroSel": ("crosel", {"callbacks": ()}),
    "CroSel, same callbacks": ("crosel", {}),
    "CroSel, no mixing": ("crosel", {"callbacks": (), "mixing": 0.0}),
    **{
        f"LWS, lr {lr}, warm-up {epochs}": ("lws", {"lr": lr, "warmup_epochs": epochs, "callbacks": ()})
        for lr in (0.05, 0.1, 0.3, 1.0)
        for epochs in (1, 10, 20)
    },
    **{f"printed, beta {b}": ("mogd-paper", {"beta": float(b)}) for b in (1, 10, 30, 100)},
    "default": ("mogd", {}),
    **{f"meta step over {layers}": ("mogd", {"meta": layers}) for layers in ("all", "head")},
    "no callbacks": ("mogd", {"callbacks": ()}),
    **{
        f"strength {k}, clean ×{w}": ("mogd", {"strength": float(k), "clean_weight": w, "callbacks": ()})
        for k in (0, 0.3, 1, 3)
        for w in (1, 3, 5, 10)
    },
    **{f"strength {k}, same callbacks": ("mogd", {"strength": float(k)}) for k in (0, 0.3, 3, 10)},
    **{
        f"{label}warm-up {w}, finish {f}": (
            name,
            {
                "callbacks": [
                    CLEAN_WEIGHT | {"start_fraction": w},
                    {"name": "loss-schedule", "warmup_fraction": w, "finish_fraction": f},
                ]
            },
        )
        for label, name in (("", "mogd"), ("CC, ", "cc"))
        for w in (0.0, 0.2, 0.5, 0.7)
        for f in (0.0, 0.25, 0.5, 0.75)
    },
    "running prior, clean ×5": ("mogd", {"prior": "running"}),
    **{f"head, strength {k}, clean ×5": ("mogd", {"meta": "head", "strength": float(k)}) for k in (1, 2, 3)},
    "head, running prior, clean ×5": ("mogd", {"meta": "head", "prior": "running"}),
    **{
        f"clean pretraining {f}": (
            "mogd",
            {"callbacks": ["clean-weight", {"name": "clean-pretraining", "fraction": f}]},
        )
        for f in (0.0, 0.1, 0.5, 1.0)
    },
    **{
        f"candidate-set head {t}": ("mogd", {"callbacks": ["auto", {"name": "candidate-set-head", "weight": t}]})
        for t in (0.03, 0.1, 0.3, 1.0)
    },
}


def inner_split(dataset: PartialDataset, r: int, n_clean: int = 100) -> Split:
    """Repetition r: the training part of one fold, split again."""
    outer = split_dataset(dataset, n_clean=0, seed=r, fold=r % 5).train
    return split_dataset(outer, n_clean=n_clean, seed=1000 + r, fold=r % 5)


def score(algorithm: str, split: Split, **settings: Any) -> float:
    """Accuracy in % on a split's test rows; "supervised" is given the labels of the training rows."""
    candidates = split.train.candidates
    if algorithm == "supervised":
        labels = np.eye(len(candidates.classes), dtype=bool)[split.train.known_y()]
        candidates = Candidates(labels, candidates.classes)
    model = make(algorithm, **settings)
    model.fit(split.train.X, candidates, X_val=split.clean_X, y_val=split.clean_y)
    return 100 * model.score(split.test_X, split.test_y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backbone", default="linear")
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrcv2", "birdsong"])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--only", nargs="+", default=[""], help="variants whose name holds one of these")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.datasets:
        dataset = load(name)
        for label, (algorithm, params) in VARIANTS.items():
            if not any(part in label for part in options.only):
                continue
            if options.backbone == "linear" and label.startswith("candidate-set head"):
                continue  # it is refused: there is no layer before the last
            began, scores = time.perf_counter(), []
            for r in range(options.repetitions):
                split = inner_split(dataset, r)
                settings = {"backbone": options.backbone, "epochs": options.epochs, "scale": "standard", **params}
                scores.append(score(algorithm, split, random_state=r, **settings))
            error = np.std(scores) / len(scores) ** 0.5
            seconds = (time.perf_counter() - began) / options.repetitions
            print(f"{name:9s} {label:42s} {np.mean(scores):6.2f} ± {error:.2f}  {seconds:.1f} s a fit", flush=True)


if __name__ == "__main__":
    main()
