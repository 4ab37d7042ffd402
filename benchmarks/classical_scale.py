"""Time and peak memory of the classical algorithms at n, 2n, 4n and at Soccer Player's size, each in a fresh process.

    python benchmarks/classical_scale.py
    python benchmarks/classical_scale.py --algorithms sure ipal --sizes 17472

The data are generated: 279 features, 171 classes of very different sizes, 2.1 candidates on average, as in Soccer
Player (17,472 rows). A fifth as many new rows are predicted. "cpu s" is the processor time of both, over all threads:
the figure to compare when the machine is shared.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np

from mogd.algorithms import ALGORITHMS, make

N_FEATURES, N_CLASSES, EXTRA_CANDIDATES = 279, 171, 1.1
SIZES = (2000, 4000, 8000, 17472)
CLASSICAL = [name for name, algorithm in ALGORITHMS.items() if algorithm.kind == "classical"]


def soccer_like(n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, candidate matrix and true classes of generated rows."""
    rng = np.random.default_rng(seed)
    share = 1.0 / np.arange(1, N_CLASSES + 1)
    y = rng.choice(N_CLASSES, size=n_rows, p=share / share.sum())
    y[:N_CLASSES] = np.arange(N_CLASSES)
    centres = np.random.default_rng(7).normal(size=(N_CLASSES, N_FEATURES)) * 0.35
    X = centres[y] + rng.normal(size=(n_rows, N_FEATURES))
    candidates = rng.random((n_rows, N_CLASSES)) < EXTRA_CANDIDATES / (N_CLASSES - 1)
    candidates[np.arange(n_rows), y] = True
    return X, candidates.astype(np.int8), y


def measure(name: str, n_rows: int) -> None:
    """One row of the table."""
    X, candidates, y = soccer_like(n_rows + n_rows // 5)
    wanted = {"scale": "standard", "random_state": 0}
    own = make(name).get_params()
    estimator = make(name, **{key: value for key, value in wanted.items() if key in own})
    before = _peak()
    began, spent = time.perf_counter(), time.process_time()
    estimator.fit(X[:n_rows], candidates[:n_rows])
    fitted = time.perf_counter() - began
    hit = np.mean(estimator.predict(X[n_rows:]) == y[n_rows:])
    predicted = time.perf_counter() - began - fitted
    spent = time.process_time() - spent
    figures = f"{fitted:9.1f}{predicted:11.1f}{spent:9.1f}{before:12.0f}{_peak():10.0f}{100 * hit:10.1f}"
    print(f"{name:8}{n_rows:8}{figures}", flush=True)


def _peak() -> float:
    """Peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", choices=CLASSICAL, default=CLASSICAL)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--one", action="store_true", help="measure in this process, without the header")
    asked = parser.parse_args()
    if asked.one:
        measure(asked.algorithms[0], asked.sizes[0])
        return
    print("algorithm  rows    fit s  predict s    cpu s  MiB before  MiB peak  accuracy")
    for name in asked.algorithms:
        for size in asked.sizes:
            command = [sys.executable, __file__, "--one", "--algorithms", name, "--sizes", str(size)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
