"""Are skewed columns better made symmetric? Inside training folds (see `benchmarks.training_folds`), and on digits.

python -m benchmarks.scalers --repetitions 10
python -m benchmarks.scalers --repetitions 10 --backbones rbf --methods sure crosel
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from sklearn.datasets import load_digits

import mogd.scalers
from benchmarks.training_folds import inner_split, score
from mogd.algorithms import ALGORITHMS
from mogd.candidates import Candidates
from mogd.datasets import PartialDataset, load
from mogd.datasets.corrupt import binomial

SCALES = {"linear": ("standard", "power"), "mlp": ("standard", "power"), "rbf": ("minmax", "power-minmax")}


def digits(q: float = 0.1) -> PartialDataset:
    X, y = load_digits(return_X_y=True)
    return PartialDataset("digits", X, Candidates(binomial(y, 10, q, np.random.default_rng(0)), np.arange(10)), y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrcv2", "birdsong", "digits"])
    parser.add_argument("--backbones", nargs="+", default=list(SCALES), choices=list(SCALES))
    parser.add_argument("--methods", nargs="+", default=["mogd"])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--skewed", type=float, default=mogd.scalers.SKEWED, help="the skewness from which on")
    options = parser.parse_args()
    torch.set_num_threads(1)
    mogd.scalers.SKEWED = options.skewed
    for name in options.datasets:
        dataset = digits() if name == "digits" else load(name)
        splits = [inner_split(dataset, r) for r in range(options.repetitions)]
        for method in options.methods:
            for backbone in options.backbones:
                deep = {"backbone": backbone, "epochs": options.epochs} if ALGORITHMS[method].is_deep else {}
                if deep and method != "mogd":
                    deep |= {"callbacks": ()}
                first = None
                for scale in SCALES[backbone]:
                    began = time.process_time()
                    scores = np.array(
                        [score(method, s, scale=scale, random_state=r, **deep) for r, s in enumerate(splits)]
                    )
                    first = scores if first is None else first
                    beside = scores - first
                    error, of_difference = np.std([scores, beside], axis=1) / len(scores) ** 0.5
                    seconds = (time.process_time() - began) / len(scores)
                    figures = f"{scores.mean():6.2f} ± {error:.2f}  {beside.mean():+.2f} ± {of_difference:.2f}"
                    print(
                        f"{name:9s} {method:7s} {backbone:7s} {scale:13s} {figures}  {seconds:.1f} s a fit", flush=True
                    )


if __name__ == "__main__":
    main()
