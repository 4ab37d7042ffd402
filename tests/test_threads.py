"""Threads by the work: one for small steps, the caller's number given back, and no collapse beside a busy process."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from mogd import PartialLabelClassifier
from mogd.callbacks.base import Callback, Run
from mogd.nets import linear, make_backbone
from mogd.threads import limited_to, threads_for

EXAMPLE = """
import os, time, numpy as np, torch
from sklearn.datasets import load_digits
from mogd import PartialLabelClassifier
torch.set_num_threads(2)
X, y = load_digits(return_X_y=True)
candidates = np.random.default_rng(0).random((len(y), 10)) < 0.3
candidates[np.arange(len(y)), y] = True
model = PartialLabelClassifier(scale="standard", random_state=0, epochs=30)
began = time.process_time()
model.fit(X[100:], candidates[100:], X_val=X[:100], y_val=y[:100])
assert torch.get_num_threads() == 2
print(time.process_time() - began)
"""


def test_small_work_has_one_thread_and_large_work_what_torch_has() -> None:
    with limited_to(2):
        assert threads_for(linear((64,), 10), torch.zeros(3, 64), 100) == 1
        net = make_backbone("cnn", (1, 28, 28), 10)
        assert threads_for(net, torch.zeros(2, 1, 28, 28), 1000) == 2
        assert net.training
        assert torch.get_num_threads() == 2
    with limited_to(1):
        assert threads_for(net, torch.zeros(2, 1, 28, 28), 1000) == 1


@pytest.mark.parametrize(("n_threads", "expected"), [(None, 1), (2, 2)])
def test_a_fit_takes_its_threads_and_gives_the_callers_number_back(n_threads: int | None, expected: int) -> None:
    class Seen(Callback):
        def on_epoch_end(self, run: Run, entry: dict) -> None:
            entry["threads"] = torch.get_num_threads()

    x, y = load_digits(return_X_y=True)
    with limited_to(2):
        model = PartialLabelClassifier("pce", epochs=1, callbacks=[Seen()], n_threads=n_threads).fit(x[:200], y[:200])
        assert model.history_[0]["threads"] == expected
        assert np.isfinite(model.predict_proba(x)).all()
        assert torch.get_num_threads() == 2


def test_the_readmes_example_does_not_collapse_beside_a_busy_process() -> None:
    """The processor's seconds of the fit, with and without a process that keeps a core busy; wall time is noise."""

    def seconds() -> float:
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        command = [sys.executable, "-c", EXAMPLE]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return float(done.stdout)

    alone = min(seconds() for _ in range(2))
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        beside = min(seconds() for _ in range(2))
    finally:
        busy.kill()
        busy.wait()
    assert beside < 1.5 * alone


def test_a_small_classical_fit_has_one_thread_and_gives_the_callers_number_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from threadpoolctl import threadpool_info, threadpool_limits

    from mogd.classical import common
    from mogd.classical.plknn import PLKNN

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    seen: list[set[int]] = []

    class Seen(PLKNN):
        def _learn(self, *given: np.ndarray) -> np.ndarray:
            seen.append(threads())
            return super()._learn(*given)

        def _scores(self, X: np.ndarray) -> np.ndarray:
            seen.append(threads())
            return super()._scores(X)

    x, y = load_digits(return_X_y=True)
    with threadpool_limits(2):
        before = threads()
        assert max(before) == 2
        Seen().fit(x[:200], y[:200]).predict(x[:10])
        assert seen == [{1}, {1}]
        monkeypatch.setattr(common, "SMALL_WORK", 0.0)
        Seen().fit(x[:200], y[:200]).predict(x[:10])
        assert seen[2:] == [before, before]
        assert threads() == before


def test_rows_in_single_precision_give_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    from mogd.classical.plknn import PLKNN

    x, y = load_digits(return_X_y=True)
    PLKNN().fit(x[:50].astype(np.float32), y[:50])
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]
