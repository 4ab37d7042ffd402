"""A small problem for MoGD's tests, and a batch of it with which the method has begun."""

from __future__ import annotations

import numpy as np
import torch
from forms_tools import sets_of
from torch import nn

from mogd.methods.base import Batch, TrainingData
from mogd.methods.mogd import MoGD
from mogd.methods.rows import by_rows


def problem(
    seed: int, n: int = 24, d: int = 6, k: int = 4, m: int = 10
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(k, d)) * 2
    y, clean_y = rng.integers(k, size=n), rng.integers(k, size=m)
    candidates = rng.random((n, k)) < 0.4
    candidates[np.arange(n), y] = True
    x, clean_x = centres[y] + rng.normal(size=(n, d)), centres[clean_y] + rng.normal(size=(m, d))
    return (torch.tensor(x), torch.tensor(candidates), torch.tensor(clean_x), torch.tensor(clean_y))


def begin(method: MoGD, model: nn.Module, seed: int = 0, **sizes: int) -> tuple[Batch, TrainingData]:
    x, candidates, clean_x, clean_y = problem(seed, **sizes)
    weight = torch.ones(len(x), dtype=torch.float64)
    data = TrainingData(x, sets_of(candidates), weight, clean_x, clean_y)
    method.start(model, data, torch.Generator().manual_seed(seed))
    index = torch.arange(len(x))
    confidence = by_rows(method.init_confidence, data.candidates)
    batch = Batch(index, x, data.candidates[index], confidence[index], weight)
    return batch, data
