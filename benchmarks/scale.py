"""Peak memory and processor time of fits on many rows and classes, and of fits from the disk, each in a fresh process.

    python benchmarks/scale.py                  # a million rows, a thousand classes: mogd, cc, proden, pce
    python benchmarks/scale.py growth           # cc at n, 2n, 4n and at K, 2K, 4K, beside a plain loop of the logits
    python benchmarks/scale.py disk             # ten million rows (10.24 GB), memory-mapped and as Parquet files
    python benchmarks/scale.py shell            # the same Parquet files by mogd fit, predict and disambiguate

The data are generated: 64 features (256 from the disk, and ten classes), three candidates a row, 2,000 clean rows; the
fits have one epoch. The peak is what the operating system counted for the process; "beyond X" is it less the size of X
in memory. Processor time does not count other processes on the machine. A fit from the disk may not have more than
2 GiB of its own memory: the system refuses more. In the shell there is no such limit, and the table also has ids,
candidates as lists of names and a column of clean labels. --folder says where its table is written, and --json adds a
line for every run to a file.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

N_FEATURES, N_CLEAN, BLOCK = 64, 2000, 20_000
ROWS, CLASSES, BATCH = 1_000_000, 1_000, 1_000
DISK_ROWS, DISK_FEATURES, DISK_CLASSES = 10_000_000, 256, 10  # 10.24 GB
OWN_BYTES = 2**31  # a fit from the disk may allocate
METHODS = ("mogd", "cc", "proden", "pce")


def labels(n_rows: int, n_classes: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, n_classes, n_rows).astype(np.int32)


def block(y: np.ndarray, first: int, n_features: int, n_classes: int) -> np.ndarray:
    """Some rows of the table, those from `first` on."""
    centres = np.random.default_rng(7).standard_normal((n_classes, n_features), dtype=np.float32)
    noise = np.random.default_rng([3, first]).standard_normal((len(y), n_features), dtype=np.float32)
    return centres[y] + noise


def candidate_sets(y: np.ndarray, n_classes: int) -> sp.csr_array:
    """The true class and two others of each row."""
    rng = np.random.default_rng(2)
    columns = np.empty((len(y), 3), dtype=np.int32)
    for first in range(0, len(y), BLOCK):
        part = y[first : first + BLOCK, None]
        step = rng.integers(1, n_classes // 2, (len(part), 2)).cumsum(axis=1)  # two different ones, below a full round
        columns[first : first + BLOCK] = np.sort(np.hstack([part, (part + step) % n_classes]), axis=1)
    parts = np.ones(3 * len(y), dtype=bool), columns.ravel(), np.arange(0, 3 * len(y) + 1, 3, dtype=np.int32)
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
    peak = peak_mib()
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


def peak_mib() -> float:
    """Of this process alone: getrusage begins with the memory of the process that started it."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


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
    x, target = torch.from_numpy(X), torch.from_numpy(y).long()
    began = time.process_time()
    for rows in torch.randperm(len(x)).split(BATCH):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x[rows]), target[rows]).backward()
        optimizer.step()
    return time.process_time() - began


def from_disk(kind: str, folder: Path, method: str) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_DATA, (OWN_BYTES, OWN_BYTES))
    y = labels(int((folder / "rows").read_text()), DISK_CLASSES)
    if kind == "mapped":
        X: Any = np.load(folder / "x.npy", mmap_mode="r")
    else:
        from mogd import open_rows

        X = open_rows(folder / "parquet")
    return {"from": kind, "gb": round(len(y) * X.shape[1] * 4 / 1e9, 2)} | run(X, y, method, DISK_CLASSES, 0)


def in_shell(*words: str) -> dict[str, Any]:
    """What one command of the shell took, in this process and in those that it started."""
    from mogd.cli import main as shell

    sys.argv = ["mogd", *words]
    with redirect_stdout(sys.stderr):
        try:
            shell()
        except SystemExit as ended:
            if ended.code:
                raise
    of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "command": words[0],
        "cpu_s": round(time.process_time() + of_children.ru_utime + of_children.ru_stime, 1),
        "peak_mib": round(peak_mib()),
        "children_mib": round(of_children.ru_maxrss / 1024),
    }


