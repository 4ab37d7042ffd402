"""How a run ends before its time: by Ctrl-C after the current batch, and by numbers that are not finite."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_tools import Break, Breaks, bits, classifier, fitted, rows, usable
from torch import Tensor, nn

from mogd.callbacks.base import Callback, Run
from mogd.callbacks.checkpoint import Checkpoint
from mogd.callbacks.checkpoint_files import places, read_last
from mogd.guard import all_finite
from mogd.methods.base import Batch, Output
from mogd.methods.pce import PCE


@pytest.fixture(autouse=True)
def python_handles_ctrl_c() -> Iterator[None]:
    """A background job of a shell is started with Ctrl-C ignored, and so are the tests in it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("at", [1, 5, 8])
def test_ctrl_c_ends_after_the_batch_and_the_run_goes_on_from_there(at: int, tmp_path: Path) -> None:
    class PressesCtrlC(Breaks):
        def on_batch(self, batch: Batch) -> Batch:
            try:
                return super().on_batch(batch)
            except Break:
                os.kill(os.getpid(), signal.SIGINT)
                return batch

    handler = signal.getsignal(signal.SIGINT)
    callbacks = usable("mogd")
    expected = bits(fitted("mogd", callbacks))
    message = r"in epoch \d of 5 after batch \d: it is saved; go on with Checkpoint\(.*resume=True"
    with pytest.raises(KeyboardInterrupt, match=message):
        fitted("mogd", [*callbacks, Checkpoint(tmp_path, every=100), PressesCtrlC(at)])
    assert signal.getsignal(signal.SIGINT) is handler
    assert places(tmp_path)[0] == {1: (0, 1), 5: (1, 1), 8: (1, 4)}[at]
    assert bits(fitted("mogd", [*callbacks, Checkpoint(tmp_path, resume=True)])) == expected
    with pytest.raises(KeyboardInterrupt, match=r"nothing is saved; .*\(in the shell --checkpoint FOLDER\)"):
        fitted("mogd", [*callbacks, PressesCtrlC(at)])


def test_a_program_that_handles_ctrl_c_itself_goes_on_to(tmp_path: Path) -> None:
    class PressesCtrlC(Callback):
        def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    heard: list[int] = []

    def own(number: int, frame: Any) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGINT, own)
    try:
        fitted("pce", [PressesCtrlC()])
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(heard) == 5


def test_a_second_ctrl_c_ends_at_once() -> None:
    class PressesTwice(Callback):
        def on_batch(self, batch: Batch) -> Batch:
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError("the batch went on")

    with pytest.raises(KeyboardInterrupt):
        fitted("pce", [PressesTwice()])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_trains_too(tmp_path: Path) -> None:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(bits(fitted("pce", [Checkpoint(tmp_path)]))))
    thread.start()
    thread.join()
    assert found == [bits(fitted("pce", []))]


class BadGradient(PCE):
    """A finite loss whose gradient is not, at the `at`-th batch."""

    def __init__(self, at: int = 3) -> None:
        super().__init__()
        self.at = at

    def start(self, model: nn.Module, data: Any, generator: torch.Generator) -> None:
        self.seen_ = 0

    def objective(self, out: Output, confidence: Tensor, batch: Batch) -> Tensor:
        self.seen_ += 1
        loss = super().objective(out, confidence, batch)
        return loss + (0 * loss).sqrt() if self.seen_ == self.at else loss


@pytest.mark.parametrize(("at", "where"), [(3, "epoch 1, batch 3"), (4, "epoch 1, batch 4"), (5, "epoch 2, batch 1")])
def test_a_gradient_that_is_not_finite_names_its_batch(at: int, where: str, tmp_path: Path) -> None:
    shown: list[list[int]] = []

    class Sees(Callback):
        observer = True

        def on_batch(self, batch: Batch) -> Batch:
            shown.append(batch.index.tolist())
            return batch

    with pytest.raises(ValueError, match=rf"training diverged in {where} of 4 \(rows .*its gradient, .*lower lr") as e:
        fitted(BadGradient(at), [Checkpoint(tmp_path), Sees()])
    assert f"({', '.join(map(str, shown[at - 1][:5]))}" in str(e.value).replace("(rows ", "(")
    described, tensors = read_last(tmp_path) or ({}, {})
    assert described["state"]["at"]["of"]["epoch"] == (0 if at < 5 else 1)
    assert all(tensor.isfinite().all() for tensor in tensors.values())


@pytest.mark.filterwarnings("ignore:X_val has another scale")
def test_large_features_are_named_as_the_likely_cause() -> None:
    given, clean = rows()
    given[0][7] = 1e30
    with pytest.raises(
        ValueError, match=r"diverged in .*the features of row 7 reach 1e\+30, the likely cause: lower lr"
    ):
        classifier("pce", [], backbone="linear", backbone_params=None).fit(*given, **clean)


def test_finite_numbers_that_overflow_in_a_sum_are_finite() -> None:
    assert all_finite([torch.full((4,), 3e38), torch.zeros(0)])
    assert not all_finite([torch.zeros(2), torch.tensor([0.0, float("nan")])])


def test_a_pretraining_that_diverges_names_its_rows(tmp_path: Path) -> None:
    pretraining = {"name": "clean-pretraining", "fraction": 1.0, "lr": 1e38}
    with pytest.raises(ValueError, match=r"diverged in clean-pretraining, at the clean \(rows \d+, .*which is 1e\+38"):
        fitted("pce", [pretraining, Checkpoint(tmp_path)], backbone="linear", backbone_params=None)
    assert not places(tmp_path)


def test_ctrl_c_in_pretraining_starts_again(tmp_path: Path) -> None:
    class PressesCtrlC(Callback):
        observer = True

        def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
            if "phase" in entry:
                os.kill(os.getpid(), signal.SIGINT)

    callbacks = [{"name": "clean-pretraining", "fraction": 1.0}]
    with pytest.raises(KeyboardInterrupt, match=r"no epoch had begun, so Checkpoint\(.*starts from the beginning"):
        fitted("cc", [*callbacks, Checkpoint(tmp_path), PressesCtrlC()])
    again = fitted("cc", [*callbacks, Checkpoint(tmp_path, resume=True)])
    assert bits(again) == bits(fitted("cc", callbacks))
