"""Peak memory and processor time of fits on many rows and classes, and of fits from the disk, each in a fresh process.

    python benchmarks/scale.py                  # a million rows, a thousand classes: mogd, cc, proden, pce
    python benchmarks/scale.py growth           # cc at n, 2n, 4n and at K, 2K, 4K, beside a plain loop of the logits
    python benchmarks/scale.py disk --gib 10    # from a memory-mapped array and from Parquet files of so many GiB

The data are generated: 64 features (1,024 from the disk), three candidates a row, 2,000 clean rows; the fits have one
epoch. The peak is what the operating system counted for the process; "beyond X" is it less the size of X in memory.
Processor time does not count other processes on the machine. --json adds a line for every run to a file.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

N_FEATURES, WIDE, N_CLEAN, BLOCK = 64, 1024, 2000, 20_000
ROWS, CLASSES, BATCH = 1_000_000, 1_000, 1_000
METHODS = ("mogd", "cc", "proden", "pce")


def labels(n_rows: int, n_classes: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, n_classes, n_rows)


def block(y: np.ndarray, first: int, n_features: int, n_classes: int) -> np.ndarray:
    """Some rows of the table, those from `first` on."""
    centres = np.random.default_rng(7).standard_normal((n_classes, n_features), dtype=np.float32)
    noise = np.random.default_rng([3, first]).standard_normal((len(y), n_features), dtype=np.float32)
    return centres[y] + noise


def candidate_sets(y: np.ndarray, n_classes: int) -> sp.csr_array:
    """The true class and two others of each row."""
    rng = np.random.default_rng(2)
    step = rng.integers(1, n_classes // 2, (len(y), 2)).cumsum(axis=1)  # two different steps, below a full round
    columns = np.sort(np.column_stack([y, (y[:, None] + step) % n_classes]), axis=1).astype(np.int32)
    parts = np.ones(3 * len(y), dtype=bool), columns.ravel(), np.arange(0, 3 * len(y) + 1, 3)
    return sp.csr_array(parts, shape=(len(y), n_classes))


def run(X: Any, y: np.ndarray, method: str, n_classes: int, in_memory: int) -> dict[str, Any]:
    """One fit of one epoch, and what it took."""
    import torch

    from mogd import PartialLabelClassifier

    torch.set_num_threads(1)
    clean_y = labels(N_CLEAN, n_classes)
    clean = {"X_val": block(clean_y, -1 % 2**31, X.shape[1], n_classes), "y_val": clean_y}
    model = PartialLabelClassifier(method, epochs=1, batch_size=BATCH, lr=0.5, random_state=0, n_threads=1)
    began = time.process_time()
    watch = _Clock()
    model.set_params(callbacks=["auto", watch])
    model.fit(X, candidate_sets(y, n_classes), **clean)
    spent = time.process_time() - began
    resolved = model.disambiguate().label
    predicted = model.predict(X[: 10 * BLOCK] if isinstance(X, np.ndarray) and not isinstance(X, np.memmap) else X)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "method": method,
        "rows": len(y),
        "classes": n_classes,
        "fit_cpu_s": round(spent, 1),
        "epoch_cpu_s": round(watch.epoch, 1),
        "peak_mib": round(peak),
        "beyond_x_mib": round(peak - in_memory / 2**20),
        "resolved": round(float(np.mean(resolved == y)), 4),
        "predicted": round(float(np.mean(predicted == y[: len(predicted)])), 4),
    }


def _Clock() -> Any:
    from mogd import Callback

    class Clock(Callback):
        observer = True

        def before_training(self, run: Any) -> None:
            self.began = time.process_time()

        def on_epoch_end(self, run: Any, entry: dict[str, Any]) -> None:
            self.epoch = time.process_time() - self.began

    return Clock()


def in_memory(method: str, n_rows: int, n_classes: int) -> dict[str, Any]:
    y = labels(n_rows, n_classes)
    X = np.empty((n_rows, N_FEATURES), dtype=np.float32)
    for first in range(0, n_rows, BLOCK):
        X[first : first + BLOCK] = block(y[first : first + BLOCK], first, N_FEATURES, n_classes)
    found = run(X, y, method, n_classes, X.nbytes)
    return found | {"plain_epoch_cpu_s": round(plain_epoch(X, y, n_classes), 1)}


def plain_epoch(X: np.ndarray, y: np.ndarray, n_classes: int) -> float:
    """Processor seconds of an epoch of an ordinary linear model on the true labels: the logits and their gradient."""
    import torch

    net = torch.nn.Linear(X.shape[1], n_classes)
    optimizer = torch.optim.SGD(net.parameters(), 0.5, 0.9, fused=True)
    x, target = torch.from_numpy(X), torch.from_numpy(y)
    began = time.process_time()
    for rows in torch.randperm(len(x)).split(BATCH):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[rows]), target[rows]).backward()
        optimizer.step()
    return time.process_time() - began


def from_disk(kind: str, folder: Path, method: str, n_classes: int) -> dict[str, Any]:
    y = labels(int((folder / "rows").read_text()), n_classes)
    if kind == "mapped":
        X: Any = np.load(folder / "x.npy", mmap_mode="r")
    else:
        from mogd import open_rows

        X = open_rows(folder / "parquet")
    return {"from": kind, "gib": round(len(y) * WIDE * 4 / 2**30, 2)} | run(X, y, method, n_classes, 0)


def write_table(kind: str, folder: Path, gib: float, n_classes: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    n_rows = int(gib * 2**30 / (4 * WIDE))
    y = labels(n_rows, n_classes)
    (folder / "rows").write_text(str(n_rows))
    parts = ((first, block(y[first : first + BLOCK], first, WIDE, n_classes)) for first in range(0, n_rows, BLOCK))
    if kind == "mapped":
        X = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.float32, shape=(n_rows, WIDE))
        for first, rows in parts:
            X[first : first + len(rows)] = rows
        X.flush()
        return
    (folder / "parquet").mkdir()
    names = [f"f{k}" for k in range(WIDE)]
    for first, rows in parts:
        table = pa.table([pa.array(column) for column in np.ascontiguousarray(rows.T)], names=names)
        pq.write_table(table, folder / "parquet" / f"{first:010}.parquet", compression="none", use_dictionary=False)


def child(*words: Any) -> dict[str, Any]:
    """One run in a fresh process."""
    command = [sys.executable, __file__, "one", *map(str, words)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def show(found: dict[str, Any], file: Path | None) -> None:
    print("  ".join(f"{key} {value}" for key, value in found.items()), flush=True)
    if file is not None:
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(found) + "\n")


def main() -> None:
    if sys.argv[1:2] == ["one"]:
        kind, method, *rest = sys.argv[2:]
        found = in_memory(method, *map(int, rest)) if kind == "memory" else from_disk(kind, Path(rest[0]), method, 100)
        print(json.dumps(found))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("rows", "growth", "disk"), default="rows")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.what == "rows":
        for method in asked.methods:
            show(child("memory", method, asked.rows, asked.classes), asked.json)
    elif asked.what == "growth":
        for n_rows, n_classes in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4)):
            show(child("memory", "cc", n_rows * asked.rows // 4, n_classes * asked.classes), asked.json)
    else:
        for kind in ("mapped", "parquet"):
            with tempfile.TemporaryDirectory() as folder:
                write_table(kind, Path(folder), asked.gib, 100)
                show(child(kind, "mogd", folder), asked.json)


if __name__ == "__main__":
    main()
