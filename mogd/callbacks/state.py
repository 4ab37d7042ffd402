"""Objects as plain values and tensors, and back: what a checkpoint holds of a run. No pickle, thus no code.

Of a method or a callback these are the attributes that end in `_`; of any other object all attributes. A value is put
back into the object that a new start of the run has built.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor, nn

Tensors = dict[str, Tensor]
AS_BUILT = {"as": "built"}  # a function, a device, the training rows: a new start has the same
BUILT = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type, torch.device, torch.dtype)


def take_apart(value: Any, path: str, tensors: Tensors, rows: frozenset[int] = frozenset()) -> Any:
    """The value as JSON; its tensors are copied into `tensors`, by their path. `rows` are the ids of those left out."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, BUILT) or id(value) in rows:
        return AS_BUILT
    if isinstance(value, Tensor):
        tensors[path] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        stride = list(torch.empty_like(value).stride())
        return {"as": "tensor", "path": path, "stride": stride, "device": str(value.device)}
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return {"as": "names", "of": value.tolist()}
    if isinstance(value, np.ndarray):
        return {"as": "array", "of": take_apart(torch.from_numpy(value), path, tensors)}
    if isinstance(value, torch.Generator):
        return {"as": "generator", "of": take_apart(value.get_state(), path, tensors)}
    if isinstance(value, nn.Module):
        return {"as": "module", "of": {k: take_apart(v, f"{path}.{k}", tensors) for k, v in _tensors_of(value)}}
    if isinstance(value, (list, tuple)):
        parts = [take_apart(part, f"{path}.{i}", tensors, rows) for i, part in enumerate(value)]
        return parts if isinstance(value, list) else {"as": "tuple", "of": parts}
    if isinstance(value, dict) and all(isinstance(key, (str, int)) for key in value):
        return {"as": "dict", "of": [[k, take_apart(v, f"{path}.{k}", tensors, rows)] for k, v in value.items()]}
    if is_frozen(value):
        own = {f.name: take_apart(getattr(value, f.name), f"{path}.{f.name}", tensors, rows) for f in fields(value)}
        return {"as": "frozen", "of": own}
    if not hasattr(value, "__dict__") or path.count(".") > 20:
        raise ValueError(
            f"a checkpoint cannot hold {path}, a {type(value).__name__}: keep tensors and plain values in attributes "
            "that end in _, and what `start` builds anew in others"
        )
    return {"as": "object", "of": {k: take_apart(v, f"{path}.{k}", tensors, rows) for k, v in _attributes(value)}}


def put_back(now: Any, saved: Any, tensors: Tensors) -> Any:
    """The saved value, where it can be in the object that is there now."""
    there: Any
    if isinstance(saved, list):
        there = list(now) if isinstance(now, (list, tuple)) and len(now) == len(saved) else [None] * len(saved)
        return [put_back(own, part, tensors) for own, part in zip(there, saved, strict=True)]
    if not isinstance(saved, dict):
        return saved
    kind: str = saved["as"]
    content: Any = saved.get("of")
    if kind == "built":
        return now
    if kind == "tensor":
        return _put_tensor(now, saved, tensors[saved["path"]])
    if kind == "names":
        return np.array(content, dtype=str)
    if kind == "array":
        return put_back(None, content, tensors).numpy()
    if kind == "tuple":
        return tuple(put_back(now, content, tensors))
    if kind == "dict":
        there = now if isinstance(now, dict) else {}
        return {key: put_back(there.get(key), part, tensors) for key, part in content}
    if now is None:
        raise ValueError(f"a checkpoint has a {kind} that a new start of the run has not")
    if kind == "frozen":
        return replace(now, **{key: put_back(getattr(now, key), part, tensors) for key, part in content.items()})
    if kind == "generator":
        now.set_state(put_back(None, content, tensors))
    elif kind == "module":
        own = dict(_tensors_of(now))
        if own.keys() != content.keys():
            raise ValueError(f"a checkpoint has other tensors for the {type(now).__name__} than a new start of the run")
        for key, part in content.items():
            with torch.no_grad():
                own[key].copy_(put_back(None, part, tensors))  # in place: the optimizer holds these
    else:
        foreign = [key for key in content if not _is_state(now, key)]
        if foreign:
            raise TypeError(f"{foreign[0]} is no state of a {type(now).__name__}")
        for key in {key for key, _ in _attributes(now)} - content.keys():
            delattr(now, key)
        for key, part in content.items():
            setattr(now, key, put_back(getattr(now, key, None), part, tensors))
    return now


def _put_tensor(now: Any, saved: dict[str, Any], value: Tensor) -> Tensor:
    if isinstance(now, nn.Parameter):
        with torch.no_grad():
            return now.copy_(value)
    # memory of its own, laid out as it was: the same arithmetic gives the same bits
    return torch.empty_strided(value.shape, saved["stride"], dtype=value.dtype, device=saved["device"]).copy_(value)


def is_frozen(value: Any) -> bool:
    """Whether a value can only be replaced as a whole, such as the confusion matrices of annotators."""
    return is_dataclass(value) and not isinstance(value, type) and value.__dataclass_params__.frozen  # type: ignore


def _tensors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """What of an object can change: all that a parameter object has learned, and all that another one has."""
    yield from ((key, part) for key, part in vars(value).items() if _is_state(value, key))


def _is_state(value: Any, key: str) -> bool:
    return not isinstance(value, BaseEstimator) or (key.endswith("_") and not key.startswith("_"))
