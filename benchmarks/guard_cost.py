"""What the numerical guard costs: linear steps of PCE and MoGD with it and without, taken in turns.

OMP_NUM_THREADS=1 python -m benchmarks.guard_cost
"""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

import numpy as np
import torch

from mogd import training
from mogd.algorithms import make_method
from mogd.methods.base import TrainingData
from mogd.nets import linear
from mogd.training import Settings

GUARDS = ("not waits and not math.isfinite(loss.item())", "not all_finite(_parameters(run))")
SETTINGS = Settings(10, 100, "sgd", 0.05, 0.9, False, 1e-3, "cosine", 50, 0.5)
N_ROWS, N_FEATURES, N_CLASSES, ROUNDS = 1000, 100, 10, 200


def without_guard() -> Any:
    """The loop's own source, with the two conditions never true."""
    assert training.__file__ is not None
    with open(training.__file__, encoding="utf-8") as file:
        source = file.read()
    for condition in GUARDS:
        assert source.count(f"if {condition}:") == 1
        source = source.replace(f"if {condition}:", "if False:")
    module = ModuleType("mogd.training")
    exec(compile(source, "without_guard", "exec"), module.__dict__)
    return module


def seconds(loop: Any, name: str) -> float:
    """Processor time of one run of 100 steps."""
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(N_ROWS, N_FEATURES, generator=draws)
    y = torch.randint(N_CLASSES, (N_ROWS,), generator=draws)
    candidates = (torch.rand(N_ROWS, N_CLASSES, generator=draws) < 0.3).index_put_(
        (torch.arange(N_ROWS), y), torch.tensor(True)
    )
    data = TrainingData(x, candidates, torch.ones(N_ROWS), x[:50], y[:50], SETTINGS.epochs)
    model = linear((N_FEATURES,), N_CLASSES)
    method = make_method(name)
    began = time.process_time()
    loop.train(model, method, data, SETTINGS, draws)
    return time.process_time() - began


def main() -> None:
    n_steps = SETTINGS.epochs * N_ROWS // SETTINGS.batch_size
    other = without_guard()
    for name in ("pce", "mogd"):
        taken = np.array([[seconds(loop, name) for loop in (training, other)] for _ in range(ROUNDS)])
        with_it, without = np.quantile(taken, 0.25, axis=0)
        ratio = np.median(taken[:, 0] / taken[:, 1]) - 1
        print(
            f"{name}: {1e6 * with_it / n_steps:.1f} µs a step with the guard, {1e6 * without / n_steps:.1f} without "
            f"(lower quartiles of {ROUNDS}); median of the pairs {ratio:+.2%}"
        )


if __name__ == "__main__":
    main()
