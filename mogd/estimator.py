"""The face that every algorithm shows: one gate in front of `fit`, and what a fitted algorithm can be asked."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from mogd.candidates import Candidates, as_candidates, as_labels, holds_sets, name_rows
from mogd.compressed import (
    DENSE_CELLS,
    Matrix,
    dense_or_refuse,
    first_label,
    from_places,
    largest,
    part_size,
    row_blocks,
    row_numbers,
    sizes,
    stacked,
    take_dense,
    take_rows,
    without,
)
from mogd.evidence import Evidence, with_same_sources
from mogd.labels import n_rows_of, plain
from mogd.metrics import covering_rate
from mogd.rowsource import BLOCK_CELLS, LazyRows, bad_rows, on_disk
from mogd.scalers import SCALERS, Powers, sample_of

# clean rows of the same table, even of one class alone, stay below 2.1 and 0.7 on Lost, MSRCv2, BirdSong, wine, digits
WILD_RATIO = 10.0  # between the spreads of a typical feature in X and X_val
WILD_DISTANCE = 3.0  # between the means, in units of the spread: a mean over the features
FEWEST_TO_COMPARE = 5  # clean rows: the spread of fewer says little


class AssumedCleanWarning(UserWarning):
    """Training rows with one candidate were taken to be clean, because no clean rows were given."""


class Resolved(NamedTuple):
    """What the training rows were resolved to: a label and its confidence for each."""

    label: np.ndarray
    confidence: np.ndarray


@dataclass
class Rows:
    """Checked training rows: features, their candidate sets, their weights, and the clean rows apart.

    When clean rows train too they stand behind the rows given to `fit`, with one candidate each.
    """

    X: Any  # an array, SciPy's csr_array, or LazyRows
    candidates: Matrix  # (n, K) bool, compressed where it is large
    weight: np.ndarray  # (n,)
    clean_X: np.ndarray
    clean_y: np.ndarray  # class indices
    n_given: int  # rows given to `fit`, which come first
    is_clean: np.ndarray  # (n,) which of the rows are clean ones
    evidence: Evidence | None = None  # who said what of the rows given
    clean_evidence: Evidence | None = None  # and of the clean ones, by the same sources
    clean_candidates: np.ndarray | None = None  # (n_clean, K) bool, the clean rows' own sets where they are known

    def join_clean(self, clean_weight: float) -> Rows:
        """The same rows with the clean ones behind them, each with its one candidate and the weight given."""
        if not len(self.clean_y):
            return self
        n_clean = len(self.clean_y)
        one_hot = from_places(np.arange(n_clean), self.clean_y, (n_clean, self.candidates.shape[1]))
        return replace(
            self,
            X=joined(self.X, self.clean_X),
            candidates=stacked(self.candidates, one_hot),
            weight=np.concatenate([self.weight, np.full(n_clean, float(clean_weight))]),
            is_clean=np.concatenate([self.is_clean, np.ones(n_clean, dtype=bool)]),
        )

    def single_as_clean(self, *, train: bool) -> tuple[Rows, np.ndarray]:
        """The rows with exactly one candidate taken for clean ones, and which of the rows given train.

        Without `train` they only guide, unless there are no other rows: then all are plain supervision.
        """
        single = sizes(self.candidates) == 1
        if isinstance(self.X, LazyRows) and single.sum() * self.X.shape[1] > DENSE_CELLS:
            raise ValueError(
                f"the {single.sum()} rows with one candidate are too many to be kept in memory as clean ones: "
                "pass clean rows, X_val=… and y_val=…"
            )
        clean_X, clean_y = self.X[single], first_label(take_rows(self.candidates, single))
        own = None if self.evidence is None else self.evidence[single]
        rows = replace(self, clean_X=clean_X, clean_y=clean_y, is_clean=single, clean_evidence=own)
        if train or single.all():
            return rows, np.ones(len(single), dtype=bool)
        kept = ~single
        if isinstance(self.X, LazyRows):
            raise ValueError("rows on the disk cannot be left out of training: pass clean rows, X_val=… and y_val=…")
        partial = {"X": self.X[kept], "candidates": take_rows(self.candidates, kept), "weight": self.weight[kept]}
        evidence = None if self.evidence is None else self.evidence[kept]
        return replace(rows, **partial, is_clean=single[kept], evidence=evidence), kept


class PartialLabelEstimator(ClassifierMixin, BaseEstimator):
    """Base of every algorithm of the library. A subclass writes `_fit(rows)` and `_scores(X)`.

    `_fit` sets `confidence_`, one row for each row of `X` given to `fit`, compressed where the candidates are. The
    parameters `scale`, `classes` and `unseen`, where a subclass has them, are read here.
    """

    classes_: np.ndarray
    confidence_: Matrix
    n_features_in_: int
    scale: str | None = None
    classes: Sequence[Any] | None = None
    unseen: str = "warn"
    takes_images = False  # whether X may have more than two dimensions
    takes_compressed = False  # whether candidate sets may be compressed sparse rows
    takes_sparse = False  # whether X may be sparse
    takes_lazy = False  # whether X may stay on the disk
    outside_: np.ndarray | None = None  # which rows were resolved to a label outside their set, where that may be
    holds_rows: Any = False  # whether prediction needs rows of the training data

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        candidates_val: Any = None,
    ) -> Self:
        """Learn from rows with candidate sets `y` and, where given, clean rows `X_val` with true labels `y_val`.

        `sample_weight` multiplies what each row of `X` counts in the loss; clean rows have `clean_weight`.
        `candidates_val` are the clean rows' own sets, votes or scores, in any form of `y`: how the truth was labelled.
        """
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None: pass labels or candidate sets")
        X = self._check_features(X, reset=True)
        candidates = as_candidates(y, classes=self.classes, n_rows=X.shape[0], unseen=self.unseen)
        if not self.takes_compressed:
            dense_or_refuse(candidates.matrix, type(self).__name__)
        self.classes_ = candidates.classes
        clean_X, clean_y = self._check_clean(X, X_val, y_val)
        clean_sets = self._check_clean_sets(candidates_val, len(clean_y))
        self._fit_scaler(X, clean_X)
        X, clean_X = self._transform(X), self._transform(clean_X)
        n_rows = X.shape[0]
        weight, is_clean = _check_weight(sample_weight, n_rows), np.zeros(n_rows, dtype=bool)
        rows = Rows(X, candidates.matrix, weight, clean_X, clean_y, n_rows, is_clean, candidates.evidence)
        if clean_sets is not None:
            rows.clean_candidates = take_dense(clean_sets.matrix)  # they are few
            rows.evidence, rows.clean_evidence = with_same_sources(candidates.evidence, clean_sets.evidence)
        self._fit(rows)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        check_is_fitted(self)
        return self.classes_[self._best(X)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities of each row, in the order of `classes_`."""
        check_is_fitted(self)
        X = self._check_features(X, reset=False)
        if not isinstance(X, LazyRows):
            return self._scores(self._transform(X))
        return np.concatenate([self._scores(self._transform(block)) for _, block in X.blocks()])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy for labels `(n,)`; for candidate sets, the share of predictions that lie in the row's set."""
        if not holds_sets(y):
            return super().score(X, plain(y), sample_weight)
        candidates = as_candidates(y, classes=self.classes_, n_rows=n_rows_of(X), unseen="keep")
        return covering_rate(candidates.matrix, self._best(X), sample_weight)

    def disambiguate(self, *, as_frame: bool = False) -> Any:
        """The label that each training row was resolved to, and the confidence in it, in the order given to `fit`.

        `as_frame` gives a pandas table, with the runner-up (None where a row has one candidate) and its confidence;
        with `candidate_noise` also whether the label lies `outside` the row's set.
        """
        check_is_fitted(self, "confidence_", msg="%(name)s has no confidences of training rows: fit it first")
        label, confidence, second, second_confidence = resolve(self.confidence_, self.classes_)
        if not as_frame:
            return Resolved(label, confidence)
        try:
            import pandas  # type: ignore[import-untyped]
        except ImportError:
            raise ImportError("as_frame=True needs pandas: pip install pandas") from None
        columns = {"label": label, "confidence": confidence}
        columns |= {"runner_up": second, "runner_up_confidence": second_confidence}
        return pandas.DataFrame(columns | ({} if self.outside_ is None else {"outside": self.outside_}))

    def report(self) -> Any:
        """A page of what was learned; a notebook shows it, `report().save("model.html")` writes it."""
        from mogd.report.modelpage import ModelFacts, model_page

        check_is_fitted(self, "confidence_", msg="%(name)s has nothing to report: fit it first")
        return model_page(ModelFacts.of_model(self))

    def _best(self, X: Any) -> np.ndarray:
        """The most probable class index of each row, a part at a time where the probabilities would be many."""
        X = self._check_features(X, reset=False)
        size = part_size(len(self.classes_))
        if isinstance(X, LazyRows):
            size = min(size, part_size(X.shape[1], BLOCK_CELLS))
        parts = range(0, max(X.shape[0], 1), size)
        return np.concatenate([self._scores(self._transform(X[i : i + size])).argmax(axis=1) for i in parts])

    def _fit(self, rows: Rows) -> None:
        raise NotImplementedError(f"{type(self).__name__} must implement _fit")

    def _seed(self) -> int:
        """A seed from `random_state`; None draws a new one and leaves numpy's global state alone."""
        random_state = getattr(self, "random_state", None)
        if random_state is None:
            return int(np.random.default_rng().integers(2**31 - 1))
        return int(check_random_state(random_state).randint(2**31 - 1))

    def _scores(self, X: np.ndarray) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} must implement _scores")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.takes_sparse
        return tags

    def _check_features(self, X: Any, *, reset: bool, name: str = "X") -> Any:
        if (lazy := on_disk(X)) is not None:
            return self._check_lazy(lazy, reset=reset)
        if hasattr(X, "detach"):
            X = X.detach().cpu().numpy()
        try:
            X = validate_data(
                self,
                X,
                reset=reset,
                dtype=[np.float64, np.float32, np.uint8],
                order="C",  # the same rows give the same bits, whatever table they came in
                ensure_all_finite=False,
                allow_nd=self.takes_images,
                accept_sparse="csr" if self.takes_sparse else False,
            )
        except (TypeError, ValueError) as error:
            if name == "X":
                raise
            said = re.sub(r"\bX\b", name, str(error))  # scikit-learn knows these rows by no other name
            kind = ValueError if isinstance(error, ValueError) else TypeError
            raise kind(said if name in said else f"{name}: {said}") from None
        if sp.issparse(X):
            X = sp.csr_array(X)
            X.sum_duplicates()
        if X.dtype.kind == "f" and not np.isfinite(X.sum(dtype=np.float64)):
            bad = np.unique(row_numbers(X)[~np.isfinite(X.data)]) if sp.issparse(X) else bad_rows(X)
            if len(bad):
                raise ValueError(
                    f"{name} contains NaN or infinity in {name_rows(bad)}: impute them (sklearn.impute.SimpleImputer "
                    "in a pipeline, or mogd.read_table(..., impute='median')) or drop these rows"
                )
        return X

    def _check_lazy(self, X: LazyRows, *, reset: bool) -> LazyRows:
        """Rows on the disk: their columns, and in `fit` every row, read once."""
        if not self.takes_lazy:
            raise ValueError(
                f"{type(self).__name__} needs all rows in memory at once: pass np.asarray(X), or take a deep method, "
                "which reads rows from the disk"
            )
        validate_data(self, np.zeros((1, X.shape[1])), reset=reset)
        if reset:
            _ = X.moments
        return X

    def _fit_scaler(self, X: Any, clean_X: Any) -> None:
        """On all rows that train: a column that varies in the clean rows alone would else reach into the hundreds."""
        if self.scale is not None and self.scale not in SCALERS:
            raise ValueError(f"scale must be None or one of {', '.join(SCALERS)}; got {self.scale!r}")
        self.scaler_ = None
        if self.scale is None or X.ndim != 2:
            return
        if sp.issparse(X):
            raise ValueError(
                f"scale={self.scale!r} moves zeros, which would make sparse X dense: pass scale=None, and scale by "
                "sklearn.preprocessing.MaxAbsScaler in a pipeline"
            )
        self.scaler_ = SCALERS[self.scale]()
        if isinstance(self.scaler_, Powers):
            self.scaler_.learn_powers(np.concatenate([X[sample_of(X.shape[0])], clean_X]))
        if not isinstance(X, LazyRows):
            self.scaler_.partial_fit(np.concatenate([X, clean_X]) if len(clean_X) else X)
            return
        for _, block in X.blocks():
            self.scaler_.partial_fit(block)
        if len(clean_X):
            self.scaler_.partial_fit(clean_X)

    def _transform(self, X: Any) -> Any:
        if isinstance(X, LazyRows):
            return X.scaled(self.scaler_)
        return X if self.scaler_ is None or not X.shape[0] else self.scaler_.transform(X)

    def _check_clean(self, X: Any, X_val: Any, y_val: Any) -> tuple[Any, np.ndarray]:
        if (X_val is None) != (y_val is None):
            given, absent = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
            raise ValueError(f"{given} was given without {absent}: clean rows need both")
        if X_val is None:
            return X[:0], np.empty(0, dtype=np.int64)
        clean_X = self._check_features(X_val, reset=False, name="X_val")
        clean_X = clean_X[:] if isinstance(clean_X, LazyRows) else clean_X  # they are few
        clean_y = as_labels(y_val, self.classes_)
        if clean_X.shape[0] != len(clean_y):
            raise ValueError(f"X_val has {clean_X.shape[0]} rows but y_val has {len(clean_y)} labels")
        _warn_of_scales(X, clean_X)
        return clean_X, clean_y

    def _check_clean_sets(self, candidates_val: Any, n_clean: int) -> Candidates | None:
        if candidates_val is None:
            return None
        found = as_candidates(candidates_val, classes=self.classes_, unseen="keep")
        if len(found) != n_clean:
            raise ValueError(f"X_val has {n_clean} rows but candidates_val has {len(found)} candidate sets")
        return found


