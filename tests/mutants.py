"""Do the tests notice when the code is changed? `make mutants`, once `make coverage` has run.

    python tests/mutants.py                   a sample of 320; one that was broken off goes on
    python tests/mutants.py --again           the survivors again, after new tests
    python tests/mutants.py --show NAME       one change, and the tests that are given to it

mutmut writes the folder `mutants`, a copy of the package in which every function has all its mutants beside it, and
says which of them is active. Its own loop gives a mutant every test that reaches the function; nearly all tests fit a
model and so reach the trainer, which would take days. Here a sample is tried, the same in every run: each mutant in a
process of its own, forked from one that has imported everything, against the quickest tests that run the changed line,
up to a sum of `BUDGET` seconds and until the first one fails. A test counts if it passes without a mutant.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import resource
import shutil
import signal
import sys
import time
import xml.etree.ElementTree as ElementTree
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from coverage import CoverageData
from mutmut.__main__ import create_mutants
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.utils.file_utils import copy_also_copy_files, copy_src_dir, walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key

ROOT = Path(__file__).parents[1]
OUT = ROOT / "results" / "mutants.json"
COVERAGE, TIMES = ROOT / ".coverage", ROOT / ".junit.xml"
SAMPLE = 320
BUDGET = 60.0  # seconds of tests, as they took under coverage
MOST_CPU = 180  # seconds of a mutant that does not end
MOST_IDLE = 15  # seconds without work: a thread pool that a fork cut off waits for ever, whatever the code is
ENDLESS = (signal.SIGXCPU, signal.SIGKILL)
SURVIVING = ("survived", "no test runs it")
Result = dict[str, Any]


def generate() -> dict[str, str]:
    """Write the mutants anew, where a source has changed; their names and files."""
    mark = Path("mutants", "made-of.txt")
    sources = sorted([*Path("mogd").rglob("*.py"), *Path("tests").glob("*.py"), Path("pyproject.toml")])
    made_of = "\n".join(digest(str(file)) for file in sources)
    if not mark.exists() or mark.read_text() != made_of:
        shutil.rmtree("mutants", ignore_errors=True)
        Path("mutants").mkdir()
        copy_src_dir()
        copy_also_copy_files()
        create_mutants(1)
        mark.write_text(made_of)
    found = {}
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        found |= dict.fromkeys(data.exit_code_by_key, str(path))
    return found


def sampled(names: list[str], size: int) -> list[str]:
    """A random sample that stays nearly the same when mutants come and go."""
    return sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())[:size]


@cache
def durations() -> dict[str, float]:
    """Seconds of each test, by its id."""
    cases = ElementTree.parse(TIMES).getroot().iter("testcase")
    return {f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": _seconds(case) for case in cases}


def _seconds(case: ElementTree.Element) -> float:
    return float(case.get("time", "nan"))


@cache
def tests_by_line(file: str) -> dict[int, list[str]]:
    data = CoverageData(str(COVERAGE))
    data.read()
    (measured,) = [name for name in data.measured_files() if Path(name).as_posix().endswith(file)]
    return data.contexts_by_lineno(measured)


def lines_of(name: str, file: str, diff: str) -> list[int]:
    """Where the changed statement begins; all of the function's when its text is not found in it."""
    function, owner = orig_function_and_class_names_from_key(name)
    body: Any = ast.parse(Path(file).read_text(encoding="utf-8")).body
    if owner is not None:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner).body
    place = next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == function)
    whole = range(place.lineno, (place.end_lineno or place.lineno) + 1)
    source = Path(file).read_text(encoding="utf-8").splitlines()
    removed = {line[1:].strip() for line in diff.splitlines() if re.match(r"-(?!--)", line)}
    changed = [number for number in whole if source[number - 1].strip() in removed] or list(whole)
    if max(changed) < place.body[0].lineno:  # the signature, which no test runs: those that call it do
        changed = list(whole)
    spans = [range(node.lineno, (node.end_lineno or 0) + 1) for node in ast.walk(place) if isinstance(node, ast.stmt)]
    # coverage knows a statement by its first line
    return sorted({min((span for span in spans if number in span), key=len)[0] for number in changed})


def tests_for(name: str, file: str, diff: str) -> list[str]:
    known, by_line = durations(), tests_by_line(file)
    running = {test for line in lines_of(name, file, diff) for test in by_line.get(line, ()) if test in known}
    chosen, spent = [], 0.0
    for test in sorted(running, key=lambda test: (known[test], test)):
        spent += known[test]
        if chosen and spent > BUDGET:
            break
        chosen.append(test)
    return chosen


