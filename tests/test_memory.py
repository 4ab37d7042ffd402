"""Freed memory is kept within the block and given back behind it, and what a network learns stays the same."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mogd
from mogd import memory

BLOCKS = 30
PAGES = BLOCKS * 48_000_000 // 4096
COUNT = f"""
import resource, torch
from mogd import memory

def page_faults(wanted):  # of {BLOCKS} blocks of 48 MB that come and go
    x = torch.ones(12_000_000)
    with memory.kept(wanted):
        for _ in range(10):  # the first ones find their places in the heap
            x * 2
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range({BLOCKS}):
            x * 2
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
"""


def in_a_new_process(*lines: str) -> list[int]:
    """What the lines print: the heap of a process that has run other tests has holes, in which blocks may wander."""
    command = [sys.executable, "-c", COUNT + "\n".join(lines)]
    return [int(word) for word in subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()]


def test_freed_blocks_are_used_again_within_the_block_only() -> None:
    if memory._glibc() is None:
        pytest.skip("the C library is not glibc")
    before, kept = in_a_new_process("print(page_faults(False), page_faults(True))")
    assert before > 0.9 * PAGES
    assert kept < 0.1 * PAGES


def test_what_was_kept_goes_back_to_the_system() -> None:
    """Counted in resident pages: where the freed block lies in the heap differs from process to process."""
    if memory._glibc() is None or not Path("/proc/self/statm").exists():
        pytest.skip("the C library is not glibc, or there is no /proc")
    lines = (
        "resident = lambda: int(open('/proc/self/statm').read().split()[1])",
        "x = torch.ones(12_000_000)",
        "x * 2",
        "before = resident()",
        "with memory.kept():",
        "    x * 2",
        "    within = resident()",
        "print(before, within, resident())",
    )
    before, within, after = in_a_new_process(*lines)
    block = PAGES / BLOCKS
    assert within - before > 0.9 * block
    assert after - before < 0.1 * block


def test_it_is_given_back_after_an_error() -> None:
    if memory._glibc() is None:
        pytest.skip("the C library is not glibc")
    lines = ("try:", "    with memory.kept():", "        raise KeyError", "except KeyError:", "    pass")
    (after,) = in_a_new_process(*lines, "print(page_faults(False))")
    assert after > 0.9 * PAGES


def test_elsewhere_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    with memory.kept():
        pass


def test_no_bit_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (60, 3, 12, 12), dtype=np.uint8), rng.integers(0, 3, 60)
    params = {"backbone": "airbench", "backbone_params": {"width": 0.1}, "epochs": 2, "batch_size": 20}
    kept = mogd.make("cc", **params, random_state=0).fit(X, y).predict_proba(X)
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    np.testing.assert_array_equal(mogd.make("cc", **params, random_state=0).fit(X, y).predict_proba(X), kept)
