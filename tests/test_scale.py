"""Memory at scale, as the operating system counts it, by the benchmark that docs/scale.md is made from."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mogd import open_rows

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "scale.py"
LIMIT_MIB = 1536  # beyond X
DISK_LIMIT_MIB = 2048


@pytest.fixture(scope="module")
def scale() -> ModuleType:
    spec = importlib.util.spec_from_file_location("scale", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("method", ["mogd", "cc", "proden", "pce"])
def test_a_million_rows_of_a_thousand_classes(method: str, scale: ModuleType) -> None:
    found = scale.child("memory", method, scale.ROWS, scale.CLASSES)
    assert found["beyond_x_mib"] <= LIMIT_MIB
    assert found["resolved"] > 0.9


@pytest.mark.slow
def test_time_is_linear_in_rows_and_the_logits_are_what_grows_with_classes(scale: ModuleType) -> None:
    """Differences, so that what a fit costs once does not count; an ordinary linear model's work is the logits."""
    first, second, third = (scale.child("memory", "cc", n_rows, 1000) for n_rows in (100_000, 200_000, 400_000))
    added = second["epoch_cpu_s"] - first["epoch_cpu_s"], third["epoch_cpu_s"] - second["epoch_cpu_s"]
    assert 1.4 < added[1] / added[0] < 2.8
    few, many = (scale.child("memory", "cc", n_rows, 4000) for n_rows in (50_000, 100_000))
    narrow, wide = (
        (b["epoch_cpu_s"] - a["epoch_cpu_s"]) / (b["plain_epoch_cpu_s"] - a["plain_epoch_cpu_s"])
        for a, b in ((first, third), (few, many))
    )
    assert wide < 1.5 * narrow


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mapped", "parquet"])
def test_a_table_of_ten_gigabytes_trains_in_two_gibibytes(kind: str, scale: ModuleType, tmp_path: Path) -> None:
    scale.write_table(kind, tmp_path, scale.DISK_ROWS)
    found = scale.child(kind, "mogd", tmp_path)
    for file in tmp_path.rglob("*.*"):
        if file.is_file():
            file.unlink()
    assert found["peak_mib"] < DISK_LIMIT_MIB
    assert found["resolved"] > 0.95


@pytest.mark.parametrize("kind", ["mapped", "parquet"])
def test_the_table_on_the_disk_is_what_is_asked_for(kind: str, scale: ModuleType, tmp_path: Path) -> None:
    scale.write_table(kind, tmp_path, 25_000, 4)
    X = np.load(tmp_path / "x.npy", mmap_mode="r") if kind == "mapped" else open_rows(tmp_path / "parquet")
    assert X.shape == (25_000, 4)
    y = scale.labels(25_000, scale.DISK_CLASSES)
    assert np.array_equal(X[20_000:25_000], scale.block(y[20_000:], 20_000, 4, scale.DISK_CLASSES))


@pytest.mark.parametrize("n_classes", [6, 1000])
def test_the_generated_sets_hold_the_truth_and_two_others(n_classes: int, scale: ModuleType) -> None:
    y = scale.labels(500, n_classes)
    sets = scale.candidate_sets(y, n_classes)
    assert sets.has_canonical_format
    assert (sets.sum(axis=1) == 3).all()
    assert sets.toarray()[range(500), y].all()
