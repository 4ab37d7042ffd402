"""From what a user names to the callbacks of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from mogd.callbacks import CALLBACKS, make_callback
from mogd.callbacks.base import Callback
from mogd.methods.base import Method, TrainingData

CallbackSpec = str | dict[str, Any] | Callback


def resolve(
    wanted: Sequence[CallbackSpec],
    advice: dict[str, dict[str, Any]],
    method: Method,
    model: nn.Module,
    data: TrainingData,
) -> list[Callback]:
    """The callbacks of a run. Recommended ones that the method has no room for are left out; others are refused."""
    recommended = {name: make_callback(name, **settings) for name, settings in advice.items() if name in CALLBACKS}
    if not method.train_on_clean:
        recommended = {}  # they were chosen for methods that learn from the clean rows too
    found: list[Callback] = []
    for entry in wanted:
        if entry == "auto":
            found += [callback for callback in recommended.values() if not callback.refusal(method, model, data)]
            continue
        if isinstance(entry, str):
            callback = recommended.get(entry) or make_callback(entry)
        elif isinstance(entry, dict):
            callback = make_callback(**entry)
        elif isinstance(entry, Callback):
            callback = entry
        else:
            raise ValueError(f"callbacks must be 'auto' or a list of Callback objects and their names; got {entry!r}")
        if refusal := callback.refusal(method, model, data):
            raise ValueError(f"{type(method).__name__} cannot use the callback {callback.name()!r}: {refusal}")
        found.append(callback)
    return found


def without_observers(callbacks: str | Sequence[CallbackSpec]) -> str | list[CallbackSpec]:
    """The callbacks without those that only watch a run, such as its checkpoints."""
    return callbacks if isinstance(callbacks, str) else [c for c in callbacks if not getattr(c, "observer", False)]