def shell_commands(folder: Path) -> Iterator[tuple[str, ...]]:
    table, model = str(folder / "parquet"), str(folder / "model")
    how = ("--method", "mogd", "--backbone", "linear", "--epochs", "1", "--param", f"batch_size={BATCH}")
    yield ("fit", table, "--clean", "clean", *how, "--param", "n_threads=1", "--quiet", "--out", model)
    yield ("predict", model, table, "--out", str(folder / "predicted.parquet"))
    yield ("disambiguate", model, "--out", str(folder / "resolved.csv"))


def label_columns(y: np.ndarray, first: int, n_rows: int) -> dict[str, Any]:
    """Ids, candidates as lists of names, and the clean labels of some rows; `y` is that of the rows from `first` on."""
    import pyarrow as pa

    names = pa.array([f"class {k}" for k in range(DISK_CLASSES)])
    columns = pa.array(candidate_sets(y, DISK_CLASSES).indices)
    starts = pa.array(np.arange(0, 3 * len(y) + 1, 3, dtype=np.int32))
    rows = np.arange(first, first + len(y))
    clean = pa.array(y, mask=rows % (n_rows // N_CLEAN) != 0)
    return {
        "id": pa.array(rows),
        "labels": pa.ListArray.from_arrays(starts, names.take(columns)),
        "clean": names.take(clean),
    }


def write_table(
    kind: str, folder: Path, n_rows: int, n_features: int = DISK_FEATURES, *, labelled: bool = False
) -> None:
    y = labels(n_rows, DISK_CLASSES)
    (folder / "rows").write_text(str(n_rows))
    firsts = range(0, n_rows, BLOCK)
    parts = ((first, block(y[first : first + BLOCK], first, n_features, DISK_CLASSES)) for first in firsts)
    if kind == "mapped":
        with (folder / "x.npy").open("wb") as file:
            head = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, n_features)}
            np.lib.format.write_array_header_1_0(file, head)
            for _, rows in parts:
                rows.tofile(file)
        return
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "parquet").mkdir()
    names = [f"f{k}" for k in range(n_features)]
    for first, rows in parts:
        table = pa.table([pa.array(column) for column in np.ascontiguousarray(rows.T)], names=names)
        for name, column in label_columns(y[first : first + BLOCK], first, n_rows).items() if labelled else ():
            table = table.append_column(name, column)
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
    if sys.argv[1:3] == ["one", "shell"]:
        print(json.dumps(in_shell(*sys.argv[3:])))
        return
    if sys.argv[1:2] == ["one"]:
        kind, method, *rest = sys.argv[2:]
        found = in_memory(method, *map(int, rest)) if kind == "memory" else from_disk(kind, Path(rest[0]), method)
        print(json.dumps(found))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("rows", "growth", "disk", "shell"), default="rows")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    n_rows = asked.rows or (DISK_ROWS if asked.what in ("disk", "shell") else ROWS)
    if asked.what == "rows":
        for method in asked.methods or METHODS:
            show(child("memory", method, n_rows, asked.classes), asked.json)
    elif asked.what == "growth":
        for times, n_classes in ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4)):
            show(child("memory", "cc", times * n_rows // 4, n_classes * asked.classes), asked.json)
    elif asked.what == "shell":
        with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
            write_table("parquet", Path(folder), n_rows, labelled=True)
            for words in shell_commands(Path(folder)):
                show(child("shell", *words) | {"rows": n_rows}, asked.json)
    else:
        for kind in ("mapped", "parquet"):
            with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
                write_table(kind, Path(folder), n_rows)
                for method in asked.methods or ("mogd",):
                    show(child(kind, method, folder), asked.json)


if __name__ == "__main__":
    main()
