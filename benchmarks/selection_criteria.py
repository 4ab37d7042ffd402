"""Which inner score picks good parameters: clean rows alone, candidate sets alone, or both pooled (`mogd.selection`)?

    python benchmarks/selection_criteria.py

For every outer fold, the regret: how many points of test accuracy the chosen grid point is below the best one. The
splits have a seed of their own, apart from those of the published tables, so that the criterion is not chosen on their
tests.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from sklearn.model_selection import ParameterGrid

from mogd.algorithms import make
from mogd.candidates import as_labels
from mogd.datasets import load, split_dataset
from mogd.metrics import accuracy
from mogd.selection import held_out, pooled_accuracy

SEED = 77
GRIDS = {
    "plknn": {"n_neighbors": [5, 10, 20], "scale": ["standard", "minmax"]},
    "ipal": {"n_neighbors": [10, 20], "normalize": [True, False], "scale": ["standard", "minmax"]},
    "plsvm": {"lam": [0.001, 0.01, 0.1, 0.3], "scale": ["standard"], "random_state": [0]},
}


def regrets(name: str, dataset: str, fold: int) -> dict[str, float]:
    """Points lost to the best grid point by each criterion, on one outer fold."""
    split = split_dataset(load(dataset), n_clean=100, seed=SEED, fold=fold)
    candidates, none = split.train.candidates, np.empty(0, dtype=np.int64)
    clean_y = as_labels(split.clean_y, candidates.classes)
    scores, test = defaultdict(list), []
    for params in ParameterGrid(GRIDS[name]):
        estimator = make(name, **params)
        guess, clean_guess = held_out(estimator, split.train.X, candidates, split.clean_X, clean_y, 3, SEED)
        scores["sets"].append(pooled_accuracy(candidates.matrix, guess, none, none))
        scores["clean"].append(accuracy(clean_y, clean_guess))
        scores["pooled"].append(pooled_accuracy(candidates.matrix, guess, clean_y, clean_guess))
        estimator.fit(split.train.X, candidates, X_val=split.clean_X, y_val=split.clean_y)
        test.append(100 * estimator.score(split.test_X, split.test_y))
    return {rule: max(test) - test[int(np.argmax(values))] for rule, values in scores.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", choices=list(GRIDS), default=list(GRIDS))
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrcv2", "birdsong"])
    parser.add_argument("--folds", type=int, default=3)
    asked = parser.parse_args()
    print("points below the best grid point, mean over folds\nalgorithm data set    clean    sets  pooled")
    every = []
    for name in asked.algorithms:
        for dataset in asked.datasets:
            rows = [regrets(name, dataset, fold) for fold in range(asked.folds)]
            every += rows
            print(f"{name:10}{dataset:10}{_line(rows)}", flush=True)
    print(f"all                 {_line(every)}")


def _line(rows: list[dict[str, float]]) -> str:
    return "".join(f"{np.mean([row[rule] for row in rows]):8.2f}" for rule in ("clean", "sets", "pooled"))


if __name__ == "__main__":
    main()
