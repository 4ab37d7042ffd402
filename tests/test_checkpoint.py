"""Checkpoints: a run that ends anywhere goes on to the same bits, and nothing else is gone on from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_tools import IMAGES, REFINEMENTS, Break, Breaks, bits, classifier, fitted, rows, usable, voted_rows
from safetensors.torch import load_file
from torch import Tensor, nn

from mogd.algorithms import DEEP
from mogd.callbacks import CALLBACKS
from mogd.callbacks.base import Callback, Run
from mogd.callbacks.checkpoint import Checkpoint
from mogd.callbacks.checkpoint_files import _checksum, places, read_last
from mogd.callbacks.state import put_back, take_apart
from mogd.methods.base import Batch, Output
from mogd.methods.mogd import MoGD
from mogd.methods.pce import PCE


def broken_and_resumed(folder: Path, at: int, name: Any, callbacks: list[Any], **how: Any) -> Any:
    with pytest.raises(Break):
        fitted(name, [*callbacks, Checkpoint(str(folder)), Breaks(at)], **how)
    return fitted(name, [*callbacks, Checkpoint(str(folder), resume=True)], **how)


@pytest.mark.usefixtures("both_forms")
@pytest.mark.parametrize("name", DEEP)
def test_every_method_with_all_callbacks_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """Five epochs of two batches or more: broken in the first batch, in the middle of one, and late."""
    callbacks = usable(name)
    expected = bits(fitted(name, callbacks))
    for at in (1, 4, 9):
        assert bits(broken_and_resumed(tmp_path / str(at), at, name, callbacks)) == expected, at


@pytest.mark.parametrize("callback", REFINEMENTS)
def test_every_callback_resumes_to_the_same_bits(callback: str, tmp_path: Path) -> None:
    callbacks = [{"name": callback, **REFINEMENTS[callback]}]
    method = "proden" if callback == "meta-step" else "mogd"  # which has that step
    expected = bits(fitted(method, callbacks))
    assert bits(broken_and_resumed(tmp_path, 9, method, callbacks)) == expected


@pytest.mark.parametrize("name", ["cc", "mogd"])
def test_a_run_with_votes_resumes_to_the_same_bits(name: str, tmp_path: Path) -> None:
    """The annotators' confusion matrices are counted anew after every epoch."""
    (x, candidates), clean = voted_rows()
    callbacks = [{"name": "source-opinions"}, {"name": "candidate-noise"}]
    whole = classifier(name, callbacks).fit(x, candidates, **clean)
    assert whole.config_["sources"]["reliability"].keys() == {f"annotator {i}" for i in range(3)}
    for at in (4, 9):
        folder = tmp_path / str(at)
        with pytest.raises(Break):
            classifier(name, [*callbacks, Checkpoint(folder), Breaks(at)]).fit(x, candidates, **clean)
        resumed = classifier(name, [*callbacks, Checkpoint(folder, resume=True)]).fit(x, candidates, **clean)
        assert bits(resumed) == bits(whole), at
    other = replace(candidates, evidence=replace(candidates.evidence, weight=2 * candidates.evidence.weight))
    with pytest.raises(ValueError, match=r"a checkpoint of another run .*other votes"):
        classifier(name, [*callbacks, Checkpoint(folder, resume=True)]).fit(x, other, **clean)


def test_every_callback_is_among_those_that_are_resumed() -> None:
    assert {*REFINEMENTS, "source-opinions", "progress-bar"} == set(CALLBACKS)


def test_a_run_without_clean_rows_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """A tensor of no rows may have any stride, as the classes of no clean rows have."""
    given, _ = rows()
    whole = classifier("proden", []).fit(*given)
    with pytest.raises(Break):
        classifier("proden", [Checkpoint(tmp_path), Breaks(5)]).fit(*given)
    assert bits(classifier("proden", [Checkpoint(tmp_path, resume=True)]).fit(*given)) == bits(whole)


