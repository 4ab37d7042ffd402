"""Checked rows as tensors: what is trained on, the fixed features of it, and what it was resolved to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from mogd.callbacks.base import Callback
from mogd.compressed import Matrix
from mogd.estimator import Rows
from mogd.methods.base import Batch, Method, Output, TrainingData
from mogd.methods.common import IMAGES_AT_ONCE, forward_in_chunks, frozen_buffers, posterior
from mogd.methods.common import with_features as features_of
from mogd.methods.meta import MOST_CLEAN_ROWS
from mogd.methods.rows import CompressedRows, StreamedRows, by_rows
from mogd.methods.rows import Rows as RowsOf
from mogd.nets import Net
from mogd.rowsource import LazyRows

FEATURE_BYTES = 2 << 30  # of fixed features that are computed once; beyond, a batch at a time


def as_input(X: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Images stay uint8 in memory; everything else becomes the network's dtype, sparse rows and those on the disk when
    they are asked for."""
    if isinstance(X, LazyRows):
        return cast(Tensor, StreamedRows(X, dtype, device))
    if sp.issparse(X):
        return cast(Tensor, CompressedRows.of(X, device, dtype))
    if X.dtype == np.uint8 and X.ndim > 2:
        images = torch.from_numpy(np.ascontiguousarray(X)).to(device)
        return images.unsqueeze(1) if X.ndim == 3 else images  # grey images may come without a channel axis
    X = np.ascontiguousarray(X, dtype=np.float32 if dtype == torch.float32 else np.float64)
    return torch.from_numpy(X if X.flags.writeable else X.copy()).to(device)


def training_data(rows: Rows, epochs: int, dtype: torch.dtype, device: torch.device) -> TrainingData:
    sets = rows.clean_candidates
    return TrainingData(
        x=as_input(rows.X, dtype, device),
        candidates=_on_device(rows.candidates, device),
        weight=torch.from_numpy(rows.weight).to(device=device, dtype=dtype),
        clean_x=as_input(_dense_if_few(rows.clean_X), dtype, device),
        clean_y=torch.from_numpy(rows.clean_y).to(device),
        epochs=epochs,
        is_clean=torch.from_numpy(rows.is_clean).to(device),
        evidence=rows.evidence,
        clean_evidence=rows.clean_evidence,
        clean_candidates=None if sets is None else torch.from_numpy(sets).to(device),
    )


def with_features(net: nn.Module, data: TrainingData) -> tuple[nn.Module, TrainingData]:
    """What is trained and on which rows: where the features are fixed, the head on features that are computed once."""
    if not isinstance(net, Net) or not net.has_fixed_features:
        return net, data
    if len(data.x) * net.head.in_features * net.head.weight.element_size() > FEATURE_BYTES:
        return net, data
    x, clean_x = (forward_in_chunks(net.body, rows) for rows in (data.x, data.clean_x))
    return net.head, replace(data, x=x, clean_x=clean_x)


def resolved(
    net: nn.Module,
    method: Method,
    data: TrainingData,
    callbacks: Sequence[Callback],
    confidence: RowsOf,
    *,
    altered: bool,
) -> RowsOf:
    """What the rows are resolved to: the confidences of training, or the posterior of the trained network.

    A posterior that training took of altered copies of the rows gives way to that of the rows themselves, unless the
    network was weighed as it was in training.
    """
    keeps_own = method.updates_confidence
    if altered and method.is_posterior:
        keeps_own = any(callback.weighs_network for callback in callbacks)
    if keeps_own:
        return confidence
    sets = data.candidates
    if method.updates_confidence:  # what it has ruled out stays so
        sets = by_rows(lambda sets, values: sets & (values > 0), sets, confidence)
    return _final_posterior(net, data, callbacks, sets)


def _final_posterior(net: nn.Module, data: TrainingData, callbacks: Sequence[Callback], sets: RowsOf) -> RowsOf:
    """The posterior on `sets` of the trained network and of the opinions beside it."""
    wants_features = any(callback.wants_features for callback in callbacks)

    @torch.no_grad()
    def posteriors(sets: Tensor, candidates: Tensor, index: Tensor, x: Tensor) -> Tensor:
        batch = Batch(
            index,
            x,
            candidates,
            candidates.to(data.weight.dtype),
            data.weight[index],
            data.is_clean[index],
            progress=1.0,
        )
        out = Output(*_with_features_in_chunks(net, x)) if wants_features else Output(forward_in_chunks(net, x))
        for callback in callbacks:
            callback.on_output(out, batch)
        return posterior(out.opinion, sets)

    return by_rows(posteriors, sets, data.candidates, torch.arange(len(data.x), device=data.x.device), data.x)


def _with_features_in_chunks(net: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    with frozen_buffers(net, single=True) as buffers:  # in evaluation mode
        parts = [features_of(net, part, buffers) for part in x.split(IMAGES_AT_ONCE)]
    logits, features = zip(*parts, strict=True)
    return torch.cat(logits), torch.cat(features)


def _dense_if_few(clean_X: Any) -> Any:
    """Clean rows as an array: each step looks at them. Where they are many, a step draws some."""
    few = clean_X.shape[0] <= MOST_CLEAN_ROWS
    return clean_X.toarray() if sp.issparse(clean_X) and few else clean_X


def _on_device(candidates: Matrix, device: torch.device) -> RowsOf:
    if sp.issparse(candidates):
        return CompressedRows.of(candidates, device)
    return torch.from_numpy(candidates).to(device)
