"""airbench's network: its size, its whitening, its identity start, and bfloat16."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import torch
from torch import nn

import mogd
from mogd.datasets import load_images
from mogd.datasets.sources import find
from mogd.nets import make_backbone
from mogd.nets.airbench import WHITENING_EPS, DiracConv, Whitening

AIRBENCH = {
    "backbone": "airbench",
    "backbone_params": {"width": 0.25},
    "epochs": 3,
    "batch_size": 500,
    "optimizer": "muon",
    "lr": 0.2,
    "momentum": 0.85,
    "schedule": "linear",
    "augment": "alternate",
    "precision": "bf16",
}


def photographs(n: int, shape: tuple[int, int, int], seed: int = 0) -> torch.Tensor:
    """Smooth images, whose patches are anything but white."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n, shape[0], 6, 6, generator=generator)
    return nn.functional.interpolate(coarse, size=shape[1:], mode="bicubic") + 0.05 * torch.randn(
        n, *shape, generator=generator
    )


@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 28), (1, 32), (3, 28)])
@pytest.mark.parametrize("width", [1.0, 0.25])
def test_the_number_of_parameters(channels: int, side: int, width: float) -> None:
    net = make_backbone("airbench", (channels, side, side), 10, width=width)
    a, b = (64, 256) if width == 1 else (16, 64)
    first = 8 * channels  # four pixels a patch, both signs
    kernels = 9 * (first * a + a * a + a * b + 3 * b * b)
    expected = kernels + first + 2 * a + 4 * b + 10 * b  # biases of whitening and BatchNorm, head without one
    assert sum(p.numel() for p in net.parameters()) == expected
    if (channels, width) == (3, 1.0):
        assert expected == 1_971_352
    assert net(torch.zeros(2, channels, side, side)).shape == (2, 10)


def test_whitened_patches_are_white() -> None:
    x = photographs(400, (3, 32, 32))
    net = make_backbone("airbench", (3, 32, 32), 10, width=1 / 16)
    net.prepare(x, torch.ones(len(x), 10, dtype=torch.bool), torch.Generator())
    whitening = net.body[1]
    assert isinstance(whitening, Whitening)
    out = whitening(x)[:, :12].transpose(0, 1).flatten(1)
    moment = out @ out.T / out.shape[1]
    patches = nn.functional.unfold(x, 2).transpose(1, 2).reshape(-1, 12)
    values = torch.linalg.eigvalsh(patches.T @ patches / len(patches)).flip(0)
    torch.testing.assert_close(moment, torch.diag(values / (values + WHITENING_EPS)), atol=2e-3, rtol=0)
    assert torch.equal(whitening.weight[12:], -whitening.weight[:12])
    assert "weight" not in dict(whitening.named_parameters())


@pytest.mark.parametrize(("size", "out"), [(3, 8), (8, 8), (8, 3)])
def test_a_convolution_begins_by_handing_its_input_on(size: int, out: int) -> None:
    x = torch.randn(2, size, 5, 5)
    handed = min(size, out)
    torch.testing.assert_close(DiracConv(size, out)(x)[:, :handed], x[:, :handed])


def test_bfloat16_is_close_and_keeps_float32_weights_and_statistics() -> None:
    torch.manual_seed(0)
    net = make_backbone("airbench", (3, 32, 32), 10, width=0.25)
    x = photographs(64, (3, 32, 32))
    net.prepare(x, torch.ones(len(x), 10, dtype=torch.bool), torch.Generator())
    exact = net(x)
    net.in_bfloat16 = True
    half = net(x)
    assert half.dtype == torch.float32
    assert not torch.equal(half, exact)
    torch.testing.assert_close(half, exact, atol=0.1 * float(exact.detach().std()), rtol=0.05)
    half.square().mean().backward()
    assert {p.grad.dtype for p in net.parameters() if p.grad is not None} == {torch.float32}
    assert {b.dtype for b in net.buffers() if b.is_floating_point()} == {torch.float32}


def stripes(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noise, lying or standing stripes, and candidate sets."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    X = rng.integers(0, 120, (n, 1, 28, 28))
    X[y == 1, :, ::2] += 100
    X[y == 2, :, :, ::2] += 100
    return X.astype(np.uint8), y, np.eye(3, dtype=bool)[y] | (rng.random((n, 3)) < 0.2)


def test_it_learns_in_bfloat16_by_muon_and_survives_saving(tmp_path: Path) -> None:
    X, y, candidates = stripes(240)
    params = AIRBENCH | {"backbone_params": {"width": 1 / 16}, "epochs": 4, "batch_size": 20, "lr": 0.1}
    params |= {"predict_views": "mirror-shift", "random_state": 0}
    model = mogd.make("cc", **params).fit(X[40:], candidates[40:])
    assert model.score(X[:40], y[:40]) > 0.9
    mogd.save(model, tmp_path / "model")
    loaded = mogd.load(tmp_path / "model")
    assert np.array_equal(loaded.predict_proba(X[:40]), model.predict_proba(X[:40]))
    assert not np.array_equal(loaded.set_params(predict_views=None).predict_proba(X[:40]), model.predict_proba(X[:40]))
    again = mogd.make("cc", **params).fit(X[40:], candidates[40:])
    assert np.array_equal(again.confidence_, model.confidence_)


@pytest.mark.parametrize("meta", ["head", "all"])
def test_the_meta_step_works_in_bfloat16(meta: str) -> None:
    X, y, candidates = stripes(80)
    params = {"backbone": "airbench", "backbone_params": {"width": 1 / 16}, "precision": "bf16", "epochs": 1}
    model = mogd.make("mogd", meta=meta, **params, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X[20:], candidates[20:], X_val=X[:20], y_val=y[:20])
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.slow
def test_a_fifth_of_cifar10_passes_60_percent_within_a_minute(missing: Callable[[str], NoReturn]) -> None:
    """Three epochs at a quarter of the width; the minute is the processor's, on one thread."""
    if find("cifar10") is None:
        missing("this needs CIFAR-10: `mogd datasets fetch cifar10`")
    data = load_images("cifar10")
    model = mogd.make("supervised", **AIRBENCH, random_state=0)
    began = time.process_time()
    model.fit(data.X_train[:10000], data.y_train[:10000])
    assert time.process_time() - began < 60
    assert model.score(data.X_train[-2000:], data.y_train[-2000:]) > 0.6
