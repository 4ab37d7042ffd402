"""Write docs/reliability.md from the records of its runs; the commands that make these records call it.

python tests/reliability.py                        the page
python tests/reliability.py --coverage FILE        and results/coverage.json, from what `coverage json` wrote
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
HEAD = """<!-- Generated from the records of its runs: change tests/reliability.py, not this page. -->
# Reliability

What was tried to break the library, what came of it, and the commands that try it again.

## Damaged files

`make fuzz` gives every reader of the library small genuine files with a few random changes, the same in every run, in
child processes that may take {limit} MB of memory more than the libraries themselves and 20 seconds for each file. A
reader passes when it reads the file or refuses it by `ValueError` or `FileNotFoundError`; the end of the process, a
hang and any other exception count as bad. MATLAB, Parquet and Feather files are first read without their guard; those
that end badly there are given to the library's own way, which reads them in a process apart and refuses what ends it.
Of archives and of models most checksums are made right again, so that what lies behind them is tried too.

| reader | tried | read | refused | of these by the process apart | bad | peak memory (MB) |
|---|---|---|---|---|---|---|
"""
AFTER_FUZZ = """
One reader or one input again: `python tests/fuzz.py csv --inputs 500`, `python tests/fuzz.py --show csv 17`. The
command for the table is `make fuzz`, about {minutes} minutes on two busy cores. Text models of
sentence-transformers are not among them: the package is in none of the project's environments.

What the default tests hold besides: a save that is killed at each of its renames leaves one whole model, and a reader
beside a writer sees one (`tests/test_saving.py`); the gate, tables, recipes, records and saved models keep what they
hold whatever it is (`tests/test_properties.py`).
"""
RESUME = """
## Kills

SIGKILL at {kills} random moments of training: **{same_bits} of {kills} runs resumed to the same bits**, {first} of them
killed before their first checkpoint and {writing} while one was being written. Methods: {methods}. Callbacks:
{callbacks}.

Command: `{command}`
"""
MUTANTS = """
## Changed code

`make mutants` changes the code and looks whether the tests notice: a random sample of the {total} mutants that mutmut
makes of `methods`, `callbacks`, `classical`, `candidates.py`, `training.py` and `saving.py`, each against the quickest
tests that run the changed line. Of {tried} tried so far **{killed} were killed ({share:.0%})**. It goes on where it was
broken off; it needs `make coverage` before it, which says which test runs which line.

| survivor | change | in a word |
|---|---|---|
"""
COVERAGE = """
## Lines and branches

`make coverage`: the default tests run **{branches:.1%} of the {n_branches} branches** and {lines:.1%} of the {n_lines}
lines of the package.

| file | branches |
|---|---|
"""
FEWEST = 10  # files with the lowest share that are shown


def page(found: dict[str, Any]) -> str:
    """The whole page, of the records by their names."""
    parts = [_fuzz(found["fuzz"]), _resume(found["reliability-resume"])]
    parts += [_mutants(found["mutants"])] if "mutants" in found else []
    parts += [_coverage(found["coverage"])] if "coverage" in found else []
    return "".join(parts)


def _fuzz(found: dict[str, Any]) -> str:
    rows = [
        f"| {reader['what']} | {reader['tried']} | {reader['accepted']} | {reader['refused']} | "
        f"{reader['caught_by_the_process_apart']} | {len(reader['bad'])} | {reader['peak_mb']} |\n"
        for reader in found["readers"].values()
    ]
    minutes = round(sum(reader["seconds"] for reader in found["readers"].values()) / 60)
    return HEAD.format(limit=found["limit_mb"]) + "".join(rows) + AFTER_FUZZ.format(minutes=minutes)


def _resume(found: dict[str, Any]) -> str:
    named = {name: ", ".join(found[name]) for name in ("methods", "callbacks")}
    first, writing = found["before_the_first_checkpoint"], found["while_writing_a_checkpoint"]
    own = {name: found[name] for name in ("kills", "same_bits", "command")}
    return RESUME.format(first=first, writing=writing, **own, **named)


def _mutants(found: dict[str, Any]) -> str:
    results = found["results"]
    outcomes = Counter(result["outcome"] for result in results.values())
    killed = sum(count for outcome, count in outcomes.items() if outcome.startswith("killed"))
    head = MUTANTS.format(total=found["mutants"], tried=len(results), killed=killed, share=killed / len(results))
    rows = [
        f"| `{result['file']}` | {_code(result['change'], '-')} → {_code(result['change'], '+')} | {result['word']} |\n"
        for result in results.values()
        if not result["outcome"].startswith("killed")
    ]
    return head + "".join(rows)


def _code(change: list[str], side: str) -> str:
    lines = [line[1:].strip() for line in change if line.startswith(side)]
    return f"`{' '.join(lines)}`".replace("|", "\\|") if lines else "nothing"


def _coverage(found: dict[str, Any]) -> str:
    files = sorted(found["files"].items(), key=lambda item: (item[1], item[0]))[:FEWEST]
    return COVERAGE.format(**found["totals"]) + "".join(f"| `{name}` | {share:.1%} |\n" for name, share in files)


def shortened(measured: dict[str, Any]) -> dict[str, Any]:
    """The shares, of what `coverage json` says."""
    totals = measured["totals"]
    files = {name: file["summary"] for name, file in measured["files"].items() if file["summary"]["num_branches"]}
    return {
        "totals": {
            "branches": totals["covered_branches"] / totals["num_branches"],
            "n_branches": totals["num_branches"],
            "lines": totals["covered_lines"] / totals["num_statements"],
            "n_lines": totals["num_statements"],
        },
        "files": {name: summary["covered_branches"] / summary["num_branches"] for name, summary in files.items()},
    }


def records() -> dict[str, Any]:
    names = ("fuzz", "reliability-resume", "mutants", "coverage")
    files = {name: RESULTS / f"{name}.json" for name in names}
    return {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.exists()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coverage", type=Path, metavar="FILE")
    given = parser.parse_args()
    if given.coverage:
        short = shortened(json.loads(given.coverage.read_text(encoding="utf-8")))
        (RESULTS / "coverage.json").write_text(json.dumps(short, indent=1) + "\n", encoding="utf-8")
    (ROOT / "docs" / "reliability.md").write_text(page(records()), encoding="utf-8")
