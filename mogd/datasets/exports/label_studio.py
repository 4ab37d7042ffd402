"""Label Studio's JSON: tasks with `data`, `annotations` by people and `predictions` by models.

Choices are the labels. Annotations that were cancelled are skipped, those marked `ground_truth` are the clean labels.
Resolved labels are written as predictions, which Label Studio shows on import.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mogd.datasets.exports.common import OWN, Annotated, Record, Resolved, as_labels, only_question


def recognises(record: Record) -> bool:
    has_answers = "annotations" in record or "predictions" in record
    return "data" in record and (has_answers or isinstance(record["data"], Mapping))


def rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {"id": task.get("id", number), **{f"data.{k}" if k == "id" else k: v for k, v in task["data"].items()}}
        for number, task in enumerate(records)
    ]


def read(records: Sequence[Record], question: str | None = None) -> Annotated:
    """Rows from `data`, votes from annotations and predictions, clean labels from the ground truth."""
    question = _control(records, question)["from_name"]
    found = Annotated(rows(records))
    for number, task in enumerate(records):
        id = task.get("id", number)
        for annotation in task.get("annotations") or []:
            labels = _labels(annotation, question)
            if annotation.get("was_cancelled") or not labels:
                continue
            if annotation.get("ground_truth") and len(labels) == 1:
                found.clean[id] = labels[0]
            else:
                found.votes += [(id, _annotator(annotation.get("completed_by")), label) for label in labels]
        for prediction in task.get("predictions") or []:
            model = str(prediction.get("model_version") or "prediction")
            if model != OWN:
                found.votes += [(id, model, label) for label in _labels(prediction, question)]
    return found


def write(records: Sequence[Record], resolved: Mapping[str, Resolved], question: str | None = None) -> list[Record]:
    """The tasks with a prediction each for the rows that were not clean."""
    control = _control(records, question)
    written: list[Record] = []
    for number, task in enumerate(records):
        row = resolved.get(str(task.get("id", number)))
        others = [p for p in task.get("predictions") or [] if p.get("model_version") != OWN]
        if row is not None and not row.clean:
            result = {**control, "id": f"{OWN}-{task.get('id', number)}", "value": {"choices": [str(row.label)]}}
            others.append({"model_version": OWN, "score": round(float(row.confidence), 6), "result": [result]})
        written.append({**task, "predictions": others})
    return written


def _results(task: Record) -> Iterator[Mapping[str, Any]]:
    for part in [*(task.get("annotations") or []), *(task.get("predictions") or [])]:
        yield from (result for result in part.get("result") or [] if result.get("type") == "choices")


def _control(records: Sequence[Record], question: str | None) -> dict[str, Any]:
    """The names and the type of the control by which the labels were chosen."""
    controls = {r["from_name"]: r for task in records for r in _results(task)}
    chosen = controls[only_question(controls, question, "Label Studio")]
    return {key: chosen[key] for key in ("from_name", "to_name", "type")}


def _labels(part: Mapping[str, Any], question: str) -> list[Any]:
    results = [r for r in part.get("result") or [] if r.get("type") == "choices" and r["from_name"] == question]
    return [label for result in results for label in as_labels(result["value"].get("choices"))]


def _annotator(completed_by: Any) -> str:
    """A number, or a person with an email and an id, as the kind of export has it."""
    if isinstance(completed_by, Mapping):
        return str(completed_by.get("email") or completed_by.get("id"))
    return str(completed_by)
