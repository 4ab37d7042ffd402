"""Backbones: sizes by independent arithmetic, features under the head, dropout off at test time, forward-mode AD."""

from __future__ import annotations

import math
import warnings
from inspect import signature
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from mogd import PartialLabelClassifier
from mogd.methods.meta import alignment
from mogd.nets import BACKBONES, Net, Normalize, WideBlock, channel_statistics, make_backbone

IMAGES = [(3, 32, 32), (1, 28, 28)]
SMALL = {
    "linear": {},
    "rbf": {"landmarks": 8},
    "mlp": {"width": 0.05},
    "cnn": {"width": 0.25},
    "convnet": {"width": 1 / 32},
}
SMALL["wide-resnet"] = {"depth": 10, "widen": 1, "width": 0.25}
SMALL["airbench"] = {"width": 1 / 16}
WITH_DROPOUT = [name for name in BACKBONES if "dropout" in signature(BACKBONES[name]).parameters]


def small(name: str, shape: tuple[int, int, int], n_classes: int, **params: object) -> Net:
    """A small backbone, ready to be trained on images of noise."""
    net = make_backbone(name, shape, n_classes, **(SMALL[name] | params))
    if hasattr(net, "prepare"):
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(40, *shape, generator=generator)
        net.prepare(x, torch.ones(40, n_classes, dtype=torch.bool), generator)
    return net


def count(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def convnet_size(channels: int, n_classes: int) -> int:
    path = [channels, 128, 128, 128, 256, 256, 256, 512, 256, 128]
    kernels = sum(9 * a * b for a, b in pairwise(path))
    return kernels + 2 * sum(path[1:]) + 128 * n_classes + n_classes


def wide_resnet_size(channels: int, n_classes: int, depth: int, widen: int) -> int:
    total, size = 9 * channels * 16, 16
    for stage in range(3):
        out = 16 * 2**stage * widen
        for _ in range((depth - 4) // 6):
            total += 2 * size + 9 * size * out + 2 * out + 9 * out * out
            total += size * out if size != out else 0
            size = out
    return total + 2 * size + size * n_classes + n_classes


@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 28)])
def test_convnet_has_its_4_4_million_parameters(channels: int, side: int) -> None:
    size = count(make_backbone("convnet", (channels, side, side), 10))
    assert size == convnet_size(channels, 10)
    assert round(size / 1e6, 1) == 4.4


@pytest.mark.parametrize(("widen", "n_classes", "millions"), [(2, 10, 1.47), (8, 100, 23.40)])
def test_wide_resnet_28_has_the_published_size(widen: int, n_classes: int, millions: float) -> None:
    with torch.device("meta"):  # 23 million numbers need not be drawn to be counted
        size = count(make_backbone("wide-resnet", (3, 32, 32), n_classes, widen=widen))
    assert size == wide_resnet_size(3, n_classes, 28, widen)
    assert round(size / 1e6, 2) == millions


def test_wide_resnet_28_has_28_convolutions() -> None:
    kernels = [
        m.kernel_size for m in make_backbone("wide-resnet", (3, 32, 32), 10).modules() if isinstance(m, nn.Conv2d)
    ]
    assert len(kernels) == 28
    assert kernels.count((1, 1)) == 3  # one shortcut for each stage


def test_convnet_follows_its_table() -> None:
    net = make_backbone("convnet", (3, 32, 32), 10)
    shapes: list[tuple[int, ...]] = []
    for m in net.body.modules():
        if isinstance(m, (nn.Conv2d, nn.MaxPool2d)):
            m.register_forward_hook(lambda m, i, o: shapes.append(tuple(o.shape[1:])))
    net(torch.zeros(2, 3, 32, 32))
    first = [(128, 32, 32)] * 3 + [(128, 16, 16)] + [(256, 16, 16)] * 3 + [(256, 8, 8)]
    assert shapes == [*first, (512, 6, 6), (256, 4, 4), (128, 2, 2)]
    assert [m.negative_slope for m in net.modules() if isinstance(m, nn.LeakyReLU)] == [0.01] * 9
    assert [m.p for m in net.modules() if isinstance(m, nn.Dropout2d)] == [0.25] * 2


