"""`make bench`: what the library costs, as ratios measured in one run; writes results/performance.json.

    python -m benchmarks.performance [--quick]      measure, then write the page
    python -m benchmarks.performance --only steps   some sections, without the page
    python -m benchmarks.performance --page         the page alone, from the file

Two cores, under 15 minutes. What is compared takes turns, processor seconds are counted, and medians are compared, so
that whatever else the machine does falls on all alike. Peak memory is the operating system's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import meta_step, performance_page, plain
from mogd.algorithms import make
from mogd.experiments.provenance import commit, host, versions
from mogd.methods.base import TrainingData
from mogd.methods.proden import PRODEN
from mogd.training import Settings, train

OUT = Path("results/performance.json")
PATIENCE = 180  # seconds for an example on two threads beside a busy process, where it may take minutes
BASE = {"n": 20_000, "K": 20, "M": 100, "b": 256}  # rows, classes, clean rows, batch size; 64 features
SIZES = {
    "n": (5_000, 10_000, 20_000, 40_000),
    "K": (10, 40, 160, 640),
    "M": (50, 200, 800, 3200),
    "b": (64, 128, 256, 512),
}
EXAMPLE = """
import sys, time, warnings, numpy as np, torch
from sklearn.datasets import load_digits
from mogd import PartialLabelClassifier
torch.set_num_threads(2)
X, y = load_digits(return_X_y=True)
candidates = np.random.default_rng(0).random((len(y), 10)) < 0.3
candidates[np.arange(len(y)), y] = True
threads = None if sys.argv[1] == "auto" else int(sys.argv[1])
model = PartialLabelClassifier(scale="standard", random_state=0, epochs=30, n_threads=threads)
began, wall = time.process_time(), time.perf_counter()
model.fit(X[100:], candidates[100:], X_val=X[:100], y_val=y[:100])
print(time.process_time() - began, time.perf_counter() - wall)
"""


def rows(n: int, K: int, M: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of 64 features with three candidates each, and clean rows."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(K, 64))
    y = np.concatenate([np.arange(K), rng.integers(K, size=n + M - K)])
    X = (centres[y] + rng.normal(size=(n + M, 64))).astype(np.float32)
    candidates = np.zeros((n, K), dtype=bool)
    candidates[np.arange(n), y[:n]] = True
    for _ in range(2):
        candidates[np.arange(n), rng.integers(K, size=n)] = True
    return X[:n], candidates, X[n:], y[n:]


def child(n: int, K: int, M: int, b: int, epochs: int = 2) -> None:
    """One process of `growth`: processor seconds of an epoch, and the peak memory beyond what stood before the fit."""
    X, candidates, clean_X, clean_y = rows(n, K, M)
    model = make("mogd", epochs=epochs, batch_size=b, random_state=0, n_threads=1, classes=list(range(K)))
    model.fit(X[:b], candidates[:b], X_val=clean_X, y_val=clean_y)  # what a process does once
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = peak_mib()
    began = time.process_time()
    model.fit(X, candidates, X_val=clean_X, y_val=clean_y)
    seconds = (time.process_time() - began) / epochs
    print(json.dumps([seconds, peak_mib() - before]))


def peak_mib() -> float:
    """Of this process alone: getrusage begins with the memory of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def growth(quick: bool) -> dict[str, Any]:
    """Seconds of an epoch and MiB of memory over each size, the others as in BASE, with fitted exponents."""
    found: dict[str, Any] = {}
    for name, sizes in SIZES.items():
        chosen = sizes[:2] if quick else sizes
        measured = []
        for size in chosen:
            given = BASE | ({"n": SIZES["n"][0]} if quick else {}) | {name: size}
            print(f"growth: {given}", flush=True)
            command = [sys.executable, "-m", "benchmarks.performance", "--child", *(str(v) for v in given.values())]
            measured.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        seconds, memory = (list(column) for column in zip(*measured, strict=True))
        logs = np.log(chosen)
        exponents = [float(np.polyfit(logs, np.log(np.maximum(v, 1e-3)), 1)[0]) for v in (seconds, memory)]
        found[name] = {"sizes": list(chosen), "seconds": seconds, "MiB": memory, "exponents": exponents}
    return found


def steps(quick: bool) -> dict[str, dict[str, float]]:
    """Processor seconds of each kind of step, of each network."""
    found = {}
    for name in [name for name in meta_step.BOUNDS if name != "wide-resnet" or not quick]:
        print(f"steps: {name}", flush=True)
        found[name] = meta_step.measure(name, 1 if quick else 7, inner=4 if name == "wide-resnet" or quick else 20)
    return found


