"""How often the comparison on training rows names the best: inside training folds (see `benchmarks.training_folds`).

python -m benchmarks.which_choice --datasets lost msrcv2 --repetitions 5 --out results/studies/which-choice.jsonl
python -m benchmarks.which_choice --table results/studies/which-choice.jsonl

Repetition r takes the training part of fold r % 5 under seed r and splits it again. The comparison sees its training
rows alone; then every option is fitted on all of them and scored on the split's test rows.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training_folds import inner_split
from mogd.choice import compare
from mogd.datasets import load

Row = dict[str, Any]


def judged(name: str, r: int) -> Row:
    """Estimates and test accuracies of every option in one repetition."""
    split = inner_split(load(name), r)
    clean = {"X_val": split.clean_X, "y_val": split.clean_y}
    found = compare(split.train.X, split.train.candidates, **clean, random_state=r)
    tested = {}
    for outcome in found.outcomes:
        model = outcome.option.estimator(r, unseen="keep").fit(split.train.X, split.train.candidates, **clean)
        tested[outcome.option.label] = float(model.score(split.test_X, split.test_y))
    estimates = {outcome.option.label: outcome.score for outcome in found.outcomes}
    seconds = sum(outcome.seconds for outcome in found.outcomes)
    rows = {"dataset": name, "repetition": r, "estimates": estimates, "tested": tested, "noise": found.noise}
    return rows | {"n_test": len(split.test_y), "seconds": round(seconds, 1)}


def summary(rows: Iterable[Row]) -> str:
    """A line for each set: what was chosen, what it lost against the best, and against always taking one option."""
    lines = ["| | n | chosen | best, or within its error | points below the best | below the best fixed option |"]
    lines.append("|---|---|---|---|---|---|")
    by_set: dict[str, list[Row]] = {}
    for row in rows:
        by_set.setdefault(row["dataset"], []).append(row)
    for name, own in by_set.items():
        labels = list(own[0]["tested"])
        tested = 100 * np.array([[row["tested"][label] for label in labels] for row in own])
        picks = [max(row["estimates"], key=row["estimates"].get) for row in own]
        got = tested[np.arange(len(own)), [labels.index(pick) for pick in picks]]
        below = tested.max(axis=1) - got
        error = 100 * np.array([np.sqrt(p * (1 - p) / row["n_test"]) for p, row in zip(got / 100, own, strict=True)])
        near = int((below <= error).sum())
        fixed = tested.mean(axis=0)
        counts = ", ".join(f"{pick} {picks.count(pick)}" for pick in sorted(set(picks), key=picks.count, reverse=True))
        against = f"{fixed.max() - got.mean():+.1f} ({labels[int(fixed.argmax())]})"
        lines.append(f"| {name} | {len(own)} | {counts} | {near} of {len(own)} | {below.mean():.1f} | {against} |")
        lines.append("| | | " + ", ".join(f"{k} {v:.1f}" for k, v in zip(labels, fixed, strict=True)) + " | | | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--datasets", nargs="+", default=["lost", "msrcv2", "birdsong"])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, help="append a line of JSON for each repetition that is not there yet")
    parser.add_argument("--table", type=Path, help="show the table of such a file, and compute nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    there = options.table or options.out
    rows = [json.loads(line) for line in there.read_text().splitlines()] if there and there.exists() else []
    done = {(row["dataset"], row["repetition"]) for row in rows}
    for name in [] if options.table else options.datasets:
        for r in range(options.repetitions):
            if (name, r) in done:
                continue
            rows.append(judged(name, r))
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    print(summary(rows))


if __name__ == "__main__":
    main()