def test_prodens_mlp_is_expressible() -> None:
    net = make_backbone("mlp", (784,), 10, hidden=(300, 301, 302, 303), dropout=0)
    sizes = [784, 300, 301, 302, 303]
    hidden = sum(a * b + 2 * b for a, b in pairwise(sizes))  # no bias; BatchNorm's two vectors
    assert count(net) == hidden + 303 * 10 + 10


def test_a_wide_block_is_its_formula() -> None:
    """Second stage, first block: shortcut from the raw input, both convolutions on activated input."""
    torch.manual_seed(0)
    net = make_backbone("wide-resnet", (3, 8, 8), 4, depth=10, widen=1, width=0.25).double()
    first, second = [m for m in net.body if isinstance(m, WideBlock)][:2]
    x = torch.randn(3, 4, 8, 8, dtype=torch.float64)

    def bn(v: torch.Tensor) -> torch.Tensor:  # weight 1, bias 0
        mean, var = v.mean((0, 2, 3), keepdim=True), v.var((0, 2, 3), keepdim=True, unbiased=False)
        return (v - mean) / (var + 1e-5).sqrt()

    def act(v: torch.Tensor) -> torch.Tensor:
        return torch.where(v > 0, v, 0.1 * v)

    def conv(v: torch.Tensor, layer: nn.Conv2d) -> torch.Tensor:
        return nn.functional.conv2d(v, layer.weight, stride=layer.stride, padding=layer.padding)

    entered = act(bn(x))
    expected = entered + conv(act(bn(conv(entered, first.residual[0]))), first.residual[4])
    torch.testing.assert_close(first(x), expected)
    expected = conv(x, second.shortcut) + conv(act(bn(conv(entered, second.residual[0]))), second.residual[4])
    torch.testing.assert_close(second(x), expected)
    assert second(x).shape[2:] == (4, 4)


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("name", BACKBONES)
def test_logits_are_the_head_of_the_features(name: str, shape: tuple[int, int, int]) -> None:
    net = small(name, shape, 7).eval()
    x = torch.randn(5, *shape)
    features = net.features(x)
    assert features.ndim == 2
    bias = 0 if net.head.bias is None else net.head.bias
    torch.testing.assert_close(net(x), features @ net.head.weight.T + bias)


@pytest.mark.parametrize("name", WITH_DROPOUT)
def test_dropout_is_off_at_test_time(name: str) -> None:
    net = small(name, (1, 28, 28), 3, dropout=0.5)
    x = torch.randn(6, 1, 28, 28)
    net.eval()
    assert torch.equal(net(x), net(x))
    net.train()
    assert not torch.equal(net(x), net(x))


@pytest.mark.parametrize("name", [name for name in BACKBONES if name not in ("linear", "rbf")])
def test_width_scales_the_layers(name: str) -> None:
    params = {key: value for key, value in SMALL[name].items() if key != "width"}
    sizes = [count(make_backbone(name, (3, 32, 32), 10, width=w, **params)) for w in (0.25, 0.5, 1.0)]
    assert sizes[0] < sizes[1] < sizes[2]
    if name in ("convnet", "wide-resnet"):
        assert 3 < sizes[2] / sizes[1] < 4.2  # the kernels grow by the square


