"""Damaged files for every reader, by the thousand: `make fuzz`.

    python tests/fuzz.py                      2,000 inputs for each reader
    python tests/fuzz.py csv model --inputs 500
    python tests/fuzz.py --show csv 17        one input again, here, with its traceback

An input is a small genuine file with a few random changes, the same in every run. A child process reads them under a
limit of memory and of time for each. A reader passes when it returns, or refuses by one of the errors in `ALLOWED`.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from random import Random
from typing import Any

from fuzz_formats import MORE_READERS
from fuzz_readers import READERS as FIRST_READERS
from fuzz_readers import Files, Reader

READERS = [*FIRST_READERS, *MORE_READERS]

ALLOWED = (ValueError, FileNotFoundError)
MEMORY = 4 << 30  # bytes of address space above what the libraries take by themselves
SECONDS = 20  # for one input
JUNK = [None, True, -1, 0, 1e308, 2**63, "", "x" * 3000, "\0", "../../etc/passwd", [], {}, [[]], {"a": []}, [1] * 50]
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63)


def mutate(data: bytes, rng: Random) -> bytes:
    """One to four random changes of the bytes; of values or lines, most of the time, when they are JSON or text."""
    if (data[:1] == b"{" or is_json_list(data)) and rng.random() < 0.7:
        changed = [mutate_json(line, rng) if rng.random() < 0.5 else line for line in lines_of(data)]
        return b"\n".join(changed) + b"\n"
    if b"\n" in data and data.isascii() and rng.random() < 0.7:
        return mutate_text(data.decode(), rng).encode()
    content = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not content:
            break
        at, length = rng.randrange(len(content)), min(len(content), 1 << rng.randrange(8))
        how = rng.randrange(8)
        if how == 0:
            content[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            content[at] = rng.randrange(256)
        elif how == 2:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice(NUMBERS) % (1 << 8 * width)
            content[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
        elif how == 3:
            del content[at : at + length]
        elif how == 4:
            content[at:at] = content[at : at + length]
        elif how == 5:
            content[at:at] = rng.randbytes(length)
        elif how == 6:
            other = rng.randrange(len(content))
            content[at : at + length] = content[other : other + length]
        else:
            del content[at:]
    return bytes(content)


def is_json_list(data: bytes) -> bool:
    try:
        return data[:1] == b"[" and isinstance(json.loads(data), list)
    except ValueError:
        return False


def lines_of(data: bytes) -> list[bytes]:
    """The records of a JSON-lines file, or the one document of a JSON file."""
    lines = data.splitlines()
    return lines if all(line[:1] == b"{" and line[-1:] == b"}" for line in lines) else [data]


def mutate_json(text: bytes, rng: Random) -> bytes:
    """The document with one value exchanged, dropped or renamed."""
    document = json.loads(text)
    place: Any = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = rng.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.7:
            place = place[key]
            continue
        if rng.random() < 0.2:
            del place[key]
        elif isinstance(place, dict) and rng.random() < 0.2:
            place[str(rng.choice(JUNK))] = place.pop(key)
        else:
            place[key] = rng.choice(JUNK)
        break
    return json.dumps(document).encode()


def mutate_text(text: str, rng: Random) -> str:
    """A line dropped, doubled or moved, or one of its words exchanged."""
    lines = text.split("\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    how = rng.randrange(5)
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.insert(to, lines[at])
    elif how == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        words = re.split(r"([\s,;|=\[\]]+)", lines[at])
        words[rng.randrange(len(words))] = rng.choice([json.dumps(rng.choice(JUNK)), "nan", "-5", "1e999", "'", "é"])
        lines[at] = "".join(words)
    return "\n".join(lines)


def make_input(reader: Reader, seeds: list[Files], number: int) -> Files:
    rng = Random(f"{reader.name} {number}")
    files = dict(rng.choice(seeds))
    name = rng.choice(sorted(files))
    files[name] = mutate(files[name], rng)
    return reader.finish(files, rng)


def lay_out(files: Files, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def child(reader: Reader, folder: Path, numbers: list[int], guarded: bool) -> None:
    """Read the inputs one after the other and print what came of each; an input may end the process."""
    warnings.simplefilter("ignore")
    seeds = [as_files(seed) for seed in json.loads((folder / "seeds.json").read_text())]
    read = reader.guarded if guarded and reader.guarded else reader.read
    lay_out(reader.finish(dict(seeds[0]), Random(0)), folder / "input")
    read(folder / "input")  # everything is imported before the limit is set
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in numbers:
        lay_out(make_input(reader, seeds, number), folder / "input")
        signal.alarm(SECONDS)  # nobody handles it: a reader that hangs ends here
        try:
            read(folder / "input")
            outcome = "accepted"
        except BaseException as error:
            outcome = "refused" if type(error) in ALLOWED else f"{type(error).__module__}.{type(error).__name__}"
        signal.alarm(0)
        print(json.dumps([number, outcome]), flush=True)
    print(json.dumps([-1, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024]), flush=True)


def as_files(seed: dict[str, str]) -> Files:
    return {name: bytes.fromhex(content) for name, content in seed.items()}


def run_children(reader: Reader, folder: Path, numbers: list[int], guarded: bool) -> tuple[dict[int, str], int]:
    """What came of each input, and the most memory in MB; a child that died is followed by another."""
    outcomes: dict[int, str] = {}
    peak = 0
    while left := [number for number in numbers if number not in outcomes]:
        command = [sys.executable, __file__, "--child", reader.name, str(folder), "1" if guarded else "0"]
        text = json.dumps(left)
        done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        outcomes |= {number: outcome for number, outcome in answers if number >= 0}
        peak = max([peak, *(outcome for number, outcome in answers if number < 0)])
        missing = [number for number in left if number not in outcomes]
        if missing:
            how = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
            if not answers and len(missing) == len(left) and not outcomes:
                raise RuntimeError(f"{reader.name}: the child ended by {how} before its first input")
            outcomes[missing[0]] = "hang" if how == "SIGALRM" else f"death by {how}"
    return outcomes, peak


def fuzz(reader: Reader, inputs: int, seconds: float) -> dict[str, Any]:
    """All inputs of one reader, in parts, until the time is over."""
    start = time.monotonic()
    outcomes: dict[int, str] = {}
    peak = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seeds = reader.seeds(folder)
        (folder / "seeds.json").write_text(json.dumps([{k: v.hex() for k, v in seed.items()} for seed in seeds]))
        while len(outcomes) < inputs and time.monotonic() - start < seconds:
            part = list(range(len(outcomes), min(inputs, len(outcomes) + 500)))
            found, used = run_children(reader, folder, part, guarded=False)
            outcomes |= found
            peak = max(peak, used)
        bad = [number for number, outcome in outcomes.items() if outcome not in ("accepted", "refused")]
        apart = 0
        if bad and reader.guarded:
            found, used = run_children(reader, folder, bad, guarded=True)
            outcomes |= found
            apart = len(bad)
    counts = list(outcomes.values())
    return {
        "what": reader.what,
        "tried": len(outcomes),
        "accepted": counts.count("accepted"),
        "refused": counts.count("refused"),
        "caught_by_the_process_apart": apart,
        "bad": {str(n): outcome for n, outcome in outcomes.items() if outcome not in ("accepted", "refused")},
        "peak_mb": peak,
        "seconds": round(time.monotonic() - start),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help="all by default")
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=600, help="for each reader")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--show", nargs=2, metavar=("READER", "NUMBER"))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    known = {reader.name: reader for reader in READERS}
    if given.child:
        name, folder, guarded = given.child
        child(known[name], Path(folder), json.load(sys.stdin), guarded == "1")
    elif given.show:
        reader, number = known[given.show[0]], int(given.show[1])
        with tempfile.TemporaryDirectory() as scratch:
            seeds = reader.seeds(Path(scratch))
            lay_out(make_input(reader, seeds, number), Path(scratch) / "input")
            reader.read(Path(scratch) / "input")
    else:
        results = {}
        for name in given.readers or known:
            results[name] = fuzz(known[name], given.inputs, given.seconds)
            shown = {key: value for key, value in results[name].items() if key not in ("what", "bad")}
            print(name, shown, *results[name]["bad"].items(), flush=True)
        if given.out:
            before = json.loads(given.out.read_text())["readers"] if given.out.exists() else {}
            kept = {name: (before | results)[name] for name in known if name in before | results}
            given.out.write_text(json.dumps({"limit_mb": MEMORY >> 20, "readers": kept}, indent=1) + "\n")
        if any(result["bad"] for result in results.values()):
            sys.exit("some inputs ended otherwise than by being read or refused")


if __name__ == "__main__":
    main()
