"""What is chosen for the user: from a small profile of the data to settings. Pure functions, named constants.

`docs/studies/` holds the trials behind the constants; each was made on training folds or held-out training images.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from mogd.compressed import row_blocks
from mogd.methods.base import TrainingData
from mogd.methods.common import ends_in_linear, is_closed_form
from mogd.methods.rows import CompressedRows, Rows
from mogd.methods.steps import clean_ratio

Settings = dict[str, Any]

# of the head or of the whole network, where the user leaves it open; for a kernel's head 3e-4 to 1e-2 were tried
# (studies/rbf-backbone.md)
WEIGHT_DECAY, KERNEL_WEIGHT_DECAY = 1e-3, 3e-3
# studies/clean-weight.md: 1, 3, 5 and 10 tried; 5 where one row in twenty or more is clean
CLEAN_WEIGHT = 5.0
# studies/clean-weight.md: on images a network memorises 128 heavy rows in the first half of the run
CLEAN_WEIGHT_START = 0.5
# studies/loss-schedule.md: linear models
WARMUP_FRACTION, FINISH_FRACTION = 0.5, 0.25
# studies/loss-schedule.md: rows above which the warm-up shrinks, because an epoch then has more steps
WARMUP_ROWS = 2000
# studies/clean-pretraining.md: the lift (0 to 1) grows with the square of the co-occurrence, full from a quarter on
LIFT_SCALE = 4.0
# studies/clean-pretraining.md: visits of each clean row, above which nothing is gained
PRETRAINING_VISITS = 1500
# studies/candidate-set-head.md: 0.03, 0.1, 0.3 and 1 tried
SET_HEAD_WEIGHT = 0.3
# studies/candidate-set-head.md: wrong candidates that are drawn at random have less lift than this
SET_HEAD_LEAST_LIFT = 0.03
# studies/candidate-set-head.md: the head has its full weight where fewer than two thirds of the ratio are clean
SET_HEAD_SCARCITY = 3.0


@dataclass(frozen=True)
class DataProfile:
    """The few facts of the training data and the network that settings are chosen by."""

    n_rows: int  # partial ones
    n_clean: int
    n_classes: int
    epochs: int
    cooccurrence: float  # of wrong candidates with true ones: near 0 where they are drawn at random
    network: str  # "linear", "kernel", "mlp" or "convolutional"
    input: str  # "table" or "image"
    clean_covers_classes: bool  # whether every class has a clean row
    clean_given: bool  # whether the clean rows were given as such, and are not rows with one candidate
    ends_in_linear: bool
    sources: int = 0  # annotators, or 1 for scores; 0 for plain sets

    @classmethod
    def of(cls, model: nn.Module, data: TrainingData, *, clean_given: bool) -> Self:
        counts = torch.bincount(data.clean_y, minlength=data.n_classes)
        return cls(
            n_rows=data.n_partial,
            n_clean=len(data.clean_y),
            n_classes=data.n_classes,
            epochs=data.epochs,
            cooccurrence=round(cooccurrence(data.candidates), 6),
            network=network_kind(model),
            input="table" if data.x.ndim == 2 else "image",
            clean_covers_classes=bool((counts > 0).all()),
            clean_given=clean_given,
            ends_in_linear=ends_in_linear(model, data.x),
            sources=0 if data.evidence is None else len(data.evidence.sources),
        )

    @property
    def clean_ratio(self) -> float:
        """1 where one row in twenty is clean."""
        return clean_ratio(self.n_clean, self.n_rows)

    @property
    def lift(self) -> float:
        """How far the co-occurrence of labels says who was mistaken for whom, from 0 to 1."""
        return min(1.0, (LIFT_SCALE * self.cooccurrence) ** 2)

    def as_dict(self) -> Settings:
        return asdict(self)


def recommend(profile: DataProfile) -> dict[str, Settings]:
    """Settings of the method and the optimizer, for parameters left at "auto", and of each callback that is worth its
    cost here. MoGD's strength is 1 and its step shrunk whatever the network: docs/studies/strength.md, rbf-backbone.md.
    """
    callbacks = {
        "source-opinions": {} if profile.sources else None,
        "clean-weight": _clean_weight(profile),
        "loss-schedule": _loss_schedule(profile),
        "candidate-set-head": _candidate_set_head(profile),
        "clean-pretraining": _clean_pretraining(profile),
    }
    method = {"meta": "head" if profile.network == "convolutional" else "all"}
    optimizer = {"weight_decay": KERNEL_WEIGHT_DECAY if profile.network == "kernel" else WEIGHT_DECAY}
    found: dict[str, Settings] = {"method": method, "optimizer": optimizer}
    return found | {name: settings for name, settings in callbacks.items() if settings is not None}


def _loss_schedule(profile: DataProfile) -> Settings | None:
    if profile.network not in ("linear", "kernel"):
        return None
    warmup = WARMUP_FRACTION * min(1.0, WARMUP_ROWS / max(profile.n_rows, 1))
    return {"warmup_fraction": warmup, "finish_fraction": FINISH_FRACTION}


def _clean_weight(profile: DataProfile) -> Settings | None:
    if not profile.n_clean or not profile.clean_given:
        return None
    weight = 1 + (CLEAN_WEIGHT - 1) * min(1.0, profile.clean_ratio)
    late = profile.input == "image" and profile.network not in ("linear", "kernel")
    start = max(CLEAN_WEIGHT_START if late else 0.0, (_loss_schedule(profile) or {}).get("warmup_fraction", 0.0))
    return {"weight": weight, "start_fraction": start}


def _clean_pretraining(profile: DataProfile) -> Settings | None:
    if profile.network in ("linear", "kernel") or not profile.clean_covers_classes or profile.n_clean < 2:
        return None
    if profile.sources:
        return None  # the first confidences are the sources', and rows that the network memorised cannot judge it
    scarcity = max(0.0, 1 - profile.clean_ratio)
    n_all = profile.n_rows + profile.n_clean
    most = PRETRAINING_VISITS * profile.n_clean / (profile.epochs * n_all)
    fraction = min(profile.lift * scarcity, most)
    return {"fraction": fraction} if fraction else None


def _candidate_set_head(profile: DataProfile) -> Settings | None:
    images = profile.input == "image" and profile.network not in ("linear", "kernel") and profile.ends_in_linear
    if not images or not profile.clean_covers_classes or profile.lift <= SET_HEAD_LEAST_LIFT:
        return None
    if profile.sources:
        return None  # the set is what the sources said: its head would say it a second time
    scarcity = max(0.0, 1 - profile.clean_ratio)
    weight = SET_HEAD_WEIGHT * profile.lift * min(1.0, SET_HEAD_SCARCITY * scarcity)
    return {"weight": weight} if weight else None


def network_kind(model: nn.Module) -> str:
    """By the layers that train: the last alone, on the rows themselves or on a kernel's features; or deeper ones."""
    if is_closed_form(model):
        return "kernel" if any(getattr(m, "has_fixed_features", False) for m in model.modules()) else "linear"
    return "convolutional" if any(isinstance(m, nn.Conv2d) for m in model.modules()) else "mlp"


