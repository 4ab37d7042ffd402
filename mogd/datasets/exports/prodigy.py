"""Prodigy's JSONL, as `db-out` prints it: one line for each answer of each annotator.

Lines with the same `_input_hash` are one row. Accepted options, or an accepted label, are votes; ignored answers are
skipped. Lines of the `review` recipe hold the reviewer's answer, which is the clean label, and the versions before it.
Resolved labels are written as accepted answers of an annotator of their own, for `db-in`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from mogd.datasets.exports.common import OWN, Annotated, Record, Resolved, as_labels

ANSWERS = ("accept", "answer", "label", "options", "versions", "sessions", "default", "priority", "score")
NOT_FEATURES = (*ANSWERS, "meta", "config", "spans", "tokens", "view_id")


def recognises(record: Record) -> bool:
    return "answer" in record and ("_input_hash" in record or "_task_hash" in record)


def rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each input, as its first line has it."""
    found: dict[Any, dict[str, Any]] = {}
    for record in records:
        columns = {k: v for k, v in record.items() if k not in NOT_FEATURES and not k.startswith("_")}
        found.setdefault(_id(record), {"id": _id(record), **columns})
    return list(found.values())


def read(records: Sequence[Record], question: str | None = None) -> Annotated:
    """Rows from the inputs, votes from the answers, clean labels from reviews."""
    if question is not None:
        raise ValueError(f"Prodigy asks one question in each file; got question={question!r}")
    found, rejected = Annotated(rows(records)), 0
    for record in records:
        id = _id(record)
        rejected += record["answer"] == "reject"
        if record.get("versions"):
            for version in record["versions"]:
                for annotator in version.get("sessions") or []:
                    found.votes += [(id, str(annotator), label) for label in _labels(version)]
            if record["answer"] == "accept" and len(_labels(record)) == 1:
                found.clean[id] = _labels(record)[0]
        elif record["answer"] == "accept" and _annotator(record) != OWN:
            found.votes += [(id, _annotator(record), label) for label in _labels(record)]
    if rejected:
        warnings.warn(f"{rejected} answers that reject a label are left out: they name no other", stacklevel=2)
    return found


def write(records: Sequence[Record], resolved: Mapping[str, Resolved], question: str | None = None) -> list[Record]:
    """One accepted answer for each input that was resolved."""
    written: dict[Any, Record] = {}
    for record in records:
        id = _id(record)
        row = resolved.get(str(id))
        if row is None or id in written:
            continue
        kept = {key: value for key, value in record.items() if key not in ("versions", "sessions", "_timestamp")}
        answer = {"accept": [row.label]} if "options" in record or "accept" in record else {"label": row.label}
        if "label" in answer:
            kept.pop("_task_hash", None)  # it is that of another label
        sure = {"confidence": round(float(row.confidence), 6), "runner_up": row.runner_up}
        written[id] = {
            **kept,
            **answer,
            "answer": "accept",
            "meta": {**(record.get("meta") or {}), **sure},
            "_annotator_id": OWN,
            "_session_id": OWN,
        }
    return list(written.values())


def _id(record: Record) -> Any:
    return record.get("_input_hash", record.get("_task_hash"))


def _annotator(record: Record) -> str:
    return str(record.get("_annotator_id") or record.get("_session_id") or "annotator")


def _labels(record: Record) -> list[Any]:
    return as_labels(record["accept"] if "accept" in record else record.get("label"))
