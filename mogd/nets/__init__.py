"""Backbones: from rows to features and logits. Each is made by `make_backbone(name, in_shape, n_classes, **params)`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from mogd.nets.airbench import airbench
from mogd.nets.base import Net, Normalize, channel_statistics
from mogd.nets.images import WideBlock, cnn, convnet, wide_resnet
from mogd.nets.rbf import rbf
from mogd.nets.tables import linear, mlp

BACKBONES: dict[str, Callable[..., Net]] = {
    "linear": linear,
    "mlp": mlp,
    "rbf": rbf,
    "cnn": cnn,
    "convnet": convnet,
    "wide-resnet": wide_resnet,
    "airbench": airbench,
}


def make_backbone(name: str, in_shape: Sequence[int], n_classes: int, **params: Any) -> Net:
    """A new backbone by its name."""
    if name not in BACKBONES:
        raise ValueError(f"backbone must be one of {', '.join(BACKBONES)} or a torch.nn.Module; got {name!r}")
    known = list(signature(BACKBONES[name]).parameters)[2:]  # behind the shape and the number of classes
    unknown = [key for key in params if key not in known]
    if unknown:
        may = f"may hold {', '.join(known)}" if known else "must be empty"
        raise ValueError(f"backbone {name!r} has no parameter {', '.join(unknown)}; backbone_params {may}")
    return BACKBONES[name](in_shape, n_classes, **params)


__all__ = [
    "BACKBONES",
    "Net",
    "Normalize",
    "WideBlock",
    "airbench",
    "channel_statistics",
    "cnn",
    "convnet",
    "linear",
    "make_backbone",
    "mlp",
    "rbf",
    "wide_resnet",
]