def test_early_stopping_remembers_the_best_epoch_of_a_run_that_was_broken(tmp_path: Path) -> None:
    how: Any = {"lr": 2.0, "epochs": 12}  # the best epoch is one before the break
    callbacks = [{"name": "early-stopping", "patience": 3}]
    expected = bits(fitted("pce", callbacks, **how))
    assert bits(broken_and_resumed(tmp_path, 13, "pce", callbacks, **how)) == expected


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("mogd", {"optimizer": "adamw", "lr": 0.01, "schedule": "step", "lr_step": 2}),
        ("valen", {"nesterov": True, "schedule": "constant", "dtype": "float64"}),
        ("mogd", {"backbone": "linear", "backbone_params": None}),
        (MoGD(prior="running", normalize="sum"), {}),
        (MoGD.paper(), {}),
        ("mogd", {"images": True, **IMAGES, "epochs": 3}),
    ],
    ids=str,
)
def test_optimizers_networks_and_augmentation_resume_to_the_same_bits(name: Any, how: Any, tmp_path: Path) -> None:
    expected = bits(fitted(name, ["auto"], **how))
    assert bits(broken_and_resumed(tmp_path, 6, name, ["auto"], **how)) == expected


class BreaksInPhase(Callback):
    observer = True

    def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
        if "phase" in entry:
            raise Break


def test_a_phase_that_was_cut_short_starts_again(tmp_path: Path) -> None:
    callbacks = [{"name": "clean-pretraining", "fraction": 0.5}]
    expected = bits(fitted("cc", callbacks))
    with pytest.raises(Break):
        fitted("cc", [*callbacks, Checkpoint(tmp_path), BreaksInPhase()])
    assert bits(fitted("cc", [*callbacks, Checkpoint(tmp_path, resume=True)])) == expected


def test_a_phase_that_is_over_is_not_repeated(tmp_path: Path) -> None:
    callbacks = [{"name": "clean-pretraining", "fraction": 0.5}]
    with pytest.raises(Break):
        fitted("cc", [*callbacks, Checkpoint(tmp_path), Breaks(1)])
    fitted("cc", [*callbacks, Checkpoint(tmp_path, resume=True), BreaksInPhase()])


def test_a_network_without_a_forward_derivative_resumes_to_the_same_bits(tmp_path: Path) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return 2 * x

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            return 2 * grads[0]

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.drop, self.last = nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(Twice.apply(self.drop(self.first(x))))

    torch.manual_seed(0)
    how: Any = {"backbone": Net(), "backbone_params": None}
    expected = bits(fitted("mogd", ["auto"], **how))
    assert bits(broken_and_resumed(tmp_path, 7, "mogd", ["auto"], **how)) == expected


class Shift(PCE):
    """Optimises a parameter beside the model, under a name of its own."""

    def start(self, model: nn.Module, data: Any, generator: torch.Generator) -> None:
        self.shift = nn.Parameter(torch.zeros(10))

    def parameters(self) -> list[nn.Parameter]:
        return [self.shift]

    def confidence(self, out: Output, batch: Batch) -> Tensor:
        out.logits = out.logits + self.shift
        return super().confidence(out, batch)


def test_parameters_beside_the_model_are_held_wherever_they_are_kept(tmp_path: Path) -> None:
    assert bits(broken_and_resumed(tmp_path, 7, Shift(), [])) == bits(fitted(Shift(), []))


def test_a_finished_run_is_found_finished(tmp_path: Path) -> None:
    stops = [{"name": "early-stopping", "patience": 1}]
    model = fitted("pce", [*stops, Checkpoint(tmp_path)], epochs=40, lr=2.0)
    assert len(model.history_) < 40
    again = fitted("pce", [*stops, Checkpoint(tmp_path, resume=True), Breaks(1)], epochs=40, lr=2.0)
    assert bits(again) == bits(model)


