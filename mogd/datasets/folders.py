"""A folder of pictures and a table that names them, as uint8 images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PureWindowsPath
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from mogd.candidates import name_rows
from mogd.datasets.frames import need
from mogd.wording import option

if TYPE_CHECKING:
    import polars as pl

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")  # others may start programs, as EPS does Ghostscript


class ImageEncoder:
    """Pictures of a folder, by their file names in one column; the features of a table of images.

    Parameters
    ----------
    folder : where the files are. column : the column with their names.
    size : `(height, width)` to which every picture is brought; None demands that all have one size.

    Attributes
    ----------
    shape_ : `(channels, height, width)`; grey when all pictures of the training table are.
    """

    kind = "images"

    def __init__(self, folder: str | os.PathLike[str], column: str = "file", size: Sequence[int] | None = None) -> None:
        self.folder = folder
        self.column = column
        self.size = size

    missing_: Mapping[str, int] = {}  # a picture is there or refused
    ignored_: Sequence[str] = ()
    feature_names_: None = None

    def fit(self, frame: pl.DataFrame) -> Self:
        """Learn the number of channels and the size."""
        modes: set[str] = set()
        sizes: dict[tuple[int, int], str] = {}
        for name in self._names(frame):
            with self._open(name) as picture:
                modes.add(picture.mode)
                sizes.setdefault((picture.height, picture.width), name)
        if self.size is None and len(sizes) > 1:
            (one, a), (other, b) = list(sizes.items())[:2]
            raise ValueError(
                f"the pictures have different sizes ({a} is {one[0]}×{one[1]}, {b} is {other[0]}×{other[1]}): "
                f"name the size they are to have, such as {option('size', (32, 32))}"
            )
        height, width = next(iter(sizes)) if self.size is None else self.size
        self.shape_ = (1 if modes <= {"1", "L"} else 3, int(height), int(width))
        return self

    def transform(self, frame: pl.DataFrame) -> np.ndarray:
        """Images `(n, channels, height, width)` of dtype uint8."""
        names = self._names(frame)
        channels, height, width = self.shape_
        images = np.empty((len(names), *self.shape_), dtype=np.uint8)
        for i, name in enumerate(names):
            with self._open(name) as picture:
                if self.size is None and (picture.height, picture.width) != (height, width):
                    raise ValueError(f"{name} is {picture.height}×{picture.width}; the model takes {height}×{width}")
                try:
                    picture = picture.convert("L" if channels == 1 else "RGB")
                except Exception as error:  # a damaged picture can raise nearly anything
                    raise ValueError(f"{name} in {self.folder} is damaged: {error}") from None
                if (picture.height, picture.width) != (height, width):
                    picture = picture.resize((width, height))
                images[i] = np.asarray(picture).reshape(height, width, channels).transpose(2, 0, 1)
        return images

    def arrays(self) -> dict[str, np.ndarray]:
        return {}

    def fit_transform(self, frame: pl.DataFrame) -> np.ndarray:
        return self.fit(frame).transform(frame)

    def to_json(self) -> dict[str, Any]:
        """Everything but the folder, which is another one at prediction time."""
        size = None if self.size is None else [int(s) for s in self.size]
        return {"kind": self.kind, "column": self.column, "size": size, "shape": list(self.shape_)}

    @classmethod
    def from_json(cls, state: Mapping[str, Any], folder: str | os.PathLike[str] = ".") -> Self:
        encoder = cls(folder, str(state["column"]), state["size"])
        channels, height, width = (int(s) for s in state["shape"])
        encoder.shape_ = (channels, height, width)
        return encoder

    def _names(self, frame: pl.DataFrame) -> list[str]:
        need(frame, self.column, "the file names of the pictures")
        names = frame[self.column].to_list()
        absent = [i for i, name in enumerate(names) if not isinstance(name, str)]
        if absent:
            raise ValueError(f"column {self.column!r} names no file in {name_rows(absent)}")
        outside = [name for name in names if _leads_outside(name)]
        if outside:
            raise ValueError(
                f"column {self.column!r} names {outside[0]!r}, which is not a path inside of the folder of the "
                "pictures: name them by their place in that folder"
            )
        return names

    def _open(self, name: str) -> Any:
        path = Path(self.folder) / name
        if not path.is_file():
            raise FileNotFoundError(f"there is no picture {path}, which column {self.column!r} names")
        return open_picture(path)


def open_picture(path: Path) -> Any:
    """A picture of one of the kinds that start no program."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("reading pictures needs pillow: pip install 'mogd[images]'") from None
    if not path.is_file():  # a pipe would be waited for
        raise FileNotFoundError(f"there is no picture {path}")
    try:
        return Image.open(path, formats=FORMATS)
    except Exception:
        raise ValueError(f"{path} is not a picture that can be read: use one of {', '.join(FORMATS)}") from None


def _leads_outside(name: str) -> bool:
    """Whether a name is absolute or climbs out of its folder, in the notation of any system."""
    windows = PureWindowsPath(name)
    return bool(windows.drive or windows.root) or ".." in windows.parts or "\0" in name