def resolve(confidence: Matrix, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of each row the best label and its confidence, and the second (None without one) and its."""
    parts = [_resolved(block, classes) for block in row_blocks(confidence)]
    label, best_confidence, runner_up, second_confidence = (np.concatenate(p) for p in zip(*parts, strict=True))
    return label, best_confidence, runner_up, second_confidence


def _resolved(confidence: Matrix, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    best, best_confidence = largest(confidence)
    second, value = largest(without(confidence, best))
    second_confidence = np.maximum(value, 0)
    runner_up = classes[second].astype(object)
    runner_up[second_confidence <= 0] = None
    return classes[best], best_confidence, runner_up, second_confidence


def joined(first: Any, second: Any) -> Any:
    """The rows of both, the second behind the first."""
    if isinstance(first, LazyRows):
        return first.followed_by(second)
    if sp.issparse(first) or sp.issparse(second):
        return sp.vstack([sp.csr_array(first), sp.csr_array(second)], format="csr")
    return np.concatenate([first, second])


def _warn_of_scales(X: Any, clean_X: Any) -> None:
    """Say so where the clean rows cannot be of the same table: a scaler before the classifier saw `X` alone."""
    if X.ndim != 2 or clean_X.shape[0] < FEWEST_TO_COMPARE or X.dtype == np.uint8 or sp.issparse(X):
        return
    lazy = isinstance(X, LazyRows)
    mean, spread = (X.moments.mean_, np.sqrt(X.moments.var_)) if lazy else (X.mean(axis=0), X.std(axis=0))
    clean_spread = clean_X.std(axis=0)
    varies = (spread > 0) & (clean_spread > 0)
    if not varies.any():
        return
    ratio = float(np.exp(np.median(np.abs(np.log(clean_spread[varies] / spread[varies])))))
    distance = float(np.mean(np.abs(clean_X.mean(axis=0) - mean)[varies] / spread[varies]))
    if ratio > WILD_RATIO or distance > WILD_DISTANCE:
        warnings.warn(
            f"X_val has another scale than X (its features spread {ratio:.3g} times as far or as little, their means "
            f"lie {distance:.3g} standard deviations away): in a pipeline, let the steps before the classifier change "
            'X_val too, make_pipeline(..., transform_input=["X_val"]), or let the classifier scale, scale="standard"',
            stacklevel=4,
        )


def _check_weight(sample_weight: Any, n_rows: int) -> np.ndarray:
    if sample_weight is None:
        return np.ones(n_rows)
    weight = np.array(plain(sample_weight), dtype=np.float64)
    if weight.shape != (n_rows,):
        raise ValueError(f"sample_weight must have one number for each of the {n_rows} rows; got shape {weight.shape}")
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        bad = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
        raise ValueError(f"sample_weight must be 0 or more, and finite; {name_rows(bad)} is not")
    if not weight.any():
        raise ValueError("sample_weight is zero for every row: nothing is left to learn from")
    return weight


__all__ = ["AssumedCleanWarning", "PartialLabelEstimator", "Resolved", "Rows", "resolve"]
