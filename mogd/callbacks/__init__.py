"""Refinements and observers of training that every deep method can use: one file each, one parameter object each.

Nothing is imported before it is asked for, so that reading the table needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mogd.callbacks.base import Callback

# name -> module:Class
CALLBACKS = {
    "candidate-noise": "mogd.callbacks.candidate_noise:CandidateNoise",
    "source-opinions": "mogd.callbacks.source_opinions:SourceOpinions",
    "clean-weight": "mogd.callbacks.clean_weight:CleanWeight",
    "class-weight": "mogd.callbacks.class_weight:ClassWeight",
    "loss-schedule": "mogd.callbacks.loss_schedule:LossSchedule",
    "candidate-set-head": "mogd.callbacks.candidate_set_head:CandidateSetHead",
    "clean-pretraining": "mogd.callbacks.clean_pretraining:CleanPretraining",
    "candidate-cleaning": "mogd.callbacks.candidate_cleaning:CandidateCleaning",
    "sharper-targets": "mogd.callbacks.sharper_targets:SharperTargets",
    "meta-step": "mogd.callbacks.meta_step:MetaStep",
    "early-stopping": "mogd.callbacks.early_stopping:EarlyStopping",
    "progress-bar": "mogd.callbacks.progress_bar:ProgressBar",
}


def make_callback(name: str, **params: Any) -> Callback:
    """A callback by its name."""
    if name not in CALLBACKS:
        raise ValueError(f"a callback must be one of {', '.join(CALLBACKS)}, or a Callback object; got {name!r}")
    module, attribute = CALLBACKS[name].split(":")
    own = getattr(import_module(module), attribute)
    known = own().get_params()
    if unknown := sorted(set(params) - set(known)):
        raise ValueError(
            f"callback {name!r} has no parameter {', '.join(unknown)}; it has {', '.join(known) or 'none'}"
        )
    return own(**params)


def described_callbacks(callbacks: Any) -> Any:
    """The parameter `callbacks` as plain values; objects that are not of the library are left out."""
    from mogd.callbacks.base import Callback

    if isinstance(callbacks, str):
        return callbacks
    own = [c for c in callbacks if not isinstance(c, Callback) or c.name() in CALLBACKS]
    return [{"name": c.name(), **c.get_params()} if isinstance(c, Callback) else c for c in own]
