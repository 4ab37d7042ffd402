"""MoGD's defaults were chosen here: variants compared inside training folds, whose test folds are never looked at.

    python -m benchmarks.training_folds --backbone linear --datasets lost msrcv2 birdsong --repetitions 10
    python -m benchmarks.training_folds --backbone mlp --datasets lost msrcv2 --repetitions 8 --only head

Repetition r takes the training part of fold r % 5 under seed r, splits it again into five folds, and scores on one.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from benchmarks.ideas import IDEAS
from mogd import PartialLabelClassifier
from mogd.algorithms import make
from mogd.candidates import Candidates
from mogd.datasets import Split, load, protocol
from mogd.methods.base import Method

VARIANTS: dict[str, tuple[str | Method, dict[str, Any]]] = {
    "CC": ("cc", {}),
    "CC, clean ×3": ("cc", {"clean_weight": 3}),
    "CC, clean ×10": ("cc", {"clean_weight": 10}),
    "PRODEN": ("proden", {}),
    **{
        f"LWS, lr {lr}, warm-up {epochs}": ("lws", {"lr": lr, "warmup": epochs})
        for lr in (0.05, 0.1, 0.3, 1.0)
        for epochs in (1, 10, 20)
    },
    **{f"printed, beta {b}": ("mogd-paper", {"beta": float(b)}) for b in (1, 10, 30, 100)},
    **{
        f"strength {k}, clean ×{w}": ("mogd", {"strength": float(k), "clean_weight": w, "warmup": 0.0, "finish": 0.0})
        for k in (0.3, 1, 3)
        for w in (1, 3, 5, 10)
    },
    **{
        f"warm-up {w}, finish {f}": ("mogd", {"warmup": w, "finish": f})
        for w in (0.0, 0.2, 0.5, 0.7)
        for f in (0.0, 0.25, 0.5, 0.75)
    },
    "running prior, clean ×5": ("mogd", {"prior": "running"}),
    "running prior (momentum 0.5), clean ×5": ("mogd", {"prior": "running", "prior_momentum": 0.5}),
    "head, strength 1, clean ×5": ("mogd", {"meta": "head"}),
    "head, strength 2, clean ×5": ("mogd", {"meta": "head", "strength": 2.0}),
    "head, strength 2, running prior (momentum 0.5), clean ×5": (
        "mogd",
        {"meta": "head", "strength": 2.0, "prior": "running", "prior_momentum": 0.5},
    ),
    "head, strength 3, clean ×5": ("mogd", {"meta": "head", "strength": 3.0}),
    "head, running prior, clean ×5": ("mogd", {"meta": "head", "prior": "running"}),
    **{f"head start {h}": ("mogd", {"head_start": h}) for h in (0.0, 0.1, 0.5, 1.0)},
    **{f"set task {t}": ("mogd", {"set_task": t}) for t in (0.0, 0.03, 0.1, 0.3, 1.0)},
    **{
        f"head start {h}, clean ×{w}": ("mogd", {"head_start": h, "clean_weight": w})
        for h in (0.0, 0.1)
        for w in (3, 5)
    },
    **IDEAS,
}


def score(algorithm: str | Method, split: Split, **settings: Any) -> float:
    """Accuracy in % on a split's test rows; "supervised" is told the labels of the training rows."""
    model = make(algorithm, **settings) if isinstance(algorithm, str) else PartialLabelClassifier(algorithm, **settings)
    candidates = split.train.candidates
    if algorithm == "supervised":
        told = np.eye(len(candidates.classes), dtype=bool)[split.train.known_y()]
        candidates = Candidates(told, candidates.classes)
    model.fit(split.train.X, candidates, X_val=split.clean_X, y_val=split.clean_y)
    return 100 * model.score(split.test_X, split.test_y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--backbone", default="linear")
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrcv2", "birdsong"])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--only", default="", help="variants whose name holds this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.datasets:
        dataset = load(name)
        for label, (algorithm, params) in VARIANTS.items():
            if options.only not in label:
                continue
            began, scores = time.perf_counter(), []
            for r in range(options.repetitions):
                outer = protocol(dataset, n_clean=0, seed=r, fold=r % 5).train
                split = protocol(outer, n_clean=100, seed=1000 + r, fold=r % 5)
                settings = {"backbone": options.backbone, "epochs": options.epochs, "scale": "standard", **params}
                scores.append(score(algorithm, split, random_state=r, **settings))
            error = np.std(scores) / len(scores) ** 0.5
            seconds = (time.perf_counter() - began) / options.repetitions
            print(f"{name:9s} {label:42s} {np.mean(scores):6.2f} ± {error:.2f}  {seconds:.1f} s a fit", flush=True)


if __name__ == "__main__":
    main()
