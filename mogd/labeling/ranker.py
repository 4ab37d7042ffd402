"""The order of the rows after the answers so far: fit them, measure the fit held out, rank the rows still open."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from mogd.algorithms import make
from mogd.labeling.known import Answers, Known
from mogd.labeling.refit import HeldOut, Ranking
from mogd.labeling.rows import LabelRows
from mogd.nextrows import next_to_label

FIRST = 10  # answers before a model is fitted; fewer say nothing about its accuracy
FOLDS = 5
EPOCHS = 30
SEED = 0
MOST_FITTED = 5_000  # partial rows in the fit whose confidences are shown
MOST_JUDGED = 2_000  # and in each of the held-out fits
RANKED = 200  # rows chosen with care; the next refit comes long before they are used up


def results(rows: LabelRows, X: np.ndarray, answers: Answers, *, first: bool = False) -> Iterator[Ranking | HeldOut]:
    """What is worth knowing after these answers, the quickest first: at the start an order without a model, then an
    order by a model fitted on the answers, then that model's accuracy held out."""
    known = Known.of(rows, answers)
    has_model = known.n_clean >= FIRST and len(set(known.clean_y.tolist())) > 1 and bool(np.ptp(X, axis=0).any())
    if first or not has_model:
        yield _ranking(rows, X, known, None)
    if has_model:
        rng = np.random.default_rng(SEED)
        model = _fitted(X, known, _some(~known.done, MOST_FITTED, rng), np.arange(known.n_clean))
        yield _ranking(rows, X, known, _on_candidates(model.predict_proba(X), known.candidates.matrix))
        yield HeldOut(len(answers), _held_out(X, known, _some(~known.done, MOST_JUDGED, rng)))


def _ranking(rows: LabelRows, X: np.ndarray, known: Known, belief: np.ndarray | None) -> Ranking:
    found = next_to_label(X, known.candidates, n=RANKED, confidence=belief, labelled=known.done, random_state=SEED)
    rest = np.setdiff1d(np.flatnonzero(~known.done), found.row)
    order = np.concatenate([found.row, np.random.default_rng(SEED).permutation(rest)])
    shown = None if belief is None else belief[:, : len(rows.class_names)].astype(np.float32)
    return Ranking(order, dict(zip(found.row.tolist(), found.reason.tolist(), strict=True)), shown)


def _some(free: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    found = np.flatnonzero(free)
    return found if len(found) <= most else rng.choice(found, most, replace=False)


def _fitted(X: np.ndarray, known: Known, partial: np.ndarray, use: np.ndarray) -> Any:
    """A linear model of the partial rows, guided by the answers at the positions `use`."""
    clean, classes = known.clean[use], known.candidates.classes
    partial = partial if len(partial) else clean  # everything is answered: there is nothing else to learn from
    model = make("mogd", epochs=EPOCHS, scale="power", classes=classes.tolist(), unseen="keep", random_state=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X[partial], known.candidates[partial], X_val=X[clean], y_val=classes[known.clean_y[use]])


def _held_out(X: np.ndarray, known: Known, partial: np.ndarray) -> float:
    right = np.zeros(known.n_clean, dtype=bool)
    for others, held in KFold(FOLDS, shuffle=True, random_state=SEED).split(known.clean):
        model = _fitted(X, known, partial, others)
        belief = _on_candidates(model.predict_proba(X[known.clean[held]]), known.own_sets[held])
        right[held] = belief.argmax(axis=1) == known.clean_y[held]
    return float(right.mean())


def _on_candidates(proba: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """The probabilities as a distribution over each row's candidates."""
    belief = np.where(matrix, np.maximum(proba, 1e-12), 0.0)
    return belief / belief.sum(axis=1, keepdims=True)
