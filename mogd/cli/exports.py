"""Resolved labels written back into the export of a labelling tool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mogd.datasets.exports import FORMATS, recognise, table_of, write_export
from mogd.datasets.exports.common import Resolved
from mogd.datasets.frames import STANDARD, frame_of, kind_of, read_rows, write_frame, writing


def write_back(columns: dict[str, Any], form: str | None, source: Path | None, question: str | None, out: Path) -> str:
    """Write the export `source` with the resolved labels in it; what was done, in words."""
    if form is not None and form not in FORMATS:
        raise ValueError(f"--format must be one of {', '.join(FORMATS)}; got {form!r}")
    if source is None:
        raise ValueError(f"--format {form} needs the export that the model was fitted on: name it by --from FILE")
    found = read_rows(source)
    form = form or recognise(found)
    if form is None:
        raise ValueError(f"{source} is no export of {', '.join(FORMATS)}")
    parts = (columns[name].tolist() for name in ("id", "label", "confidence", "runner_up", "clean"))
    resolved = {str(id): Resolved(*rest) for id, *rest in zip(*parts, strict=True)}
    records = write_export(form, found, resolved, question)
    if not resolved.keys() & set(map(str, table_of(found)["id"].to_list())):
        raise ValueError(f"no task of {source} is a row of the model: name the export that it was fitted on")
    kind = kind_of(out)
    if str(out) == STANDARD:
        kind = "JSON lines" if form == "prodigy" else "JSON"
    if kind in ("JSON", "JSON lines"):
        with writing(out) as file:
            lines = kind == "JSON lines"
            text = "\n".join(map(_json, records)) if lines else _json(records)
            file.write(f"{text}\n".encode())
    elif isinstance(found, list):
        raise ValueError(f"--format {form} writes .json or .jsonl; got {out.name!r}")
    else:
        write_frame(out, frame_of(records))
    return f"{len(records)} records for {form}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
