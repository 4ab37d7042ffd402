"""Image augmentation a batch at a time: uint8 in, uint8 out, every row with its own draws from the generator given.

The pixels are moved by kornia (the extra `images`), imported on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

GREY = 127
Transform = Callable[[Tensor, torch.Generator], Tensor]
Augment = Callable[..., Tensor]  # of images and, optionally, their indices
Operation = Callable[[Tensor, Tensor], Tensor]  # images in [0, 1] and the magnitude in [0, 1] of each


def flip(x: Tensor, generator: torch.Generator) -> Tensor:
    """Every second row, on average, from right to left."""
    return _mirrored(x, torch.rand(len(x), generator=generator) < 0.5)


class AlternatingFlip:
    """A row that was from left to right when it was last seen comes from right to left now (Jordan, 2024).

    Two epochs show every row both ways, where independent draws show half of them the same way twice. The first way is
    drawn. It knows the rows by their index.
    """

    def __init__(self, n_rows: int, generator: torch.Generator) -> None:
        self.turned = torch.rand(n_rows, generator=generator) < 0.5

    def __call__(self, x: Tensor, index: Tensor) -> Tensor:
        index = index.cpu()
        chosen = self.turned[index]
        self.turned[index] = ~chosen
        return _mirrored(x, chosen)


def _mirrored(x: Tensor, chosen: Tensor) -> Tensor:
    chosen = chosen.to(x.device)[:, None, None, None]
    return torch.where(chosen, _kornia().geometry.transform.hflip(x), x)


def crop(x: Tensor, generator: torch.Generator, margin: int = 4) -> Tensor:
    """A window of the same size, moved by up to `margin` pixels each way over the image continued by reflection."""
    height, width = x.shape[2:]
    corner = torch.randint(2 * margin + 1, (len(x), 2), generator=generator)
    left, top = corner[:, 0], corner[:, 1]
    right, bottom = left + width - 1, top + height - 1
    box = torch.stack([left, top, right, top, right, bottom, left, bottom], dim=1).reshape(-1, 4, 2)
    continued = pad(x, (margin, margin, margin, margin), mode="reflect")
    return _kornia().geometry.transform.crop_by_indices(continued, box, size=(height, width))


def translate(x: Tensor, generator: torch.Generator) -> Tensor:
    """`crop` by up to 2 pixels."""
    return crop(x, generator, margin=2)


def cutout(x: Tensor, generator: torch.Generator, size: int = 16) -> Tensor:
    """A grey square around a random pixel, clipped at the border (DeVries and Taylor, 2017)."""
    height, width = x.shape[2:]
    centre_y = torch.randint(height, (len(x), 1), generator=generator)
    centre_x = torch.randint(width, (len(x), 1), generator=generator)
    rows, columns = _within(height, centre_y, size), _within(width, centre_x, size)
    square = rows[:, :, None] & columns[:, None, :]
    return x.masked_fill(square[:, None].to(x.device), GREY)


def rand_augment(x: Tensor, generator: torch.Generator, count: int = 2, most: int = 10) -> Tensor:
    """FixMatch's RandAugment: `count` times an operation of the pool, drawn anew for every row and used half the time.

    The magnitude is a whole number from 1 to `most` - 1, in tenths of the operation's range.
    """
    names = tuple(POOL)
    x = x.clone()
    for _ in range(count):
        which = torch.randint(len(names), (len(x),), generator=generator)
        magnitude = torch.randint(1, most, (len(x),), generator=generator) / 10
        used = torch.rand(len(x), generator=generator) < 0.5
        sign = torch.randint(2, (len(x),), generator=generator) * 2.0 - 1
        for i, name in enumerate(names):
            rows = torch.nonzero(used & (which == i)).flatten()
            if len(rows):
                value = magnitude[rows] * sign[rows] if name in SIGNED else magnitude[rows]
                x[rows.to(x.device)] = apply(name, x[rows.to(x.device)], value)
    return x


def apply(name: str, x: Tensor, magnitude: Tensor) -> Tensor:
    """One operation on uint8 images; the magnitude of each is in [0, 1], or in [-1, 1] where it has a side."""
    out = POOL[name](x.float() / 255, magnitude.to(device=x.device, dtype=torch.float32))
    return (out * 255).round().clamp(0, 255).to(torch.uint8)


def _factor(magnitude: Tensor) -> Tensor:
    """Of brightness, colour, contrast and sharpness: 1 leaves the image as it is."""
    return 0.05 + 0.9 * magnitude


def _autocontrast(x: Tensor, magnitude: Tensor) -> Tensor:
    low, high = x.amin(dim=(2, 3), keepdim=True), x.amax(dim=(2, 3), keepdim=True)
    return torch.where(high > low, _kornia().enhance.normalize_min_max(x), x)


def _affine(x: Tensor, name: str, **amounts: Tensor) -> Tensor:
    """A warp by the nearest pixel, black from beyond the border."""
    warp = getattr(_kornia().geometry.transform, name)
    return warp(x, **amounts, mode="nearest", align_corners=True)


def _along(axis: str, amount: Tensor) -> Tensor:
    """`(n, 2)` amounts along x and y, one of them zero."""
    zero = torch.zeros_like(amount)
    return torch.stack([amount, zero] if axis == "x" else [zero, amount], dim=1)


# the pool and ranges of FixMatch's RandAugmentMC
POOL: dict[str, Operation] = {
    "autocontrast": _autocontrast,
    "brightness": lambda x, m: _kornia().enhance.adjust_brightness_accumulative(x, _factor(m)),
    "color": lambda x, m: _kornia().enhance.adjust_saturation_with_gray_subtraction(x, _factor(m)),
    "contrast": lambda x, m: _kornia().enhance.adjust_contrast_with_mean_subtraction(x, _factor(m)),
    "equalize": lambda x, m: _kornia().enhance.equalize(x),
    "identity": lambda x, m: x,
    "posterize": lambda x, m: _kornia().enhance.posterize(x, 4 + (4 * m).int()),
    "rotate": lambda x, m: _affine(x, "rotate", angle=30 * m),
    "sharpness": lambda x, m: _kornia().enhance.sharpness(x, _factor(m)),
    "shear-x": lambda x, m: _affine(x, "shear", shear=_along("x", 0.3 * m)),
    "shear-y": lambda x, m: _affine(x, "shear", shear=_along("y", 0.3 * m)),
    "solarize": lambda x, m: _kornia().enhance.solarize(x, (256 - (256 * m).int()) / 255),
    "translate-x": lambda x, m: _affine(x, "translate", translation=_along("x", 0.3 * m * x.shape[3])),
    "translate-y": lambda x, m: _affine(x, "translate", translation=_along("y", 0.3 * m * x.shape[2])),
}
SIGNED = frozenset({"rotate", "shear-x", "shear-y", "translate-x", "translate-y"})

AUGMENTATIONS: dict[str, tuple[Transform, ...]] = {
    "flip": (flip,),
    "flip-crop": (flip, crop),  # FixMatch's weak augmentation
    "cutout": (flip, cutout),  # the MoGD paper's words: "containing Cutout and random horizontal flip"
    "randaugment": (flip, crop, rand_augment, cutout),  # FixMatch's strong augmentation
    "alternate": (translate,),  # airbench's: behind an alternating flip
}


def make_augmentation(name: str, shape: Sequence[int], generator: torch.Generator, n_rows: int = 0) -> Augment:
    """The augmentation of that name for uint8 images of `shape` (channels, height, width), drawing from `generator`.

    It takes images and, for "alternate", their indices among the `n_rows` rows that train.
    """
    if name not in AUGMENTATIONS:
        raise ValueError(f"augment must be None or one of {', '.join(AUGMENTATIONS)}; got {name!r}")
    if len(shape) != 3 or min(shape[1:]) < 5:
        raise ValueError(
            f"augment={name!r} needs images of shape (channels, height, width), 5 pixels or more a side; "
            f"got rows of shape {tuple(shape)}: pass augment=None"
        )
    if name == "randaugment" and shape[0] not in (1, 3):
        raise ValueError(f"augment='randaugment' needs 1 or 3 channels; got {shape[0]}: take 'cutout' or 'flip-crop'")
    _kornia()  # a missing package is reported before training starts
    alternate = AlternatingFlip(n_rows, generator) if name == "alternate" else None

    def augment(batch: Tensor, index: Tensor | None = None) -> Tensor:
        if batch.dtype != torch.uint8:
            raise ValueError(
                f"augment={name!r} needs images of dtype uint8 (0 to 255); got {batch.dtype}: pass X as uint8"
            )
        if alternate is not None:
            if index is None:
                raise ValueError("augment='alternate' needs the index of every row: augment(batch, index)")
            batch = alternate(batch, index)
        for transform in AUGMENTATIONS[name]:
            batch = transform(batch, generator)
        return batch

    augment.alternate = alternate  # type: ignore[attr-defined]  # a checkpoint keeps its state
    return augment


def _within(length: int, centre: Tensor, size: int) -> Tensor:
    """Which of `length` positions lie in the `size` ones around each centre."""
    start = torch.arange(length) - centre + size // 2
    return (start >= 0) & (start < size)


def _kornia() -> Any:
    try:
        import kornia
    except ImportError as error:
        raise ImportError("augment needs kornia: pip install 'mogd[images]'") from error
    return kornia