def test_the_last_two_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "epoch-1.json").write_text("mine too")
    (tmp_path / ".epoch-000001-batch-000000.json.0123abcd.part").write_text("of a run that was killed")
    fitted("pce", [Checkpoint(tmp_path, every=2)])
    own = [f"epoch-{epoch:06d}-batch-000000.{kind}" for epoch in (4, 5) for kind in ("json", "safetensors")]
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*own, "notes.txt", "epoch-1.json"])


def test_checkpoints_change_nothing_and_hold_no_rows(tmp_path: Path) -> None:
    seen: list[Tensor] = []

    class Sees(Callback):
        observer = True

        def start(self, run: Run) -> None:
            seen.extend([run.data.x, run.data.clean_x])

    for name in ("mogd", "valen"):
        callbacks = usable(name)
        plain = fitted(name, callbacks, epochs=3)
        model = fitted(name, [*callbacks, Checkpoint(tmp_path / name), Sees()], epochs=3)
        assert bits(model) == bits(plain)
        assert model.config_ == plain.config_
        held = {tuple(row.tolist()) for x in seen for row in x}
        for file in (tmp_path / name).glob("*.safetensors"):
            for tensor in load_file(file).values():
                shown = tensor.float().reshape(-1, 64) if tensor.numel() % 64 == 0 else []
                assert not {tuple(row.tolist()) for row in shown} & held