def interleaved(kinds: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median processor seconds of each kind."""
    spent: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, run in kinds.items():
            began = time.process_time()
            run()
            spent[kind].append(time.process_time() - began)
    return {kind: statistics.median(values) for kind, values in spent.items()}


def beside_plain(quick: bool) -> dict[str, dict[str, float]]:
    """An epoch of PRODEN and a fit of IPAL, ours and plain ones."""
    X, candidates, _, _ = rows(10_000, 20, 1)
    x, sets = torch.from_numpy(X), torch.from_numpy(candidates)

    data = TrainingData(x, sets, torch.ones(len(x)), x[:0], torch.empty(0, dtype=torch.long))
    settings = Settings(1, 256, "sgd", 0.05, 0.9, False, 1e-3, "constant", 50, 0.5)

    def ours() -> None:
        train(torch.nn.Linear(64, 20), PRODEN(), data, settings, torch.Generator().manual_seed(0))

    small = 500 if quick else 1000
    proden: dict[str, Callable[[], Any]] = {
        "ours": ours,
        "plain": lambda: plain.proden_epoch(x, sets, 256, torch.nn.Linear(64, 20)),
    }
    ipal: dict[str, Callable[[], Any]] = {
        "ours": lambda: make("ipal").fit(X[:small], candidates[:small]),
        "plain": lambda: plain.ipal(X[:small], candidates[:small]),
    }
    rounds = 3 if quick else 7
    return {"PRODEN, an epoch": interleaved(proden, rounds), "IPAL, a fit": interleaved(ipal, rounds)}


def threads(quick: bool) -> dict[str, dict[str, float | None]]:
    """Processor and clock seconds of the README's example on 1 and 2 threads and by default, idle and beside a load."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    found: dict[str, dict[str, float | None]] = {}
    for place in ("idle", "busy"):
        load = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if place == "busy" else None
        try:
            for count in ("auto", "1", "2"):
                if quick and count == "2":
                    continue  # beside a load it takes minutes
                command = [sys.executable, "-c", EXAMPLE, count]
                print(f"threads: {place}, {count}", flush=True)
                try:
                    done = subprocess.run(
                        command, capture_output=True, text=True, env=environment, check=True, timeout=PATIENCE
                    )
                except subprocess.TimeoutExpired:
                    found[f"{place}, {count}"] = {"processor": None, "clock": None}
                    continue
                processor, clock = map(float, done.stdout.split())
                found[f"{place}, {count}"] = {"processor": processor, "clock": clock}
        finally:
            if load is not None:
                load.kill()
                load.wait()
    return found


def predictions(quick: bool) -> dict[str, float]:
    """Rows a second of `predict`, in processor seconds of one thread."""
    X, candidates, clean_X, clean_y = rows(5_000, 20, 100)
    found = {}
    for backbone in ("linear", "mlp"):
        model = make("mogd", backbone=backbone, epochs=1, random_state=0, n_threads=1)
        model.fit(X, candidates, X_val=clean_X, y_val=clean_y)
        many = np.concatenate([X] * 10)
        kinds: dict[str, Callable[[], Any]] = {"predict": partial(model.predict, many)}
        found[backbone] = len(many) / interleaved(kinds, 1 if quick else 5)["predict"]
    return found


SECTIONS: dict[str, Callable[[bool], Any]] = {
    "steps": steps,
    "plain": beside_plain,
    "growth": growth,
    "threads": threads,
    "predict": predictions,
}


def measure(quick: bool, names: list[str]) -> None:
    """Measure some sections; the file is written after each, so that one that fails does not lose the others."""
    found: dict[str, Any] = {"quick": quick, "commit": commit()[0], "host": host(), "versions": versions(), "took": {}}
    for name in names:
        began = time.perf_counter()
        found[name] = SECTIONS[name](quick)
        found["took"][name] = round(time.perf_counter() - began, 1)
        print(f"{name}: {found['took'][name]} s", flush=True)
        OUT.parent.mkdir(exist_ok=True)
        OUT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"all: {sum(found['took'].values()) / 60:.1f} minutes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds: to see that it works")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help="these sections, and no page")
    parser.add_argument("--page", action="store_true", help="only write the page from the file")
    parser.add_argument("--child", nargs=4, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    if not options.page:
        torch.set_num_threads(1)
        measure(options.quick, options.only or list(SECTIONS))
    if options.only is None:
        performance_page.write(json.loads(OUT.read_text(encoding="utf-8")), Path("docs"))


if __name__ == "__main__":
    main()