class Trials:
    """A pytest session that collects the tests once and then, in place of running them, forks for every mutant."""

    def __init__(self, mutants: dict[str, str], total: int, results: dict[str, Result], seconds: float) -> None:
        self.mutants, self.total, self.results, self.seconds = mutants, total, results, seconds
        self.failed = ""
        self.cut_off: set[str] = set()  # files whose tests wait for threads that a fork does not copy

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = {item.nodeid: item for item in session.items}
        end = time.monotonic() + self.seconds
        for name, file in self.mutants.items():
            if time.monotonic() > end:
                break
            self.results[name] = self.judge(name, file)
            shown = f"{len(self.results)}: {self.results[name]['outcome']}, {name} {self.results[name]['by']}"
            print(shown, file=sys.__stderr__, flush=True)
            with chdir(ROOT):
                write(self.total, self.results)
        return True

    def judge(self, name: str, file: str) -> Result:
        with chdir(ROOT):
            diff = get_diff_for_mutant(name, path=Path(file))
            tests = [test for test in tests_for(name, file, diff) if test in self.items]
        tests = [test for test in tests if file_of(test) not in self.cut_off]
        outcome, by = "no test runs it", ""
        while tests:
            outcome, by = self.run(name, tests)
            alone = self.alone(by) if by else "survived"
            if alone == "survived":
                break
            if alone == "killed by its time":
                self.cut_off.add(file_of(by))
            # it fails here whatever the code is
            tests = [test for test in tests if test != by and file_of(test) not in self.cut_off]
            outcome, by = "no test runs it", ""
        changed = [line for line in diff.splitlines() if re.match(r"[-+](?![-+]{2})", line)]
        return {
            "file": file,
            "outcome": outcome,
            "by": by,
            "tests": len(tests),
            "change": changed,
            "code": digest(file),
        }

    @cache  # noqa: B019
    def alone(self, test: str) -> str:
        """What becomes of a test without a mutant, where the copy lies."""
        return self.run("", [test])[0]

    def run(self, mutant: str, tests: list[str]) -> tuple[str, str]:
        """What became of the tests with a mutant, in a process of its own, and the test that failed."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU, MOST_CPU))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            set_mutant_under_test(mutant)
            os._exit(self.child(writing, [self.items[test] for test in tests]))
        os.close(writing)
        status = ended(child)
        with os.fdopen(reading) as pipe:
            last = pipe.read().rpartition("\n")[2]  # the test that ran last
        if status is None:
            return "killed by its time", last
        if os.WIFSIGNALED(status):
            return ("killed by its time" if os.WTERMSIG(status) in ENDLESS else "killed by a crash"), ""
        return ("killed", last) if os.WEXITSTATUS(status) else ("survived", "")

    def child(self, writing: int, items: list[pytest.Item]) -> int:
        """Run the tests until one fails; an error beyond pytest's own notice is a failure of the mutant, too."""
        try:
            for item, following in zip(items, [*items[1:], None], strict=True):
                os.write(writing, f"\n{item.nodeid}".encode())
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed:
                    break
        except BaseException:
            return 2
        return 1 if self.failed else 0


def file_of(test: str) -> str:
    return test.partition("::")[0]


def ended(child: int) -> int | None:
    """How a process ended; None where it did nothing for a while and was ended."""
    worked, since = -1, time.monotonic()
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        if (work := sum(map(int, fields[11:15]))) != worked:  # its own ticks, and those of its children that ended
            worked, since = work, time.monotonic()
        if time.monotonic() - since > MOST_IDLE:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.02)


@cache
def digest(file: str) -> str:
    return hashlib.sha256((ROOT / file).read_bytes()).hexdigest()[:16]


def write(total: int, results: dict[str, Result]) -> None:
    words = {tuple(r["change"]): r["word"] for r in before().values() if r.get("word")}
    for result in results.values():
        if result["outcome"] in SURVIVING:
            result["word"] = words.get(tuple(result["change"]), "")
    OUT.write_text(json.dumps({"mutants": total, "results": results}, indent=1, ensure_ascii=False) + "\n", "utf-8")


def before() -> dict[str, Result]:
    return json.loads(OUT.read_text("utf-8"))["results"] if OUT.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=SAMPLE)
    parser.add_argument("--again", action="store_true", help="those that survived, once more")
    parser.add_argument("--seconds", type=float, default=3600, help="begin no other mutant after so long")
    parser.add_argument("--show", metavar="NAME")
    given = parser.parse_args()
    os.chdir(ROOT)
    names = generate()
    if given.show:
        diff = get_diff_for_mutant(given.show, path=Path(names[given.show]))
        print(diff, *tests_for(given.show, names[given.show], diff), sep="\n")
        return
    sample = sampled(list(names), given.size)
    known = before()
    results = {n: known[n] for n in sample if n in known and known[n]["code"] == digest(names[n])}
    if given.again:
        results = {n: result for n, result in results.items() if result["outcome"] not in SURVIVING}
    left = {name: names[name] for name in sample if name not in results}
    sys.path[:] = [place for place in sys.path if Path(place or ".").resolve() not in (ROOT, ROOT / "tests")]
    sys.path.insert(0, str(ROOT / "mutants"))
    set_mutant_under_test("")
    files = sorted({file_of(test) for test in durations()})
    with chdir(ROOT / "mutants"):
        session = ["-qq", "-p", "no:cacheprovider", "--rootdir=.", "--capture=fd", *files]
        pytest.main(session, plugins=[Trials(left, len(names), results, given.seconds)])
    outcomes = [result["outcome"] for result in results.values()]
    print(*(f"{outcomes.count(outcome)} {outcome}" for outcome in sorted(set(outcomes))), sep=", ")


if __name__ == "__main__":
    main()
