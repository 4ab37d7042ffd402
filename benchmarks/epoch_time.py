"""Time per epoch of every deep method on Fashion-MNIST with the linear model, and how VALEN's memory grows with n.

    python benchmarks/epoch_time.py                     time, relative to supervised training in the same run
    python benchmarks/epoch_time.py --memory            peak memory of VALEN at n, 2n and 4n rows, a process each

The methods take turns, an epoch at a time, and each is given its quickest epoch: what else the machine does then falls
on all alike.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import numpy as np
import torch

from mogd.algorithms import ALGORITHMS, make, make_method
from mogd.datasets import load_images
from mogd.datasets.corrupt import binomial
from mogd.methods.base import TrainingData
from mogd.nets import Normalize, channel_statistics, make_backbone
from mogd.training import Settings, seeded, train

RIVALS = [name for name, a in ALGORITHMS.items() if a.is_deep and name != "supervised" and not a.needs_clean_set]
LIMITS = {"valen": 5.0}
SIZES = (15000, 30000, 60000)


def fashion(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Images and candidate sets at q = 0.3."""
    images = load_images("fashion-mnist")
    candidates = binomial(images.y_train, 10, 0.3, np.random.default_rng(0))
    return images.X_train[:n_rows], candidates[:n_rows]


def epoch_seconds(name: str, data: TrainingData, batch_size: int) -> float:
    """One epoch of training alone, without what a method builds before it."""
    method = make_method(name, **({"warmup_epochs": 0, "neighbours": 1} if name == "valen" else {}))
    settings = Settings(1, batch_size, "sgd", 0.05, 0.9, False, 1e-3, "cosine", 50, 0.5)
    with seeded(0, data.x.device):
        body = make_backbone("linear", data.x.shape[1:], data.candidates.shape[1])
        net = torch.nn.Sequential(Normalize(*channel_statistics(data.x)), body).float()
        _, history = train(net, method, data, settings, torch.Generator().manual_seed(0))
    return history[0]["seconds"]


def compare(methods: list[str], n_rows: int, batch_size: int, rounds: int) -> None:
    images, candidates = fashion(n_rows)
    x, sets = torch.from_numpy(images.copy()), torch.from_numpy(candidates)
    data = TrainingData(x, sets, torch.ones(len(x)), x[:0], torch.empty(0, dtype=torch.long))
    seconds: dict[str, list[float]] = {name: [] for name in ["supervised", *methods]}
    for _ in range(rounds):
        for name, taken in seconds.items():
            taken.append(epoch_seconds(name, data, batch_size))
    base = min(seconds["supervised"])
    print(f"{n_rows} rows, batch {batch_size}, {torch.get_num_threads()} threads, best of {rounds}")
    print(f"{'method':12}{'s/epoch':>9}{'ratio':>8}{'limit':>8}")
    for name, taken in seconds.items():
        print(f"{name:12}{min(taken):9.3f}{min(taken) / base:8.2f}{LIMITS.get(name, 1.6):8.1f}")


def memory(n_rows: int) -> None:
    """Peak memory of a short VALEN run, less that of the process before it."""
    images, candidates = fashion(n_rows)
    before = _peak()
    make("valen", epochs=2, warmup_epochs=1, random_state=0).fit(images, candidates)
    print(f"{n_rows:8}{before:10.0f}{_peak():10.0f}{(_peak() - before) / n_rows * 1024:16.1f}", flush=True)


def _peak() -> float:
    """Peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=RIVALS)
    parser.add_argument("--rows", type=int, default=12000)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        memory(given.only)
    elif given.memory:
        print(f"{'rows':>8}{'before':>10}{'peak MiB':>10}{'KiB a row':>16}", flush=True)
        for n_rows in SIZES:  # a fresh process each: the peak of a process never falls
            subprocess.run([sys.executable, __file__, "--only", str(n_rows)], check=True)
    else:
        compare(given.methods, given.rows, given.batch_size, given.rounds)


if __name__ == "__main__":
    main()
