"""What an epoch of the backbone `airbench` costs and what it learns, on CIFAR-10's training images alone.

    OMP_NUM_THREADS=1 python -m benchmarks.airbench_epochs --width 0.25 --epochs 4
    OMP_NUM_THREADS=1 python -m benchmarks.airbench_epochs --method cc --q 0.5 --rows 10000 --set lr=0.1
    OMP_NUM_THREADS=1 python -m benchmarks.airbench_epochs --cost supervised mogd mogd-paper --rows 4000 --rounds 2

`--cost` has the methods take turns, an epoch each, and prints the quickest of each and the part of it that loads and
augments the images. The last 5,000 training images are held out. Seconds are the processor's, for other processes may
run beside.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from typing import Any

import numpy as np
import torch

from mogd import Callback, make
from mogd.callbacks.base import Entry, Run
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


class Clock(Callback):
    """Processor seconds of the first epoch, and those that its batches take to be loaded and augmented."""

    observer = True

    def on_save_point(self, run: Run) -> None:
        if run.at.epoch == 0:
            self.began = time.process_time()

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        self.epoch = time.process_time() - self.began
        began = time.process_time()
        for index in torch.arange(len(run.data.x)).split(run.settings.batch_size):
            run.batch(index, run.confidence[index], progress=0.0)
        self.data = time.process_time() - began


def compare(methods: list[str], rounds: int, settings: dict[str, Any], rows: tuple[Any, ...]) -> None:
    """One epoch of each method in turns: seconds for 50,000 rows, and how many plain epochs that is."""
    X, candidates, clean_X, clean_y = rows
    clocks: dict[str, list[Clock]] = {method: [] for method in methods}
    for _ in range(rounds):
        for method, own in clocks.items():
            own.append(Clock())
            model = make(method, random_state=0, callbacks=[own[-1]], **settings)
            model.fit(X, candidates, X_val=clean_X, y_val=clean_y)
    first = min(clock.epoch for clock in clocks[methods[0]])
    for method, own in clocks.items():
        best = min(own, key=lambda clock: clock.epoch)
        print(
            f"{method:12} {50000 / len(X) * best.epoch:6.1f} processor seconds an epoch of 50,000 rows, "
            f"{best.epoch / first:.2f} of {methods[0]}; data {100 * best.data / best.epoch:.1f} %",
            flush=True,
        )


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
    parser.add_argument("--cost", nargs="+", metavar="METHOD", help="compare the cost of an epoch of these")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    data = load_images("cifar10")
    X, y = data.X_train[: options.rows], data.y_train[: options.rows]
    test_X, test_y = data.X_train[-HELD_OUT:], data.y_train[-HELD_OUT:]
    candidates = np.eye(10, dtype=bool)[y]
    if options.q:
        candidates = binomial(y, 10, options.q, np.random.default_rng(options.seed))
    settings = SETTINGS | {"backbone_params": {"width": options.width}, "epochs": options.epochs}
    settings |= tomllib.loads("\n".join(options.set))
    if options.cost:
        n = options.n_clean
        rows = X[n:], binomial(y, 10, options.q or 0.5, np.random.default_rng(0))[n:], X[:n], y[:n]
        compare(options.cost, options.rounds, settings | {"epochs": 1}, rows)
        return
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
