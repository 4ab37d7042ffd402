"""The order of the rows after the answers so far: fit them, measure the fit held out, rank the rows still open."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from mogd.algorithms import make
from mogd.candidates import Candidates
from mogd.labeling.refit import Answers, Ranking
from mogd.labeling.rows import LabelRows
from mogd.nextrows import next_to_label

FIRST = 10  # answers before a model is fitted; fewer say nothing about its accuracy
FOLDS = 5
EPOCHS = 30
MOST_FITTED = 10_000  # partial rows in the fit whose confidences are shown
MOST_JUDGED = 3_000  # and in each of the held-out fits
RANKED = 200  # rows chosen with care; the next refit comes long before they are used up


def rank(rows: LabelRows, X: np.ndarray, answers: Answers, seed: int = 0) -> Ranking:
    """The rows in the order in which to label them, after the answers given so far."""
    names = [*rows.class_names, *sorted({a for a in answers.values() if a is not None} - set(rows.class_names))]
    place = {name: k for k, name in enumerate(names)}
    matrix = np.zeros((len(rows), len(names)), dtype=bool)
    matrix[:, : len(rows.class_names)] = rows.candidates.matrix
    truth = {row: place[label] for row, label in answers.items() if label is not None}
    clean = np.array(sorted(truth), dtype=np.int64)
    clean_y = np.array([truth[row] for row in clean.tolist()], dtype=np.int64)
    own_sets = matrix[clean]
    for row, label in truth.items():
        matrix[row] = np.arange(len(names)) == label
    done = np.zeros(len(rows), dtype=bool)
    done[list(answers)] = True
    candidates = Candidates(matrix, np.array(names))
    belief = accuracy = None
    if len(clean) >= FIRST and len(set(clean_y.tolist())) > 1 and np.ptp(X, axis=0).any():
        rng = np.random.default_rng(seed)
        model = _fitted(X, candidates, _some(~done, MOST_FITTED, rng), clean, clean_y)
        belief = _on_candidates(model.predict_proba(X), matrix)
        accuracy = _held_out(X, candidates, _some(~done, MOST_JUDGED, rng), clean, clean_y, own_sets)
    found = next_to_label(X, candidates, n=RANKED, confidence=belief, labelled=done, random_state=seed)
    rest = np.setdiff1d(np.flatnonzero(~done), found.row)
    order = np.concatenate([found.row, np.random.default_rng(seed).permutation(rest)])
    shown = None if belief is None else belief[:, : len(rows.class_names)].astype(np.float32)
    reasons = dict(zip(found.row.tolist(), found.reason.tolist(), strict=True))
    return Ranking(order, reasons, len(answers), shown, accuracy)


def _some(free: np.ndarray, most: int, rng: np.random.Generator) -> np.ndarray:
    found = np.flatnonzero(free)
    return found if len(found) <= most else rng.choice(found, most, replace=False)


def _fitted(X: np.ndarray, candidates: Candidates, partial: np.ndarray, clean: np.ndarray, clean_y: np.ndarray) -> Any:
    if not len(partial):  # everything is answered: the answers are all there is to learn from
        partial = clean
    model = make(
        "mogd", epochs=EPOCHS, scale="standard", classes=candidates.classes.tolist(), unseen="keep", random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X[partial], candidates[partial], X_val=X[clean], y_val=candidates.classes[clean_y])


def _held_out(
    X: np.ndarray,
    candidates: Candidates,
    partial: np.ndarray,
    clean: np.ndarray,
    clean_y: np.ndarray,
    own_sets: np.ndarray,
) -> float:
    """The share of the answered rows that a model resolves rightly when their own answers are kept from it."""
    right = np.zeros(len(clean), dtype=bool)
    for others, held in KFold(FOLDS, shuffle=True, random_state=0).split(clean):
        model = _fitted(X, candidates, partial, clean[others], clean_y[others])
        belief = _on_candidates(model.predict_proba(X[clean[held]]), own_sets[held])
        right[held] = belief.argmax(axis=1) == clean_y[held]
    return float(right.mean())


def _on_candidates(proba: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    belief = np.where(matrix, np.maximum(proba, 1e-12), 0.0)
    return belief / belief.sum(axis=1, keepdims=True)