def test_an_existing_checkpoint_is_gone_on_from_only_when_asked(tmp_path: Path) -> None:
    fitted("pce", [Checkpoint(tmp_path)])
    with pytest.raises(FileExistsError, match=r"holds a checkpoint \(of epoch 5\): pass resume=True \(in the shell --"):
        fitted("pce", [Checkpoint(tmp_path)])
    with pytest.raises(OSError, match="cannot hold checkpoints"):
        fitted("pce", [Checkpoint(next(tmp_path.iterdir()))])


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("pce", {"lr": 0.2}, r"lr was 0\.1 and is 0\.2"),
        ("pce", {"epochs": 6}, "epochs was 5 and is 6"),
        ("pce", {"random_state": 1}, "other network, other random_state"),
        ("pce", {"scale": "standard"}, "scale was None and is 'standard', other training data"),
        ("cc", {}, "method was 'PCE' and is 'CC'"),
        (PCE("sum"), {}, "method__reduction was 'mean' and is 'sum'"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_in_one_sentence(
    name: Any, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    fitted("pce", [Checkpoint(tmp_path)])
    with pytest.raises(ValueError, match=rf"holds a checkpoint of another run \(.*{said}.*\): fit the same data") as e:
        fitted(name, [Checkpoint(tmp_path, resume=True)], **change)
    assert ". " not in str(e.value)


def test_other_callbacks_and_another_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted("pce", [Checkpoint(tmp_path)])
    with pytest.raises(ValueError, match="callbacks was 'none' and is 'clean-weight'"):
        fitted("pce", ["clean-weight", Checkpoint(tmp_path, resume=True)])
    fitted("pce", [Checkpoint(tmp_path, resume=True), "progress-bar"])
    monkeypatch.setattr("mogd.__version__", "9.9")
    with pytest.raises(ValueError, match=r"version of mogd was '.*' and is '9\.9'"):
        fitted("pce", [Checkpoint(tmp_path, resume=True)])


def test_a_run_that_cannot_be_started_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pass random_state"):
        fitted("pce", [Checkpoint(tmp_path)], random_state=None)
    with pytest.raises(ValueError, match="every must be a whole number of epochs, at least 1; got 0"):
        fitted("pce", [Checkpoint(tmp_path, every=0)])


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(ending: str, tmp_path: Path) -> None:
    model = fitted("proden", [Checkpoint(tmp_path)])
    file = tmp_path / f"epoch-000005-batch-000000.{ending}"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.warns(UserWarning, match="is damaged: the run goes on from the checkpoint before it"):
        read_last(tmp_path)
    assert bits(fitted("proden", [Checkpoint(tmp_path, resume=True)])) == bits(model)
    for rest in tmp_path.glob("*.json"):
        rest.write_text("{}")
    with pytest.raises(ValueError, match="no checkpoint is left in"):
        fitted("proden", [Checkpoint(tmp_path, resume=True)])


def test_a_checkpoint_whose_text_was_changed_is_damaged(tmp_path: Path) -> None:
    fitted("pce", [Checkpoint(tmp_path)])
    for file in tmp_path.glob("*.json"):
        described = json.loads(file.read_text())
        described["state"]["stranger"] = 1
        file.write_text(json.dumps(described))
    with pytest.raises(ValueError, match="no checkpoint is left in"):
        fitted("pce", [Checkpoint(tmp_path, resume=True)])


def rewritten(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """The last checkpoint with another content and a checksum that is right, and none before it."""
    last, *older = sorted(folder.glob("*.json"), reverse=True)
    for file in older:
        file.unlink()
    described = json.loads(last.read_text())
    described.pop("checksum")
    change(described)
    last.write_text(json.dumps(described | {"checksum": _checksum(described)}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("identity"), "damaged"),
        (lambda d: d.update(identity=5), "damaged"),
        (lambda d: d.pop("state"), "damaged"),
        (lambda d: d.update(state=[]), "damaged"),
        (lambda d: d["state"].update(confidence=None), "damaged"),
        (lambda d: d["state"].update(optimizer={"as": "dict"}), "damaged"),
        (lambda d: d["state"]["confidence"].update(path="none"), "damaged"),
        (lambda d: d["state"]["confidence"].update(stride=[1 << 50, 1]), "damaged"),
        (lambda d: d["state"]["method"]["of"].update(confidence="text"), "damaged"),
        (lambda d: d.update(format="other"), "was not written by mogd"),
        (lambda d: d.update(version=99), "of another version of mogd"),
    ],
)
def test_a_checkpoint_that_was_changed_is_one_sentence(change: Any, said: str, tmp_path: Path) -> None:
    fitted("mogd", [Checkpoint(tmp_path)])
    rewritten(tmp_path, change)
    with pytest.raises(ValueError, match=said) as raised:
        fitted("mogd", [Checkpoint(tmp_path, resume=True)])
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("ending", ["json", "safetensors"])
def test_a_checkpoint_that_is_no_file_is_not_waited_for(ending: str, tmp_path: Path) -> None:
    fitted("pce", [Checkpoint(tmp_path)])
    for file in tmp_path.glob(f"*.{ending}"):
        file.unlink()
        os.mkfifo(file)
    with pytest.raises(ValueError, match="no checkpoint is left"):
        read_last(tmp_path)


def test_a_full_disk_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace, calls = os.replace, []

    def fails(*names: Any) -> None:
        calls.append(names)
        if len(calls) in (3, 6):  # the tensors of the first epoch's, the JSON of the second's
            raise OSError(28, "No space left on device")
        replace(*names)

    monkeypatch.setattr(os, "replace", fails)
    given, clean = rows()
    with pytest.warns(UserWarning, match=r"checkpoint of epoch \d could not be written .*No space left"):
        classifier("pce", [Checkpoint(tmp_path)]).fit(*given, **clean)
    assert bits(fitted("pce", [Checkpoint(tmp_path, resume=True), Breaks(1)])) == bits(fitted("pce", []))


def test_what_a_checkpoint_cannot_hold_is_said_before_training(tmp_path: Path) -> None:
    class Locks(Callback):
        def start(self, run: Run) -> None:
            self.lock_ = threading.Lock()

    with pytest.raises(ValueError, match=r"a checkpoint cannot hold callback0\.lock_, a lock: keep tensors"):
        fitted("pce", [Locks(), Checkpoint(tmp_path), Breaks(1)])


def test_values_come_back_as_they_were() -> None:
    class Keeps(Callback):
        pass

    kept, empty = Keeps(), Keeps()
    image = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    kept.mixed_ = {"a": (1, 2.5, None), 3: [float("inf"), np.float32(0.5)], "image": image}
    kept.array_, kept.layer_, kept.generator_ = np.arange(3), nn.Linear(2, 2), torch.Generator().manual_seed(1)
    kept.parameter_, kept.expanded_ = nn.Parameter(torch.ones(2)), torch.ones(1, 3).expand(4, 3)
    empty.layer_, empty.generator_, empty.gone_ = nn.Linear(2, 2), torch.Generator(), 1
    empty.parameter_ = parameter = nn.Parameter(torch.zeros(2))
    tensors: dict[str, Tensor] = {}
    saved = json.loads(json.dumps(take_apart(kept, "it", tensors)))
    put_back(empty, saved, tensors)
    assert not hasattr(empty, "gone_")
    assert empty.mixed_["a"] == (1, 2.5, None)
    assert empty.mixed_[3] == [float("inf"), 0.5]
    assert torch.equal(empty.mixed_["image"], image)
    assert empty.mixed_["image"].stride() == image.stride()
    assert empty.array_.tolist() == [0, 1, 2]
    assert torch.equal(empty.layer_.weight, kept.layer_.weight)
    assert torch.equal(torch.rand(3, generator=empty.generator_), torch.rand(3, generator=kept.generator_))
    assert empty.parameter_ is parameter
    assert parameter.tolist() == [1, 1]
    assert torch.equal(empty.expanded_, torch.ones(4, 3))


@pytest.mark.slow
def test_real_kills_resume_to_the_same_bits(tmp_path: Path) -> None:
    root, out = Path(__file__).parents[1], tmp_path / "kills.json"
    command = [sys.executable, "-m", "benchmarks.kill_and_resume", "--kills", "14", "--out", str(out)]
    subprocess.run(command, cwd=root, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    summary = json.loads(out.read_text())
    assert summary["same_bits"] == summary["kills"] == 14
    assert len(summary["methods"]) == len(DEEP)


def test_tensors_without_their_json_are_no_checkpoint(tmp_path: Path) -> None:
    """A kill between the two files leaves the tensors alone."""
    (tmp_path / "epoch-000003-batch-000000.safetensors").write_bytes(b"")
    assert places(tmp_path) == []
    assert read_last(tmp_path) is None


def test_a_disk_that_is_full_before_the_first_epoch_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*names: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="No space left"):
        fitted("pce", [Checkpoint(tmp_path), Breaks(1)])
    assert places(tmp_path) == []


def test_other_ranks_than_the_first_write_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ends(Callback):
        observer = True

        def on_epoch_end(self, run: Run, entry: dict[str, Any]) -> None:
            said.append(saving.on_interrupt(run))

    said: list[str] = []
    saving = Checkpoint(tmp_path)
    monkeypatch.setattr("mogd.distributed.is_first", lambda: False)
    model = fitted("pce", [saving, Ends()])
    assert places(tmp_path) == []
    assert said == [f"it is saved; go on with Checkpoint({str(tmp_path)!r}, resume=True) (in the shell --checkpoint "
                    f"{tmp_path} --resume)"] * 5  # fmt: skip
    assert bits(model) == bits(fitted("pce", []))


def test_a_checkpoint_that_a_new_start_cannot_take_is_refused() -> None:
    class Keeps(Callback):
        pass

    kept = Keeps()
    kept.layer_ = nn.Linear(2, 2)
    tensors: dict[str, Tensor] = {}
    saved = take_apart(kept, "it", tensors)
    with pytest.raises(ValueError, match=r"a checkpoint has a \w+ that a new start of the run has not"):
        put_back(Keeps(), saved, tensors)
    other = Keeps()
    other.layer_ = nn.Linear(2, 2, bias=False)
    with pytest.raises(ValueError, match="a checkpoint has other tensors for the Linear than a new start of the run"):
        put_back(other, saved, tensors)