def cooccurrence(candidates: Rows) -> float:
    """How much more often the label that co-occurs most with another is in its sets than in all: a mean over labels."""
    if not isinstance(candidates, Tensor):
        return _sparse_cooccurrence(candidates)
    sets = candidates.float()
    together = sets.T @ sets
    count = together.diagonal()
    closer = together / count.clamp(min=1)[:, None] - count / max(len(sets), 1)
    return float((closer.fill_diagonal_(0).amax(dim=1) * count).sum() / count.sum().clamp(min=1))


def _sparse_cooccurrence(candidates: CompressedRows) -> float:
    """The same from the pairs that are together in some set: no other pair is above zero, the least that counts."""
    blocks = (block.astype(np.float64) for block in row_blocks(candidates.to_scipy()))
    together = reduce(add, (sets.T @ sets for sets in blocks)).tocsr()  # counts, which no order of adding changes
    count = torch.from_numpy(together.diagonal()).float()
    label, other = (torch.from_numpy(part.astype(np.int64)) for part in together.nonzero())
    closer = torch.from_numpy(together.data).float() / count[label] - count[other] / max(len(candidates), 1)
    largest = torch.zeros_like(count).scatter_reduce_(0, label, torch.where(label == other, 0, closer), "amax")
    return float((largest * count).sum() / count.sum().clamp(min=1))
