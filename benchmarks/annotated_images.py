"""A part of CIFAR-10 with its three genuine annotators: rows resolved by the votes alone and with the images.

    OMP_NUM_THREADS=1 MOGD_DATA=… python -m benchmarks.annotated_images
    OMP_NUM_THREADS=1 MOGD_DATA=… python -m benchmarks.annotated_images --rows 50000 --epochs 8 --batch-size 1000

The whole table is `mogd bench cifar-annotators`. Accuracy is on 5,000 training images that were held out.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from benchmarks.airbench_epochs import HELD_OUT, SETTINGS
from mogd import crowd, make
from mogd.datasets import PartialDataset, load_images, split_dataset
from mogd.datasets.annotators import annotated

VARIANTS: dict[str, tuple[str, Any]] = {
    "MoGD": ("mogd", "auto"),
    "CC": ("cc", "auto"),
    "MoGD, candidate-set head": ("mogd", ["auto", {"name": "candidate-set-head", "weight": 0.025}]),
    "MoGD, sets alone": ("mogd", ["clean-weight"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--n-clean", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=VARIANTS, metavar="VARIANT")
    options = parser.parse_args()
    torch.set_num_threads(1)
    images = load_images("cifar10")
    order = np.random.default_rng([options.seed, 5]).permutation(len(images.y_train))
    rows, held_out = np.sort(order[: options.rows]), order[-HELD_OUT:]
    dataset = PartialDataset("cifar10", images.X_train[rows], annotated(images, rows), images.y_train[rows])
    test = images.X_train[held_out], images.y_train[held_out]
    split = split_dataset(dataset, n_clean=options.n_clean, seed=options.seed, test=test)
    y, sets, clean_y = split.train.known_y(), split.train.candidates, dataset.y[split.clean_index]
    evidence, clean_evidence = sets.evidence, split.clean_candidates.evidence
    assert evidence is not None
    votes = {
        "majority (a tie by its share)": crowd.majority(evidence, sets.matrix)[np.arange(len(y)), y],
        "Dawid–Skene, clean rows known": y
        == crowd.dawid_skene(evidence, sets.matrix, clean_evidence, clean_y).confidence.argmax(axis=1),
        "truth in the set": sets.matrix[np.arange(len(y)), y],
    }
    for label, right in votes.items():
        print(f"{label:30} {100 * right.mean():.2f}", flush=True)
    for label in options.only:
        method, callbacks = VARIANTS[label]
        settings = SETTINGS | {"backbone_params": {"width": 0.25}, "epochs": options.epochs}
        settings |= {"batch_size": options.batch_size, "callbacks": callbacks, "random_state": options.seed}
        model, began = make(method, **settings), time.process_time()
        model.fit(split.train.X, sets, X_val=split.clean_X, y_val=split.clean_y, candidates_val=split.clean_candidates)
        seconds = time.process_time() - began
        share = 100 * np.mean(model.confidence_.argmax(axis=1) == y)
        hits = [
            100 * model.set_params(predict_views=views).score(split.test_X, split.test_y)
            for views in (None, "mirror-shift")
        ]
        worth = (model.sources_report() or {}).get("exponents", {})
        shown = {name: round(value, 2) for name, value in worth.items()}
        print(
            f"{label:30} {share:.2f} resolved, {hits[0]:.1f} on new images ({hits[1]:.1f} with views), {shown}, "
            f"{seconds:.0f} processor seconds",
            flush=True,
        )


if __name__ == "__main__":
    main()
