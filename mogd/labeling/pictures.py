"""The file of a row's picture, and nothing outside the folder that was given."""

from __future__ import annotations

from pathlib import Path

from mogd.labeling.rows import LabelRows

KINDS = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
    ".avif": "image/avif",
}
MOST_BYTES = 50_000_000


def find_picture(rows: LabelRows, row: int) -> Path:
    """The picture that the table names for a row; refused where it is no picture, too large or outside the folder."""
    name = rows.frame[rows.image_column][row] if rows.image_column else None
    if rows.images is None or not isinstance(name, str) or not name or "\0" in name:
        raise FileNotFoundError("this row names no picture")
    folder = rows.images.resolve()
    path = (folder / name).resolve()  # links are followed before the folder is compared
    if not path.is_relative_to(folder):
        raise FileNotFoundError(f"{name} lies outside the folder of pictures, so it is not shown")
    if path.suffix.lower() not in KINDS:
        raise FileNotFoundError(f"{name} is no picture of a kind that can be shown ({', '.join(KINDS)})")
    if not path.is_file():
        raise FileNotFoundError(f"there is no picture {name} in the folder")
    if path.stat().st_size > MOST_BYTES:
        raise FileNotFoundError(f"{name} is larger than {MOST_BYTES // 1_000_000} MB, so it is not shown")
    return path
