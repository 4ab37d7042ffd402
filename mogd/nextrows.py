"""Which rows to label next: those that stand for many others, of every class, where it is not yet clear what they are.

A row's worth is the number of open rows that its answer would settle: the sum, over the rows like it, of how open
each is times how alike they are (close features and the same labels in question). Rows are taken one by one, and what a
taken row settles is no longer open: the greedy maximum of a coverage, whose rows are spread by themselves. Classes have
quotas by their share, so that the labelled rows look like the table. Without a model every ambiguous row is equally
open; with one, half of the openness is how uncertain it is of the row. (Why half: docs/studies/which-rows-to-label.md.)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from mogd.candidates import Candidates, as_candidates
from mogd.compressed import dense_or_refuse

MOST_ROWS = 2000  # rows that are compared with each other; of more, a sample that follows the open mass
MOST_FEATURES = 32  # principal components in which rows are compared
FAR = 5.0  # standard deviations beyond which a feature counts as this far: one wild cell must not set a row apart
TORN = 0.5  # the part of a row's openness that depends on the model, the rest being equal for all ambiguous rows
NEIGHBOURS = 10  # the scale of "alike": the distance to this neighbour, as the median row has it


class NextRows(NamedTuple):
    """Rows in the order in which to label them, the open rows that each would settle, and why, in words."""

    row: np.ndarray
    worth: np.ndarray
    reason: np.ndarray


def next_to_label(
    X: Any,
    candidates: Any,
    *,
    n: int = 50,
    model: Any = None,
    confidence: Any = None,
    labelled: Any = (),
    random_state: int | np.random.RandomState | None = None,
) -> NextRows:
    """Choose the `n` rows whose true label would help most.

    Parameters
    ----------
    X : features `(n_rows, …)`, or None where there are none; missing cells count as their column's mean.
    candidates : candidate sets in any form that `as_candidates` takes. Give a labelled row its label as its only
        candidate, so that its class counts as known.
    n : how many rows; fewer come back when fewer are left.
    model : a fitted model: rows of which it is uncertain come first. Without it and without `confidence` the
        rows are spread over classes and clusters.
    confidence : instead, `(n_rows, n_classes)`, a distribution over each row's candidates.
    labelled : the rows whose label is known, as positions or as a mask. They are not chosen again.
    random_state : a seed, used where a sample of the rows is compared.

    >>> import numpy as np
    >>> X = np.array([[0.0], [0.1], [5.0], [5.1], [5.2]])
    >>> next_to_label(X, [["a", "b"]] * 2 + [["b", "c"]] * 3, n=2).row.tolist()
    [2, 1]
    """
    sets = as_candidates(candidates, unseen="keep")
    if not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"n must be a whole number of at least 1; got {n!r}")
    fresh = int(np.random.default_rng().integers(2**31))  # not numpy's global state
    rng = check_random_state(fresh if random_state is None else random_state)
    done = _mask(labelled, len(sets))
    belief = _belief(X, sets, model, confidence)
    torn = model is not None or confidence is not None
    openness = np.where(done | (sets.sizes == 1), 0.0, _torn(belief, ~done) if torn else 1.0)
    pool = _sample(openness, done, rng)
    settled = np.flatnonzero(done)
    settled = settled if len(settled) <= MOST_ROWS else rng.choice(settled, MOST_ROWS, replace=False)
    Z = _comparable(X, np.concatenate([pool, settled]), rng)
    mass = openness[pool]
    if len(pool) < np.count_nonzero(openness):  # each sampled row stands for its share of the mass
        mass = np.full(len(pool), openness.sum() / len(pool))
    picked, worth = _greedy(Z, belief[pool], belief[settled], mass, share=belief.mean(axis=0), n=int(n))
    rows = pool[picked]
    rows, worth = _fill(rows, worth, done, int(n), rng)
    return NextRows(rows, worth, _reasons(rows, worth, sets, belief if torn else None, X is not None))


def _mask(labelled: Any, n_rows: int) -> np.ndarray:
    labelled = np.asarray(labelled)
    mask = np.zeros(n_rows, dtype=bool)
    if labelled.dtype == bool and labelled.shape != (n_rows,):
        raise ValueError(f"labelled must be a mask of {n_rows} rows or positions of rows; got shape {labelled.shape}")
    if labelled.size:
        if labelled.dtype != bool and (labelled.min() < 0 or labelled.max() >= n_rows):
            raise ValueError(f"labelled must be positions from 0 to {n_rows - 1}; got {labelled.max()}")
        mask[labelled] = True
    return mask


def _belief(X: Any, sets: Candidates, model: Any, confidence: Any) -> np.ndarray:
    """A distribution over each row's candidates: the confidence given, the model's probabilities, or equal shares."""
    matrix = dense_or_refuse(sets.matrix, "the choice of rows to label")
    if confidence is not None:
        given = np.asarray(confidence, dtype=float)
        if given.shape != matrix.shape:
            raise ValueError(f"confidence must have shape {matrix.shape}, as the candidates have; got {given.shape}")
    elif model is not None:
        known = {label: k for k, label in enumerate(model.classes_.tolist())}
        proba = model.predict_proba(X)
        columns = [known.get(label, -1) for label in sets.classes.tolist()]
        given = np.where(np.array(columns) >= 0, proba[:, columns], 0.0)
    else:
        given = np.ones(matrix.shape)
    belief = np.where(matrix, given, 0.0)
    total = belief.sum(axis=1, keepdims=True)
    return np.where(total > 0, belief, matrix) / np.where(total > 0, total, matrix.sum(axis=1, keepdims=True))


def _torn(belief: np.ndarray, free: np.ndarray) -> np.ndarray:
    """How open each row is, 1 on average over the ambiguous rows: by the entropy of its belief."""
    entropy = -(belief * np.log(np.where(belief > 0, belief, 1.0))).sum(axis=1)
    ambiguous = free & (np.count_nonzero(belief, axis=1) > 1)
    mean = entropy[ambiguous].mean() if ambiguous.any() else 0.0
    return 1 - TORN + TORN * entropy / mean if mean > 0 else np.ones(len(belief))


def _sample(openness: np.ndarray, done: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """The rows that are compared: all that are open, or a sample with the openness as its weight."""
    rows = np.flatnonzero((openness > 0) & ~done)
    if len(rows) <= MOST_ROWS:
        return rows
    weight = openness[rows] / openness[rows].sum()
    return np.sort(rng.choice(rows, MOST_ROWS, replace=False, p=weight))


def _comparable(X: Any, rows: np.ndarray, rng: np.random.RandomState) -> np.ndarray | None:
    """The rows' features, each with variance one and without wild cells, in few dimensions."""
    if X is None or not len(rows):
        return None
    X = np.asarray(X)
    Z = X.reshape(len(X), -1)[rows].astype(np.float32)
    Z[~np.isfinite(Z)] = np.nan
    with np.errstate(all="ignore"):
        count = np.maximum(np.isfinite(Z).sum(axis=0), 1)
        Z -= np.nansum(Z, axis=0) / count
        spread = np.sqrt(np.nansum(Z**2, axis=0) / count)
    Z = np.clip(np.nan_to_num(Z) / np.where(spread > 0, spread, 1), -FAR, FAR)
    if min(Z.shape) > MOST_FEATURES:
        Z = PCA(MOST_FEATURES, svd_solver="randomized", random_state=rng).fit_transform(Z)
    return Z.astype(np.float32)


