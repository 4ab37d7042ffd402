"""What is known of one fitted model and its training rows, before it has a format; from a folder or from memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from mogd.algorithms import ALGORITHMS, algorithm_of
from mogd.compressed import dense_or_refuse
from mogd.conformal import Calibration, unsettled
from mogd.evaluation import Evaluation, Share, evaluate
from mogd.modelfolder import from_plain, read_described
from mogd.saving import load_training_rows

COVERAGE = 0.9
PAGE = "the page of a model"
OPEN = 0.5  # a row whose best candidate has less confidence than this is not settled


@dataclass(frozen=True)
class TableRows:
    """What a table adds, by the names of its rows: text, pictures, annotators' labels, true labels."""

    text: Mapping[str, str] = field(default_factory=dict)
    pictures: Mapping[str, str] = field(default_factory=dict)  # data: addresses
    votes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # annotator -> row -> label
    truth: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ModelFacts:
    """A model, its partial rows (`ids`, `confidence`) and its clean rows (`clean_ids`, `clean` as class indices)."""

    title: str
    classes: list[str]
    ids: list[str]
    confidence: np.ndarray
    clean_ids: list[str]
    clean: np.ndarray
    calibration: Calibration | None
    held_out: np.ndarray | None
    history: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    table: TableRows = field(default_factory=TableRows)

    @classmethod
    def of_folder(cls, path: str | Path, table: TableRows | None = None) -> Self:
        """From a saved model; its network is not loaded."""
        described, rows = read_described(Path(path)), load_training_rows(path)
        confidence = dense_or_refuse(rows.confidence, PAGE)
        n, names = len(confidence), [str(name) for name in rows.ids.tolist()]
        calibration = described.get("calibration")
        settings = {"algorithm": described["algorithm"], **described["method"], **described["params"]}
        return cls(
            title=_title(described["algorithm"]),
            classes=[str(label) for label in from_plain(described["classes"]).tolist()],
            ids=names[:n],
            confidence=confidence,
            clean_ids=names[n:],
            clean=rows.clean,
            calibration=None if calibration is None else Calibration.from_json(calibration, rows.confidence.shape[1]),
            held_out=rows.held_out,
            history=described["history"] or [],
            settings=described.get("config") or settings,
            table=table or TableRows(),
        )

    @classmethod
    def of_model(cls, model: Any, table: TableRows | None = None) -> Self:
        """From a fitted estimator; its clean rows are known as far as it was calibrated on them."""
        known = algorithm_of(getattr(model, "method_", model))
        confidence = dense_or_refuse(model.confidence_, PAGE)
        calibration = getattr(model, "calibration_", None)
        own = getattr(model, "config_", None) or {
            name: value for name, value in model.get_params().items() if _is_plain(value)
        }
        return cls(
            title=_title(None if known is None else known.name),
            classes=[str(label) for label in model.classes_.tolist()],
            ids=[str(row) for row in range(len(confidence))],
            confidence=confidence,
            clean_ids=[],
            clean=np.empty(0, dtype=np.int64) if calibration is None else calibration.y,
            calibration=calibration,
            held_out=getattr(model, "held_out_", None),
            history=getattr(model, "history_", []),
            settings=own,
            table=table or TableRows(),
        )

    @cached_property
    def candidates(self) -> np.ndarray:
        return self.confidence > 0

    @cached_property
    def resolved(self) -> np.ndarray:
        return self.confidence.argmax(axis=1)

    @cached_property
    def ambiguous(self) -> np.ndarray:
        """Which rows had more than one candidate, `(n,)`."""
        return self.candidates.sum(axis=1) > 1

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """On the clean rows, each predicted without having been seen; None where nothing was held out."""
        if self.calibration is None:
            return None
        truth = [self.classes[k] for k in self.calibration.y]
        return evaluate(
            self.calibration.held_out,
            truth,
            np.array(self.classes),
            self.calibration,
            coverage=COVERAGE,
            crossed=self.calibration.crossed,
        )

    @cached_property
    def doubt(self) -> np.ndarray:
        """How probable it is that a row was resolved to a wrong candidate, `(n,)`: by models that did not see it."""
        rows = np.arange(len(self.resolved))
        if self.held_out is None:
            return 1 - self.confidence[rows, self.resolved]
        held = np.where(self.candidates, self.held_out, 0) + 1e-9 * self.candidates
        return 1 - held[rows, self.resolved] / held.sum(axis=1)

    @cached_property
    def look(self) -> np.ndarray:
        """The rows that a person should look at, the most doubtful first."""
        if self.held_out is None or self.calibration is None:
            unsure = self.confidence.max(axis=1) < OPEN
        else:
            unsure = unsettled(self.held_out, self.confidence, self.calibration, COVERAGE)
        order = np.argsort(-self.doubt, kind="stable")
        return order[unsure[order]]

    def on_clean_rows(self) -> dict[str, Share]:
        """Right labels among the clean rows: of the model, of the annotators' majority, of the most frequent label."""
        shares = {}
        if self.calibration is not None:
            shares[self.title] = Share(int(self.calibration.correct.sum()), len(self.calibration))
        truth = dict(zip(self.clean_ids, (self.classes[k] for k in self.clean), strict=False))
        shares |= _majority(self.table.votes, truth)
        if len(self.clean):
            frequent = np.bincount(self.resolved, minlength=len(self.classes)).argmax()
            shares["Most frequent label"] = Share(int((self.clean == frequent).sum()), len(self.clean))
        return shares

    def judged(self) -> dict[str, Share]:
        """Clean rows whose label a fit found that did not know it: of the model first, then of others.

        Known where `mogd fit` compared algorithms; labels that tie share a row, so that counts are rounded.
        """
        found = self.settings.get("judged") or {"rows": 0, "right": {}}
        shares = {_title(name): Share(round(right), found["rows"]) for name, right in found["right"].items()}
        return {self.title: shares.pop(self.title), **shares} if self.title in shares else {}

    def on_training_rows(self) -> dict[str, Share]:
        """Right labels among the training rows whose truth the table has."""
        truth = {name: self.table.truth[name] for name in self.ids if name in self.table.truth}
        if not truth:
            return {}
        rows = [i for i, name in enumerate(self.ids) if name in truth]
        right = sum(self.classes[self.resolved[i]] == truth[self.ids[i]] for i in rows)
        guess = sum(self._guess(i, truth[self.ids[i]]) for i in rows)
        shares = {f"Resolved by {self.title}": Share(right, len(rows)), **_majority(self.table.votes, truth)}
        return shares | {"A guess among the candidates": Share(round(guess), len(rows))}

    def _guess(self, row: int, truth: str) -> float:
        own = np.flatnonzero(self.candidates[row])
        return 1 / len(own) if truth in {self.classes[k] for k in own} else 0.0

    def annotators(self) -> dict[str, tuple[Share, Share]]:
        """Of each annotator: labels that are right where the truth is known, and that agree with the resolved ones."""
        known = dict(zip(self.clean_ids, (self.classes[k] for k in self.clean), strict=False)) | dict(self.table.truth)
        became = {name: self.classes[k] for name, k in zip(self.ids, self.resolved, strict=True)}
        return {name: (_agreement(said, known), _agreement(said, became)) for name, said in self.table.votes.items()}

    def pairs(self, most: int = 10) -> list[dict[str, Any]]:
        """The candidates that stood together in the most rows, and what became of these rows."""
        together = self.candidates.T.astype(np.int64) @ self.candidates
        upper = np.triu(together, 1)
        found = []
        for place in np.argsort(-upper, axis=None, kind="stable")[:most]:
            a, b = (int(k) for k in np.unravel_index(place, upper.shape))
            if not upper[a, b]:
                break
            rows = self.candidates[:, a] & self.candidates[:, b]
            is_open = self.confidence[rows].max(axis=1) < OPEN
            to = self.resolved[rows]
            counts = {"rows": int(rows.sum()), "first": int((to == a).sum()), "second": int((to == b).sum())}
            found.append({"labels": (self.classes[a], self.classes[b]), **counts, "open": int(is_open.sum())})
        return found

    def confusion(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows resolved to each label: their mean share of each candidate, all alike before, by confidence after."""
        before = self.candidates / self.candidates.sum(axis=1, keepdims=True)
        matrices = []
        for weights in (before, self.confidence):
            sums = np.zeros((len(self.classes), len(self.classes)))
            np.add.at(sums, self.resolved, weights)
            matrices.append(sums / np.maximum(np.bincount(self.resolved, minlength=len(sums)), 1)[:, None])
        return matrices[0], matrices[1]


def _title(algorithm: str | None) -> str:
    if algorithm not in ALGORITHMS:
        return "Model"
    return getattr(ALGORITHMS[algorithm], "label", "") or ALGORITHMS[algorithm].path.split(":")[1].split(".")[0]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, tuple, dict))


def _majority(votes: Mapping[str, Mapping[str, str]], truth: Mapping[str, str]) -> dict[str, Share]:
    """The majority vote where anyone voted; labels that tie share the point."""
    right, rows = 0.0, 0
    for name, label in truth.items():
        said = [by[name] for by in votes.values() if name in by]
        if said:
            counts = {option: said.count(option) for option in said}
            first = [option for option, count in counts.items() if count == max(counts.values())]
            right, rows = right + (label in first) / len(first), rows + 1
    return {"Majority vote": Share(round(right), rows)} if rows else {}


def _agreement(said: Mapping[str, str], other: Mapping[str, str]) -> Share:
    both = said.keys() & other.keys()
    return Share(sum(said[name] == other[name] for name in both), len(both))
