"""Does `next_to_label` choose better rows than chance? Accuracy over the number of clean rows, paired over seeds.

    python benchmarks/next_rows.py

For each seed a fifth of the rows is the test fold; of the others 10, 20, 50, 100 are labelled, each batch chosen with
the model fitted on the batches before it. Both ways begin with no label at all. The rule was developed on splits with
seeds from 77 on; the seeds here are others.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from mogd import Candidates, make, next_to_label
from mogd.candidates import as_labels
from mogd.datasets import load
from mogd.datasets.frames import read_frame
from mogd.labeling.features import features
from mogd.labeling.rows import read_rows

SIZES = (10, 20, 50, 100)
DATASETS = ("lost", "msrcv2", "birdsong", "digits", "tweets")
WAYS = ("random", "chosen")
MEASURES = ("test rows", "rows of the table")


def rows_of(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, candidate matrix and true classes."""
    if name == "tweets":
        path = next(Path(folder, "tweets.csv") for folder in os.environ["MOGD_DATA"].split(os.pathsep))
        rows = read_rows(path, annotators=["rater1", "rater2", "rater3"])
        truth = as_labels(read_frame(path)["truth"].to_list(), rows.candidates.classes, name="truth")
        return features(rows), rows.candidates.matrix, truth
    if name != "digits":
        data = load(name)
        return data.X, data.candidates.matrix, data.known_y()
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    matrix = rng.random((len(y), 10)) < 0.3
    every, twin = np.arange(len(y)), y ^ 1  # 0 and 1, 2 and 3, …: two digits that are named together nine times in ten
    matrix[every, twin] |= rng.random(len(y)) < 0.9
    matrix[every, y] = True
    return X, matrix, y


def curve(name: str, way: str, seed: int, epochs: int) -> list[tuple[float, float]]:
    """For each size, the accuracy on the test rows and the share of the table whose label is right (answers are)."""
    X, matrix, y = rows_of(name, seed)
    classes = np.arange(matrix.shape[1])
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(X))
    test, train = order[: len(X) // 5], order[len(X) // 5 :]
    X_test, y_test, X, matrix, y = X[test], y[test], X[train], matrix[train].copy(), y[train]
    by_chance, labelled, belief, found = rng.permutation(len(X)), np.empty(0, dtype=np.int64), None, []
    for size in SIZES:
        if way == "random":
            labelled = by_chance[:size]
        else:
            more = size - len(labelled)
            chosen = next_to_label(
                X, Candidates(matrix, classes), n=more, confidence=belief, labelled=labelled, random_state=seed
            )
            labelled = np.concatenate([labelled, chosen.row])
        matrix[labelled] = np.eye(len(classes), dtype=bool)[y[labelled]]
        rest = np.delete(np.arange(len(X)), labelled)
        model = make("mogd", epochs=epochs, scale="standard", unseen="keep", classes=classes, random_state=seed)
        model.fit(X[rest], Candidates(matrix, classes)[rest], X_val=X[labelled], y_val=y[labelled])
        belief = matrix.astype(float)
        belief[rest] = model.confidence_
        found.append((model.score(X_test, y_test), float((belief.argmax(axis=1) == y).mean())))
    return found


def area(accuracy: np.ndarray) -> np.ndarray:
    """The area under the accuracies (last axis: sizes), as a mean accuracy in points."""
    return 100 * np.trapezoid(accuracy, SIZES, axis=-1) / (SIZES[-1] - SIZES[0])


def table(records: list[dict]) -> Iterator[str]:
    """The Markdown lines of what the records show."""
    sizes = " | ".join(f"{size} rows" for size in SIZES)
    yield f"| | | | {sizes} | area | chosen − random |"
    yield "|---" * (5 + len(SIZES)) + "|"
    for name in dict.fromkeys(record["dataset"] for record in records):
        runs = {w: np.array([r["curve"] for r in records if (r["dataset"], r["way"]) == (name, w)]) for w in WAYS}
        n_seeds = len(runs["chosen"])
        for m, measure in enumerate(MEASURES):
            gain = area(runs["chosen"][:, :, m]) - area(runs["random"][:n_seeds, :, m])
            error = gain.std(ddof=1) / np.sqrt(n_seeds)
            for way in WAYS:
                means = " | ".join(f"{100 * a:.1f}" for a in runs[way][:, :, m].mean(axis=0))
                gap = f"**{gain.mean():+.2f} ± {error:.2f}**" if way == "chosen" else ""
                yield f"| {name} | {measure} | {way} | {means} | {area(runs[way][:, :, m]).mean():.2f} | {gap} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument(
        "--records", type=Path, help="Keep every run here as a JSON line; those there are not repeated."
    )
    asked = parser.parse_args()
    records = []
    if asked.records and asked.records.exists():
        records = [json.loads(line) for line in asked.records.read_text().splitlines()]
    for name in asked.datasets:
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            for way in WAYS:
                key = {"dataset": name, "seed": seed, "way": way, "epochs": asked.epochs}
                if any(key.items() <= record.items() for record in records):
                    continue
                records.append(key | {"curve": curve(name, way, seed, asked.epochs)})
                if asked.records:
                    with asked.records.open("a") as file:
                        print(json.dumps(records[-1]), file=file)
    print(*table(records), sep="\n")


if __name__ == "__main__":
    main()