def _alike(Z: np.ndarray | None, n_pool: int, of_pool: np.ndarray, of_settled: np.ndarray) -> np.ndarray:
    """How alike the pool's rows (first axis) are with the pool and then the settled rows (second): from 0 to 1.

    Without features a row is like itself alone: labels in question are too few to set rows apart, so that a few dozen
    answers would leave nothing open anywhere.
    """
    if Z is None:
        return np.eye(n_pool, n_pool + len(of_settled), dtype=np.float32)
    root = np.sqrt(np.concatenate([of_pool, of_settled])).astype(np.float32)
    alike = root[:n_pool] @ root.T
    distance = euclidean_distances(Z[:n_pool], Z, squared=True)
    near = min(NEIGHBOURS, n_pool - 1)
    scale = float(np.median(np.partition(distance[:, :n_pool], near, axis=1)[:, near]))
    alike *= np.exp(distance / (-2 * scale)) if scale > 0 else distance == 0
    return np.clip(alike, 0, 1)


def _greedy(
    Z: np.ndarray | None, belief: np.ndarray, settled: np.ndarray, mass: np.ndarray, share: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the pool, one by one: the most open rows about them, times how far their classes lag behind."""
    if not len(belief):
        return np.empty(0, dtype=np.int64), np.empty(0)
    n_pool = len(belief)
    alike = _alike(Z, n_pool, belief, settled)
    left = (mass * np.prod(1 - alike[:, n_pool:], axis=1)).astype(np.float32)
    alike = np.ascontiguousarray(alike[:, :n_pool])
    known, free = settled.sum(axis=0), np.ones(n_pool, dtype=bool)
    picked, worth = [], []
    for _ in range(min(n, n_pool)):
        follow = alike @ left
        row = int(np.argmax(np.where(free, follow * (belief @ (share / (1 + known))), -1)))
        picked.append(row)
        worth.append(float(follow[row]))
        free[row] = False
        left *= 1 - alike[row]
        known += belief[row]
    return np.array(picked, dtype=np.int64), np.array(worth)


def _fill(
    rows: np.ndarray, worth: np.ndarray, done: np.ndarray, n: int, rng: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """When more rows are asked for than were compared, the rest in random order."""
    if len(rows) >= n:
        return rows, worth
    others = np.setdiff1d(np.flatnonzero(~done), rows)
    others = rng.permutation(others)[: n - len(rows)]
    return np.concatenate([rows, others]), np.concatenate([worth, np.zeros(len(others))])


def _reasons(
    rows: np.ndarray, worth: np.ndarray, sets: Candidates, belief: np.ndarray | None, compared: bool
) -> np.ndarray:
    names, sizes = sets.classes.tolist(), sets.sizes
    reasons = np.empty(len(rows), dtype=object)
    for place, (row, value) in enumerate(zip(rows.tolist(), worth.tolist(), strict=True)):
        like = f"; about {value:.0f} open rows are like it" if compared and value >= 1.5 else ""
        if not value:
            said = "one candidate alone" if sizes[row] == 1 else "not compared with the others: a random row"
            reasons[place] = f"{said}: to check it" if sizes[row] == 1 else said
        elif belief is None:
            reasons[place] = f"spread over classes and clusters: {sizes[row]} candidates{like}"
        else:
            first, second = np.argsort(-belief[row], kind="stable")[:2]
            pair = f"{names[first]} ({belief[row, first]:.0%}) and {names[second]} ({belief[row, second]:.0%})"
            reasons[place] = f"uncertain between {pair}{like}"
    return reasons
