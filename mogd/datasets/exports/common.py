"""What the formats of all labelling tools share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mogd.wording import option

Record = Mapping[str, Any]
OWN = "mogd"  # under this name resolved labels are written; read back, they are nobody's vote
CLEAN = "ground_truth"  # the column of labels that are known for sure


@dataclass
class Annotated:
    """Tasks as rows with an `id`, votes as (task, annotator, label), and the labels that are known for sure."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    votes: list[tuple[Any, str, Any]] = field(default_factory=list)
    clean: dict[Any, Any] = field(default_factory=dict)


class Resolved(NamedTuple):
    """What a row was resolved to."""

    label: Any
    confidence: float
    runner_up: Any = None
    clean: bool = False


def only_question(names: Iterable[str], question: str | None, tool: str) -> str:
    """The question whose answers are the labels: the one that is named, or the only one there is."""
    known = list(dict.fromkeys(names))
    if question is not None and question not in known:
        raise ValueError(f"the export of {tool} has no question {question!r}; it has {', '.join(known) or 'none'}")
    if question is None and len(known) != 1:
        if not known:
            raise ValueError(f"the export of {tool} holds no answer that is a choice of labels")
        raise ValueError(
            f"the export of {tool} has {len(known)} questions ({', '.join(known)}): name the one to learn, such as "
            f"{option('question', known[0])}"
        )
    return question or known[0]


def as_labels(value: Any) -> list[Any]:
    """The labels of an answer: one, or a list of them; answers of another kind give none."""
    values = value if isinstance(value, list) else [value]
    return [label for label in values if isinstance(label, (str, int)) and str(label).strip()]