def test_batch_norm_momentum_is_a_parameter() -> None:
    net = make_backbone("wide-resnet", (3, 32, 32), 10, depth=10, bn_momentum=0.001)
    assert {m.momentum for m in net.modules() if isinstance(m, nn.BatchNorm2d)} == {0.001}


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("name", BACKBONES)
def test_the_meta_step_passes_forward_through(name: str, shape: tuple[int, int, int]) -> None:
    """Forward mode works (no warning of a slower way), in training mode, and equals the gradients' inner product."""
    torch.manual_seed(0)
    net = small(name, shape, 3, **({"dropout": 0.0} if name in WITH_DROPOUT else {})).double()
    x, clean_x = torch.randn(4, *shape).double(), torch.randn(5, *shape).double()
    clean_y = torch.tensor([0, 1, 2, 1, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        logits, found = alignment(net, x, clean_x, clean_y)
    clean = torch.autograd.grad(cross_entropy(net(clean_x), clean_y), list(net.parameters()))
    for i, j in ((0, 0), (1, 2), (3, 1)):
        loss = cross_entropy(net(x)[i : i + 1], torch.tensor([j]))
        own = torch.autograd.grad(loss, list(net.parameters()))
        expected = sum((a * b).sum() for a, b in zip(own, clean, strict=True))
        torch.testing.assert_close(found[i, j], expected, rtol=1e-7, atol=1e-10)
    assert logits.requires_grad


@pytest.mark.parametrize("name", BACKBONES)
def test_the_meta_step_shares_dropouts_masks(name: str) -> None:
    net = small(name, (1, 28, 28), 3)
    x = torch.randn(4, 1, 28, 28)
    torch.manual_seed(3)
    logits, found = alignment(net, x, x, torch.tensor([0, 1, 2, 0]))
    torch.manual_seed(3)
    net(x)  # the clean rows' masks come first
    torch.testing.assert_close(logits, net(x))
    assert torch.isfinite(found).all()


def test_refusals_name_the_way_out() -> None:
    with pytest.raises(
        ValueError, match=r"one of linear, mlp, rbf, cnn, convnet, wide-resnet, airbench or .* got 'resnet'"
    ):
        make_backbone("resnet", (3, 32, 32), 10)
    with pytest.raises(ValueError, match=r"got \(64,\): reshape X"):
        make_backbone("cnn", (64,), 10)
    with pytest.raises(
        ValueError, match=r"'convnet' needs images of at least 28×28 pixels; got \(1, 8, 8\): take 'cnn'"
    ):
        make_backbone("convnet", (1, 8, 8), 10)
    with pytest.raises(ValueError, match="channels come first"):
        make_backbone("wide-resnet", (32, 32, 3), 10)
    with pytest.raises(ValueError, match=r"depth must be 6n \+ 4.*got 20"):
        make_backbone("wide-resnet", (3, 32, 32), 10, depth=20)


def test_channel_statistics_and_normalize_are_exact() -> None:
    x = torch.randint(0, 256, (50, 2, 9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 200
    mean, std = channel_statistics(x)
    values = x[:, 0].numpy().astype(np.float64)
    assert math.isclose(mean[0], values.mean())
    assert math.isclose(std[0], values.std())
    assert (mean[1], std[1]) == (200, 1)
    out = Normalize(mean, std)(x)
    assert out.dtype == torch.float64
    torch.testing.assert_close(out[:, 0].numpy(), (values - values.mean()) / values.std())


def textures(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Stripes lying, stripes standing, squares or nothing, in noise, at a random place."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    down, right = (rng.integers(4, size=(2, n))[:, :, None] + np.arange(28)) // 2 % 2
    lying, standing = np.broadcast_arrays(down[:, :, None], right[:, None, :])
    patterns = np.stack([lying, standing, lying ^ standing, np.zeros_like(lying)], axis=1)
    x = rng.integers(0, 120, size=(n, 1, 28, 28)) + 100 * patterns[np.arange(n), y][:, None]
    return x.astype(np.uint8), y


@pytest.mark.parametrize(
    ("name", "augment"), [("cnn", None), ("cnn", "randaugment"), ("convnet", None), ("wide-resnet", None)]
)
def test_image_backbones_learn_from_candidate_sets(name: str, augment: str | None) -> None:
    x, y = textures(200, 0)
    test_x, test_y = textures(100, 1)
    candidates = np.eye(4, dtype=int)[y] | (np.random.default_rng(2).random((200, 4)) < 0.15)
    lr = 0.05 if name == "convnet" else 0.02
    model = PartialLabelClassifier(
        "mogd", name, backbone_params=SMALL[name], augment=augment, epochs=16, batch_size=20, lr=lr, random_state=0
    )
    model.fit(x, candidates, X_val=x[:20], y_val=y[:20])
    assert model.score(test_x, test_y) > 0.9
    assert model.module_[0].mean.shape == (1, 1, 1)


def test_images_without_a_channel_axis_are_taken_as_grey() -> None:
    x, y = textures(60, 0)
    options = {"backbone_params": SMALL["cnn"], "epochs": 2, "random_state": 0}
    with_axis = PartialLabelClassifier("pce", "cnn", **options).fit(x, y)
    without = PartialLabelClassifier("pce", "cnn", **options).fit(x[:, 0], y)
    assert np.array_equal(with_axis.predict_proba(x), without.predict_proba(x[:, 0]))
