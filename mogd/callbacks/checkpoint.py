"""Checkpoint: the whole state of a run on the disk, so that a run that was killed goes on to the same bits."""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

import mogd
from mogd import distributed
from mogd.callbacks.base import Callback, Run
from mogd.callbacks.checkpoint_files import places, read_last, write
from mogd.callbacks.state import Tensors, put_back, take_apart
from mogd.methods.rows import stored

NOT_COMPARED = ("verbose", "random_state", "callbacks")  # parameters of the classifier; the seed shows in the generator
DAMAGED = (KeyError, TypeError, AttributeError, RuntimeError, IndexError, OverflowError, MemoryError)
DATA = ("x", "candidates", "weight", "clean_x", "clean_y", "is_clean")


class Checkpoint(Callback):
    """Save the run every `every` epochs, and when Ctrl-C ends it; the last two checkpoints are kept.

    Parameters
    ----------
    folder : where to save.
    every : epochs between two checkpoints; the first is made before the first epoch, the last after the last.
    resume : go on from the folder's last checkpoint, where it holds one; without it such a folder is refused. A
        checkpoint of other data or other parameters is refused.
    """

    observer = True

    def __init__(self, folder: str | Path, every: int = 1, resume: bool = False) -> None:
        self.folder = folder
        self.every = every
        self.resume = resume

    def start(self, run: Run) -> None:
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"every must be a whole number of epochs, at least 1; got {self.every!r}")
        if run.owner is not None and getattr(run.owner, "random_state", 0) is None:
            raise ValueError("a checkpoint needs a run that can be started again: pass random_state, such as 0")
        check_folder(self.folder, resume=self.resume)

    def restore(self, run: Run) -> bool:
        self.identity = identity_of(run)
        found = read_last(Path(self.folder)) if self.resume else None
        if found is None:
            return False
        described, tensors = found
        try:
            _check_identity(self.folder, dict(described["identity"]), self.identity)
            run.optimizer = run.new_optimizer()
            restore_run(run, described["state"], tensors)
        except DAMAGED as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ValueError(f"{self.folder} holds a damaged checkpoint: {reason}; start again elsewhere") from None
        return True

    def on_save_point(self, run: Run) -> None:
        if not distributed.is_first():  # all ranks have the same state
            return
        epoch, last = run.at.epoch, run.stop or run.at.epoch >= run.settings.epochs
        if epoch % self.every and not last:
            return
        try:
            self._save(run)
        except OSError as error:
            if not epoch:
                raise
            warnings.warn(
                f"the checkpoint of epoch {epoch} could not be written ({error}): the run goes on without it",
                stacklevel=2,
            )

    def on_interrupt(self, run: Run) -> str:
        again = f"Checkpoint({str(self.folder)!r}, resume=True) (in the shell --checkpoint {self.folder} --resume)"
        if run.optimizer is None:
            return f"no epoch had begun, so {again} starts from the beginning"
        if distributed.is_first():
            self._save(run)
        return f"it is saved; go on with {again}"

    def _save(self, run: Run) -> None:
        state, tensors = state_of(run)
        described = {"identity": self.identity, "state": state}
        write(Path(self.folder), (run.at.epoch, run.at.step), described, tensors)


