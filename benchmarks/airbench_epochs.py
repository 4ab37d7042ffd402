"""What an epoch of the backbone `airbench` costs and what it learns, on CIFAR-10's training images alone.

    OMP_NUM_THREADS=1 python -m benchmarks.airbench_epochs --width 0.25 --epochs 4
    OMP_NUM_THREADS=1 python -m benchmarks.airbench_epochs --method cc --q 0.5 --rows 10000 --set lr=0.1

The last 5,000 training images are held out. Seconds are the processor's, for other processes may run beside.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from typing import Any

import numpy as np
import torch

from mogd import make
from mogd.datasets import load_images
from mogd.datasets.corrupt import binomial

HELD_OUT = 5000
SETTINGS: dict[str, Any] = {
    "backbone": "airbench",
    "batch_size": 1000,
    "optimizer": "muon",
    "lr": 0.2,
    "momentum": 0.85,
    "weight_decay": 1e-3,
    "schedule": "linear",
    "augment": "alternate",
    "precision": "bf16",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--method", default="supervised")
    parser.add_argument("--q", type=float, default=0.0, help="probability of each wrong label to be a candidate")
    parser.add_argument("--n-clean", type=int, default=128, help="clean rows, for MoGD")
    parser.add_argument("--rows", type=int, default=45000)
    parser.add_argument("--width", type=float, default=0.25)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="other settings, as TOML")
    options = parser.parse_args()
    data = load_images("cifar10")
    X, y = data.X_train[: options.rows], data.y_train[: options.rows]
    test_X, test_y = data.X_train[-HELD_OUT:], data.y_train[-HELD_OUT:]
    candidates = np.eye(10, dtype=bool)[y]
    if options.q:
        candidates = binomial(y, 10, options.q, np.random.default_rng(options.seed))
    settings = SETTINGS | {"backbone_params": {"width": options.width}, "epochs": options.epochs}
    settings |= tomllib.loads("\n".join(options.set))
    clean = {} if options.method != "mogd" else {"X_val": X[: options.n_clean], "y_val": y[: options.n_clean]}
    first = len(clean and clean["y_val"])
    model = make(options.method, random_state=options.seed, **settings)
    began = time.process_time()
    model.fit(X[first:], candidates[first:], **clean)
    seconds = (time.process_time() - began) / options.epochs
    print(
        f"{options.method}, q = {options.q}, {options.rows} rows, width {options.width}, {options.epochs} epochs, "
        f"{' '.join(options.set)}: {seconds:.1f} processor seconds an epoch on {torch.get_num_threads()} thread(s)"
    )
    for views in (None, "mirror", "mirror-shift"):
        print(f"  views {views}: {100 * model.set_params(predict_views=views).score(test_X, test_y):.1f} %", flush=True)


if __name__ == "__main__":
    main()
