"""The page of `make bench` is what its file says, and the plain implementations that it compares with are right."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks import performance_page, plain
from benchmarks.performance import rows
from mogd.algorithms import make


def test_the_page_shows_the_figures_of_the_file(tmp_path: Path) -> None:
    steps = {"plain": 0.001, "mogd, default": 0.002}
    curve = {"sizes": [10, 20], "seconds": [1.0, 2.0], "MiB": [3.0, 3.0], "exponents": [1.0, 0.0]}
    seconds = {"processor": 2.0, "clock": 3.0}
    late = {"processor": None, "clock": None}
    found = {
        "quick": True,
        "commit": "abcdef0123",
        "host": {"system": "Linux", "cpus": 2},
        "versions": {"torch": "2"},
        "steps": {"linear": steps},
        "plain": {"IPAL, a fit": {"ours": 1.0, "plain": 4.0}},
        "growth": {"n": curve},
        "threads": {"idle, auto": seconds, "busy, auto": {"processor": 3.0, "clock": 9.0}, "busy, 2": late},
        "predict": {"linear": 1000.0},
    }
    performance_page.write(found, tmp_path)
    page = (tmp_path / "performance.md").read_text(encoding="utf-8")
    assert "| linear 784→10, b = 256 | 1.00 | 2.00 |" in page
    assert "| IPAL, a fit | 1.000 | 4.000 | 0.25 |" in page
    assert "by default: 1.50" in page
    assert "| busy, 2 | given up | given up |" in page
    for name in ("n-seconds.svg", "n-mib.svg"):
        assert f"(performance/{name})" in page
        assert "var(" not in (tmp_path / "performance" / name).read_text(encoding="utf-8")


def test_the_plain_ipal_resolves_rows_as_ours_does() -> None:
    X, candidates, _, _ = rows(300, 20, 1)
    ours, other = make("ipal").fit(X, candidates).confidence_, plain.ipal(X, candidates)
    assert np.array_equal(ours.argmax(axis=1), other.argmax(axis=1))