def check_folder(folder: str | Path, *, resume: bool) -> None:
    """Refuse a place that cannot be written, and a checkpoint that nobody asked to go on from."""
    folder = Path(folder)
    if there := [] if resume else places(folder):
        raise FileExistsError(
            f"{folder} holds a checkpoint (of epoch {there[0][0]}): pass resume=True (in the shell --resume) to go on "
            "from it, or choose another folder"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OSError(f"{folder} cannot hold checkpoints ({error.strerror}): choose another folder") from None


def state_of(run: Run) -> tuple[dict[str, Any], Tensors]:
    """Everything that the next step depends on, as JSON and tensors; the training rows are not among it."""
    tensors: Tensors = {}
    rows = frozenset(id(getattr(run.data, name)) for name in DATA)
    parts: dict[str, Any] = {name: take_apart(part, name, tensors, rows) for name, part in _objects(run).items()}
    assert run.optimizer is not None
    values = {
        "optimizer": run.optimizer.state_dict(),
        "parameters": _others(run),
        "confidence": stored(run.confidence)[-1],
        "weight": run.data.weight,
        "candidates": stored(run.data.candidates)[-1],
        "history": run.history,
        "stop": run.stop,
        "random": _random_state(run.data.x),
    }
    return parts | {name: take_apart(value, name, tensors) for name, value in values.items()}, tensors


def restore_run(run: Run, state: dict[str, Any], tensors: Tensors) -> None:
    """Put the state into a run that has just been started."""
    for name, part in _objects(run).items():
        put_back(part, state[name], tensors)
    names = ("optimizer", "confidence", "weight", "candidates", "random")
    found = {name: put_back(None, state[name], tensors) for name in names}
    put_back(_others(run), state["parameters"], tensors)
    assert run.optimizer is not None
    run.optimizer.load_state_dict(found["optimizer"])
    stored(run.confidence)[-1].copy_(found["confidence"])
    run.data.weight.copy_(found["weight"])
    now, kept = run.data.candidates, found["candidates"]
    run.data.candidates = kept if isinstance(now, Tensor) else now.like(kept)  # the caller's own matrix is left alone
    run.history[:] = put_back(None, state["history"], tensors)
    run.stop = state["stop"]
    torch.set_rng_state(found["random"]["cpu"])
    if "cuda" in found["random"]:
        torch.cuda.set_rng_state(found["random"]["cuda"], run.data.x.device)


def _objects(run: Run) -> dict[str, Any]:
    """What changes in place."""
    own: dict[str, Any] = {"model": run.model, "method": run.method, "generator": run.generator, "at": run.at}
    own |= {f"callback{i}": callback for i, callback in enumerate(_changing(run))}
    augment = run.augment
    own["augment"] = _Attributes(augment) if isinstance(augment, FunctionType) else augment
    return {name: part for name, part in own.items() if part is not None}


class _Attributes:
    """Those of a function: an augmentation may have a state."""

    def __init__(self, function: FunctionType) -> None:
        self.__dict__ = vars(function)


def _others(run: Run) -> list[nn.Parameter]:
    """What is optimised beside the model, wherever it is kept."""
    assert run.optimizer is not None
    of_model = {id(p) for p in run.model.parameters()}
    return [p for group in run.optimizer.param_groups for p in group["params"] if id(p) not in of_model]


def _changing(run: Run) -> list[Callback]:
    return [callback for callback in run.callbacks if not callback.observer]


def _random_state(x: Tensor) -> dict[str, Tensor]:
    """Of the generators that dropout draws from."""
    return {"cpu": torch.get_rng_state()} | ({"cuda": torch.cuda.get_rng_state(x.device)} if x.is_cuda else {})


def identity_of(run: Run) -> dict[str, Any]:
    """What must be the same in the run that goes on: parameters as they are, data and network as a digest."""
    own: dict[str, Any] = dict(vars(run.settings))
    if run.owner is not None:
        own |= {k: v for k, v in run.owner.get_params(deep=False).items() if k not in NOT_COMPARED}
    own |= {"method": type(run.method).__name__}
    own |= {f"method__{name}": value for name, value in run.method.get_params().items()}
    names = [callback.name() for callback in _changing(run)]
    own["callbacks"] = ", ".join(names) or "none"
    for name, callback in zip(names, _changing(run), strict=True):
        own |= {f"{name}.{key}": value for key, value in callback.get_params().items()}
    return {key: _plain(value) for key, value in own.items()} | {
        "training data": _digest(part for name in DATA for part in stored(getattr(run.data, name))),
        "votes": _digest(_evidence(run)),
        "network": _digest([*run.model.parameters(), *run.model.buffers()], repr(run.model)),
        "random_state": _digest([run.generator.get_state(), *_random_state(run.data.x).values()]),
        "version of mogd": mogd.__version__,
        "version of torch": version("torch"),
    }


def _evidence(run: Run) -> Iterator[Tensor]:
    """What is known beside the candidate sets."""
    for evidence in (run.data.evidence, run.data.clean_evidence):
        if evidence is not None:
            yield from (torch.from_numpy(getattr(evidence, name)) for name in ("row", "label", "source", "weight"))
    if run.data.clean_candidates is not None:
        yield run.data.clean_candidates


def _check_identity(folder: str | Path, saved: dict[str, Any], own: dict[str, Any]) -> None:
    different = [key for key in own | saved if saved.get(key) != own.get(key)]
    if not different:
        return
    shown = [
        f"{key} was {saved.get(key)!r} and is {own.get(key)!r}" if not _is_digest(own.get(key)) else f"other {key}"
        for key in different[:3]
    ]
    raise ValueError(
        f"{folder} holds a checkpoint of another run ({', '.join(shown)}): fit the same data with the same parameters "
        "to go on from it, or choose another folder"
    )


def _plain(value: Any) -> Any:
    """A parameter as it can be compared after JSON: objects by their type alone."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return type(value).__name__


def _digest(tensors: Iterable[Tensor], text: str = "") -> str:
    digest = hashlib.sha256(text.encode())
    for tensor in tensors:
        digest.update(f"|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        if tensor.numel():  # without elements it may have a stride of 0, and no view as bytes
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return f"sha256:{digest.hexdigest()}"


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("sha256:")
