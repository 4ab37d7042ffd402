"""Each augmentation against an independent reckoning: pixel by pixel, or PIL's own operation."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from mogd.augment import (
    AUGMENTATIONS,
    GREY,
    POOL,
    SIGNED,
    AlternatingFlip,
    apply,
    crop,
    cutout,
    flip,
    make_augmentation,
    rand_augment,
    translate,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(n: int = 64, shape: tuple[int, int, int] = (3, 32, 32), seed: int = 1) -> Tensor:
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=generator(seed))


def photographs(n: int = 8, seed: int = 2) -> Tensor:
    """Smooth colour images with different ranges in each channel."""
    g = generator(seed)
    coarse = torch.rand(n, 3, 4, 4, generator=g)
    fine = torch.nn.functional.interpolate(coarse, size=32, mode="bicubic").clamp(0, 1)
    return (20 + 190 * fine).round().to(torch.uint8)


def augmented(name: str, x: Tensor, seed: int) -> Tensor:
    return make_augmentation(name, x.shape[1:], generator(seed), len(x))(x, torch.arange(len(x)))


def test_flip_turns_whole_rows_and_about_half_of_them() -> None:
    x = noise(2000, (1, 4, 5))
    out = flip(x, generator())
    turned = (out == x.flip(3)).flatten(1).all(1)
    kept = (out == x).flatten(1).all(1)
    assert torch.all(turned | kept)
    assert abs(turned.float().mean() - 0.5) < 4 * 0.5 / 2000**0.5


def test_the_alternating_flip_shows_every_row_both_ways_in_two_visits() -> None:
    x = noise(50, (1, 4, 5))
    alternate = AlternatingFlip(50, generator())
    first, second = torch.randperm(50, generator=generator(3)), torch.randperm(50, generator=generator(4))
    seen = torch.empty(2, *x.shape, dtype=torch.uint8)
    seen[0, first], seen[1, second] = alternate(x[first], first), alternate(x[second], second)
    as_it_is = (seen == x).flatten(2).all(2)
    turned = (seen == x.flip(3)).flatten(2).all(2)
    assert torch.all(as_it_is[0] == turned[1])
    assert torch.all(as_it_is[1] == turned[0])
    assert 10 < as_it_is[0].sum() < 40


def test_translate_moves_by_two_pixels_at_most() -> None:
    x = noise(200, (3, 12, 12))
    out = translate(x, generator())
    inner = [
        [
            torch.equal(row[:, 2:-2, 2:-2], of[:, 2 + i : 10 + i, 2 + j : 10 + j])
            for i in range(-2, 3)
            for j in range(-2, 3)
        ]
        for row, of in zip(out, x, strict=True)
    ]
    assert np.all(np.sum(inner, axis=1) == 1)
    assert np.all(np.any(inner, axis=0))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28), (3, 12, 20)])
def test_crop_is_a_shifted_reflected_copy(shape: tuple[int, int, int]) -> None:
    x = noise(300, shape)
    out = crop(x, generator()).numpy()
    continued = np.pad(x.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
    height, width = shape[1:]
    shifts = []
    for row, big in zip(out, continued, strict=True):
        found = [
            (i, j) for i in range(9) for j in range(9) if np.array_equal(row, big[:, i : i + height, j : j + width])
        ]
        assert len(found) == 1
        shifts += found
    assert {i for i, _ in shifts} == {j for _, j in shifts} == set(range(9))


def test_cutout_greys_exactly_the_clipped_square() -> None:
    x = noise(3000, (3, 32, 32))
    x[x == GREY] = GREY + 1  # so that only the square is grey
    out = cutout(x, generator()).numpy()
    grey = (out == GREY).all(axis=1)
    assert np.array_equal(np.where(grey[:, None], x.numpy(), out), x.numpy())  # all else is untouched
    spans = [np.flatnonzero(square.any(axis=1)) for square in grey], [np.flatnonzero(s.any(axis=0)) for s in grey]
    for square, rows, columns in zip(grey, *spans, strict=True):
        for span in (rows, columns):
            assert np.array_equal(span, np.arange(span[0], span[-1] + 1))
            assert len(span) == 16 or span[0] == 0 or span[-1] == 31
            assert 8 <= len(span) <= 16
        assert square.sum() == len(rows) * len(columns)
    # a uniform centre c covers c-8 … c+7: the expected covered length is 16 - (8·9 + 7·8)/2 / 32
    expected = 16 - (8 * 9 / 2 + 7 * 8 / 2) / 32
    assert abs(np.mean([len(rows) for rows in spans[0]]) - expected) < 0.2


def pil(image: Tensor, change: object) -> np.ndarray:
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    return np.asarray(change(picture)).transpose(2, 0, 1)  # type: ignore[operator]


@pytest.mark.parametrize("tenths", [1, 4, 9])
@pytest.mark.parametrize(
    ("name", "change", "tolerance"),
    [
        ("autocontrast", lambda p, m: ImageOps.autocontrast(p), 1),
        ("brightness", lambda p, m: ImageEnhance.Brightness(p).enhance(0.05 + 0.9 * m), 1),
        ("color", lambda p, m: ImageEnhance.Color(p).enhance(0.05 + 0.9 * m), 1),
        ("contrast", lambda p, m: ImageEnhance.Contrast(p).enhance(0.05 + 0.9 * m), 1),
        ("equalize", lambda p, m: ImageOps.equalize(p), 1),
        ("identity", lambda p, m: p, 0),
        ("posterize", lambda p, m: ImageOps.posterize(p, 4 + int(4 * m)), 0),
        ("sharpness", lambda p, m: ImageEnhance.Sharpness(p).enhance(0.05 + 0.9 * m), 1),
        ("solarize", lambda p, m: ImageOps.solarize(p, 256 - int(256 * m)), 0),
    ],
)
def test_colour_operation_agrees_with_pil(name: str, change: object, tolerance: int, tenths: int) -> None:
    x, m = photographs(), tenths / 10
    out = apply(name, x, torch.full((len(x),), m)).numpy().astype(int)
    expected = np.stack([pil(image, lambda p: change(p, m)) for image in x]).astype(int)  # type: ignore[operator]
    assert np.abs(out - expected).max() <= tolerance


@pytest.mark.parametrize("tenths", [-9, -3, 3, 9])
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rotate", lambda p, m: p.rotate(30 * m)),
        ("shear-x", lambda p, m: p.transform(p.size, Image.Transform.AFFINE, (1, -0.3 * m, 0, 0, 1, 0))),
        ("shear-y", lambda p, m: p.transform(p.size, Image.Transform.AFFINE, (1, 0, 0, -0.3 * m, 1, 0))),
        ("translate-x", lambda p, m: p.transform(p.size, Image.Transform.AFFINE, (1, 0, -0.3 * m * 32, 0, 1, 0))),
        ("translate-y", lambda p, m: p.transform(p.size, Image.Transform.AFFINE, (1, 0, 0, 0, 1, -0.3 * m * 32))),
    ],
)
def test_warp_agrees_with_pil_up_to_the_choice_of_nearest_pixel(name: str, change: object, tenths: int) -> None:
    x, m = photographs(), tenths / 10
    out = apply(name, x, torch.full((len(x),), m)).numpy().astype(int)
    expected = np.stack([pil(image, lambda p: change(p, m)) for image in x]).astype(int)  # type: ignore[operator]
    near = np.abs(out - expected) <= 12  # neighbouring pixels of these smooth images differ by less
    assert near.mean() > 0.95
    assert (np.abs(apply(name, x, torch.full((len(x),), -m)).numpy() - expected) <= 12).mean() < 0.8  # the side counts


def test_an_operation_takes_each_rows_own_magnitude() -> None:
    x = photographs(4)
    magnitude = torch.tensor([0.1, 0.3, 0.6, 0.9])
    for name in POOL:
        alone = torch.cat([apply(name, x[i : i + 1], magnitude[i : i + 1]) for i in range(4)])
        assert torch.equal(apply(name, x, magnitude), alone), name


def test_a_constant_channel_survives_autocontrast() -> None:
    x = torch.full((1, 1, 8, 8), 90, dtype=torch.uint8)
    assert torch.equal(apply("autocontrast", x, torch.ones(1)), x)


def test_rand_augment_uses_the_whole_pool_and_leaves_a_quarter_alone() -> None:
    x = photographs(1).expand(1500, -1, -1, -1)
    out = rand_augment(x, generator())
    untouched = (out == x).flatten(1).all(1).float().mean()
    # not used twice: 1/4; identity counts as untouched: ((1 + 1/14) / 2)² of all rows, and some pairs undo each other
    assert abs(untouched - ((1 + 1 / 14) / 2) ** 2) < 0.05
    single = [
        apply(name, x[:1], torch.tensor([k / 10 * s]))
        for name in POOL
        for k in range(1, 10)
        for s in (1, -1)
        if s == 1 or name in SIGNED
    ]
    seen = {key.numpy().tobytes() for key in out}
    reached = [image.numpy().tobytes() in seen for image in single]
    assert np.mean(reached) > 0.9


@pytest.mark.parametrize("name", AUGMENTATIONS)
@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 28, 28)])
def test_same_seed_same_bits_own_draws_and_the_callers_state_untouched(name: str, shape: tuple[int, int, int]) -> None:
    x = noise(40, shape)
    kept = x.clone()
    before = torch.get_rng_state()
    first = augmented(name, x, 5)
    assert torch.equal(first, augmented(name, x, 5))
    assert not torch.equal(first, augmented(name, x, 6))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(x, kept)
    assert first.dtype == torch.uint8
    assert first.shape == x.shape
    copies = augmented(name, x[:1].expand(40, -1, -1, -1), 5)
    assert len({image.numpy().tobytes() for image in copies}) >= (2 if name == "flip" else 10)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_rows_are_not_mixed(name: str) -> None:
    """With the same draws a row comes out the same, whatever its neighbours are."""
    x, neighbours = noise(60), noise(60, seed=9)
    even = torch.arange(60) % 2 == 0
    other = torch.where(even[:, None, None, None], x, neighbours)
    first, second = (augmented(name, batch, 0) for batch in (x, other))
    assert torch.equal(first[even], second[even])
    assert not (first[~even] == second[~even]).flatten(1).all(1).any()


def test_refusals_name_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"augment must be None or one of flip, .*got 'mixup'"):
        make_augmentation("mixup", (3, 32, 32), generator())
    with pytest.raises(ValueError, match=r"got rows of shape \(64,\): pass augment=None"):
        make_augmentation("flip", (64,), generator())
    with pytest.raises(ValueError, match="needs 1 or 3 channels; got 4"):
        make_augmentation("randaugment", (4, 32, 32), generator())
    with pytest.raises(ValueError, match="dtype uint8"):
        make_augmentation("flip", (1, 8, 8), generator())(torch.zeros(2, 1, 8, 8))
    with pytest.raises(ValueError, match="'alternate' needs the index of every row"):
        make_augmentation("alternate", (1, 8, 8), generator(), 2)(torch.zeros(2, 1, 8, 8, dtype=torch.uint8))
    monkeypatch.setitem(sys.modules, "kornia", None)
    with pytest.raises(ImportError, match=r"mogd\[images\]"):
        make_augmentation("flip", (1, 8, 8), generator())
