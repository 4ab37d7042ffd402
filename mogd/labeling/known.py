"""What is known of a table after some answers, in the form that learns and chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mogd.candidates import Candidates
from mogd.labeling.rows import LabelRows

Answers = Mapping[int, str | None]  # row -> its label, None where it is none of the candidates and nobody knows which


@dataclass(frozen=True, eq=False)
class Known:
    """The table after the answers: an answered row has its label as its only candidate."""

    candidates: Candidates  # with the labels that people typed as further classes
    done: np.ndarray  # mask of the rows that need no answer any more
    clean: np.ndarray  # the rows with a label
    clean_y: np.ndarray  # its class
    own_sets: np.ndarray  # the candidate sets that these rows came with

    @property
    def n_clean(self) -> int:
        return len(self.clean)

    @classmethod
    def of(cls, rows: LabelRows, answers: Answers) -> Known:
        names = [*rows.class_names, *sorted({a for a in answers.values() if a is not None} - set(rows.class_names))]
        place = {name: k for k, name in enumerate(names)}
        matrix = np.zeros((len(rows), len(names)), dtype=bool)
        matrix[:, : len(rows.class_names)] = rows.candidates.matrix
        clean = np.array([row for row, label in answers.items() if label is not None], dtype=np.int64)
        clean_y = np.array([place[label] for label in answers.values() if label is not None], dtype=np.int64)
        own_sets = matrix[clean]
        matrix[clean] = np.eye(len(names), dtype=bool)[clean_y]
        done = np.zeros(len(rows), dtype=bool)
        done[list(answers)] = True
        return cls(Candidates(matrix, np.array(names)), done, clean, clean_y, own_sets)
