"""Records of an earlier commit beside those of now, paired run by run: did a change of the code change the figures?

    python -m benchmarks.before_after COMMIT real-world real-world-mlp

Only runs that were made again since are compared: a row for each table, data set and method that both have.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

import numpy as np

RESULTS = Path("results")


def by_cell(lines: Iterable[str]) -> dict[tuple[str, ...], dict[tuple[int, int], tuple[float, str]]]:
    """Accuracy in % and the commit of each run, by table, data set with its setting, and method."""
    found: dict[tuple[str, ...], dict[tuple[int, int], tuple[float, str]]] = {}
    for line in lines:
        record = json.loads(line)
        if record["error"] is None:
            data = ", ".join([record["dataset"], *(f"{name} = {value}" for name, value in record["setting"].items())])
            key = (record["panel"], data, record["label"])
            run = (record["repetition"], record["fold"])
            found.setdefault(key, {})[run] = (100 * record["metrics"]["accuracy"], record["commit"])
    return found


def compared(recipe: str, scale: str, commit: str) -> list[str]:
    file = RESULTS / f"{recipe}-{scale}.jsonl"
    old = subprocess.run(["git", "show", f"{commit}:{file}"], capture_output=True, text=True, check=True).stdout
    before, after = by_cell(old.splitlines()), by_cell(file.read_text().splitlines())
    rows = []
    for key in sorted(before.keys() & after.keys()):
        runs = [run for run, (_, made) in before[key].items() if run in after[key] and after[key][run][1] != made]
        if not runs:
            continue
        first, second = (np.array([side[key][run][0] for run in runs]) for side in (before, after))
        change = second - first
        error = f" ± {change.std(ddof=1) / len(runs) ** 0.5:.2f}" if len(runs) > 1 else ""
        figures = f"{first.mean():.2f} | {second.mean():.2f} | {change.mean():+.2f}{error} | {(change == 0).sum()}"
        rows.append(f"| {' | '.join(key)} | {len(runs)} | {figures} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("recipes", nargs="+")
    parser.add_argument("--scale", default="laptop")
    options = parser.parse_args()
    print("| table | data | method | runs | before | after | difference | equal |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for recipe in options.recipes:
        print("\n".join(compared(recipe, options.scale, options.commit)))


if __name__ == "__main__":
    main()
