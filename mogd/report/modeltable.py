"""What a table adds to the page of a model: the text, the pictures, the annotators and the truth of its rows."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mogd.datasets.exports import table_of
from mogd.datasets.folders import open_picture
from mogd.datasets.frames import need
from mogd.datasets.frames import read_rows as read_table_rows
from mogd.datasets.labelsets import column_labels
from mogd.datasets.rows import row_ids
from mogd.report.modelfacts import TableRows

if TYPE_CHECKING:
    import polars as pl

LONG_TEXT = 30  # a column of text with more letters than this on average is worth showing
THUMBNAIL = (192, 192)


def read_rows(
    path: str | Path,
    *,
    id: str | None = None,
    text: str | None = None,
    images: str | Path | None = None,
    image_column: str = "file",
    annotators: Sequence[str] = (),
    truth: str | None = None,
    pictured: Collection[str] = (),
) -> TableRows:
    """Read what is wanted of a table; `pictured` names the rows whose pictures are put into the page."""
    frame = table_of(read_table_rows(path))
    names = [str(name) for name in row_ids(frame, id if id in frame.columns else None).tolist()]
    text = text or _longest_text(frame, {*annotators, truth, id, image_column})
    files = _cells(frame, image_column, names) if images is not None else {}
    return TableRows(
        text=_cells(frame, text, names) if text else {},
        pictures={name: thumbnail(Path(images), files[name]) for name in pictured if name in files} if images else {},
        votes={annotator: _cells(frame, annotator, names) for annotator in annotators},
        truth=_cells(frame, truth, names) if truth else {},
    )


def _cells(frame: pl.DataFrame, column: str, names: Sequence[str]) -> dict[str, str]:
    need(frame, column, "the report")
    labels = column_labels(frame[column])
    return {name: str(label) for name, label in zip(names, labels, strict=True) if label is not None}


def _longest_text(frame: pl.DataFrame, without: set[Any]) -> str | None:
    import polars as pl

    lengths: dict[str, Any] = {
        name: frame[name].str.len_chars().mean() or 0
        for name, dtype in frame.schema.items()
        if dtype == pl.String and name not in without
    }
    longest = max(lengths, key=lambda name: lengths[name], default=None)
    return longest if longest is not None and lengths[longest] > LONG_TEXT else None


def thumbnail(folder: Path, name: str) -> str:
    """A small copy of a picture as a data: address; a name that leads out of the folder is refused."""
    place = (folder / name).resolve()
    if not place.is_relative_to(folder.resolve()):
        raise ValueError(f"the picture {name!r} lies outside of {folder}: names must stay inside the folder")
    out = io.BytesIO()
    with open_picture(place) as picture:
        try:
            picture.thumbnail(THUMBNAIL)
            picture.convert("RGB").save(out, "JPEG", quality=82)
        except Exception as error:  # a damaged picture can raise nearly anything
            raise ValueError(f"the picture {name!r} in {folder} is damaged: {error}") from None
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
