"""Argilla's records: nested, as `Dataset.records.to_json` writes them, or flat, as `to_datasets` gives them to Parquet.

Submitted responses are votes of their users, suggestions votes of their agents. Resolved labels are written as
suggestions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mogd.datasets.exports.common import OWN, Annotated, Record, Resolved, as_labels, only_question

RESPONSES, SUGGESTION = ".responses", ".suggestion"
ADMINISTRATION = ("id", "status", "_server_id", "inserted_at", "updated_at")


def recognises(record: Record) -> bool:
    nested = "fields" in record and ("responses" in record or "suggestions" in record)
    return nested or _is_flat(record)


def rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {"id": _id(record, number), **(_flat_columns(record) if _is_flat(record) else _nested_columns(record))}
        for number, record in enumerate(records)
    ]


def read(records: Sequence[Record], question: str | None = None) -> Annotated:
    """Rows from fields and metadata, votes from responses and suggestions."""
    question = only_question(_questions(records), question, "Argilla")
    found = Annotated(rows(records))
    for number, record in enumerate(records):
        id = _id(record, number)
        answers = _flat_answers(record, question) if _is_flat(record) else _nested_answers(record, question)
        for user, value, status in answers:
            if status in (None, "submitted") and user != OWN:
                found.votes += [(id, user, label) for label in as_labels(value)]
    return found


def write(records: Sequence[Record], resolved: Mapping[str, Resolved], question: str | None = None) -> list[Record]:
    """The records with the resolved label as the suggestion of the question."""
    question = only_question(_questions(records), question, "Argilla")
    written: list[Record] = []
    for number, record in enumerate(records):
        row = resolved.get(str(_id(record, number)))
        if row is None or row.clean:
            written.append(record)
            continue
        score = round(float(row.confidence), 6)
        if _is_flat(record):
            key = f"{question}{SUGGESTION}"
            written.append({**record, key: row.label, f"{key}.score": score, f"{key}.agent": OWN})
        else:
            suggestion = {"value": row.label, "score": score, "agent": OWN}
            written.append({**record, "suggestions": {**(record.get("suggestions") or {}), question: suggestion}})
    return written


def _id(record: Record, number: int) -> Any:
    return number if record.get("id") is None else record["id"]


def _is_flat(record: Record) -> bool:
    return any(key.endswith((RESPONSES, SUGGESTION)) for key in record)


def _questions(records: Sequence[Record]) -> list[str]:
    names: dict[str, None] = {}
    for record in records:
        if _is_flat(record):
            keys = [key.removesuffix(RESPONSES).removesuffix(SUGGESTION) for key in record if _is_flat({key: None})]
        else:
            keys = [*(record.get("responses") or {}), *(record.get("suggestions") or {})]
        names |= dict.fromkeys(keys)
    return list(names)


def _nested_columns(record: Record) -> dict[str, Any]:
    return {**(record.get("metadata") or {}), **record["fields"]}


def _flat_columns(record: Record) -> dict[str, Any]:
    own = tuple(f"{name}{part}" for name in _questions([record]) for part in (RESPONSES, SUGGESTION))
    return {key: value for key, value in record.items() if key not in ADMINISTRATION and not key.startswith(own)}


def _nested_answers(record: Record, question: str) -> list[tuple[str, Any, Any]]:
    answers = (record.get("responses") or {}).get(question) or []
    said = [(str(answer.get("user_id")), answer.get("value"), answer.get("status")) for answer in answers]
    suggestion = (record.get("suggestions") or {}).get(question)
    if suggestion:
        said.append((str(suggestion.get("agent") or "suggestion"), suggestion.get("value"), None))
    return said


def _flat_answers(record: Record, question: str) -> list[tuple[str, Any, Any]]:
    values = record.get(f"{question}{RESPONSES}") or []
    users = record.get(f"{question}{RESPONSES}.users") or range(len(values))
    status = record.get(f"{question}{RESPONSES}.status") or [None] * len(values)
    said = [(str(user), value, state) for user, value, state in zip(users, values, status, strict=True)]
    value = record.get(f"{question}{SUGGESTION}")
    if value is not None:
        said.append((str(record.get(f"{question}{SUGGESTION}.agent") or "suggestion"), value, None))
    return said
