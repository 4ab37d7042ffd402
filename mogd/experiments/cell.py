"""One cell -> one record: fit, predict, measure. Nothing here depends on the worker, the order or the thread count."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from mogd.algorithms import make
from mogd.candidates import Candidates, as_labels
from mogd.compressed import largest
from mogd.datasets import Split
from mogd.datasets.splits import hold_out
from mogd.estimator import PartialLabelEstimator
from mogd.experiments.data import characteristics, needs_network, split_of
from mogd.experiments.provenance import code_of, host, versions
from mogd.experiments.record import Record
from mogd.experiments.spec import CONTROLS, DESCRIBE, Cell, is_deep
from mogd.metrics import accuracy, calibration_error, covering_rate, disambiguation_accuracy

HISTOGRAM_BINS = 20
NOT_RECORDED = ("verbose", "classes")  # parameters that do not change the result


def run_cell(cell: Cell) -> Record:
    """The record of a cell, on one thread; an error becomes the record's `error`."""
    record: Record = {"key": cell.key, **asdict(cell)}
    record |= {"selected": None, "data_fingerprint": None, "metrics": None, "curve": None, "confidence_histogram": None}
    record |= {"config": None, "seconds": {"fit": 0.0, "predict": 0.0, "select": 0.0}, "error": None}
    record |= {"started": datetime.now(UTC).isoformat(timespec="seconds"), "host": host(), "versions": versions()}
    record["code"] = code_of(record)
    try:
        with one_thread(with_torch=is_deep(cell.algorithm) or needs_network(cell)):
            _fill(record, cell)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        message = " ".join(str(error).split())
        record["error"] = f"{type(error).__name__}: {message} ({where.name}, line {where.lineno})"
        record |= {"metrics": None, "curve": None, "confidence_histogram": None}
    return record


def estimator_of(cell: Cell) -> PartialLabelEstimator:
    """The estimator that a cell asks for; a parameter that it does not have is an error."""
    given: dict[str, Any] = {"unseen": "keep", "random_state": cell.derived_seed("fit")}
    if cell.algorithm in CONTROLS:
        from mogd.experiments.controls import CleanOnly

        return CleanOnly(cell.algorithm.removeprefix("clean-"), **given, **cell.params)
    return make(cell.algorithm, **given, **cell.params)


@contextmanager
def one_thread(*, with_torch: bool) -> Iterator[None]:
    """Sums in parallel depend on the number of threads, so a cell always has one; cells run beside each other."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    if not with_torch:  # a worker that needs no network is not kept waiting for torch
        with threadpool_limits(1):
            yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)


def _fill(record: Record, cell: Cell) -> None:
    if cell.algorithm == DESCRIBE:
        record["metrics"], record["data_fingerprint"] = characteristics(cell)
        return
    split, dataset = split_of(cell)
    record["data_fingerprint"] = dataset.fingerprint
    if cell.corruption is not None:
        record["corruption"] = cell.corruption | {"seed": cell.seed}
    train_y = split.train.known_y()
    candidates = split.train.candidates
    if cell.algorithm == "supervised":
        candidates = Candidates(np.eye(len(dataset.classes), dtype=bool)[train_y], dataset.classes)
    clean_X, clean_y, judge = split.clean_X, split.clean_y, None
    clean_sets = split.clean_candidates if candidates.evidence is not None else None
    if cell.epoch_rule == "clean" and is_deep(cell.algorithm):
        if clean_sets is not None:
            raise ValueError("epoch_rule 'clean' is not for rows with votes: their clean rows judge the sources")
        clean_X, clean_y, judge = _keep_judges(split, cell)
    estimator = estimator_of(cell)
    if cell.select:
        record["selected"], seconds = _select(estimator, cell, split.train.X, candidates, clean_X, clean_y)
        record["seconds"]["select"] = seconds
        estimator.set_params(**record["selected"])
    watcher = None
    if judge is not None or (cell.curve and is_deep(cell.algorithm)):
        from mogd.experiments.watcher import Watcher

        watcher = Watcher(split, judge, cell.curve)
    record["params"] = _plain(estimator, cell)
    views = record["params"].get("predict_views")
    if views is not None:  # every image is looked at once, and once more in the end
        estimator.set_params(predict_views=None)
    if watcher is not None:
        estimator.set_params(callbacks=[*_listed(estimator.callbacks), watcher])
    began = time.perf_counter()
    estimator.fit(split.train.X, candidates, X_val=clean_X, y_val=clean_y, candidates_val=clean_sets)
    record["config"] = _json(getattr(estimator, "config_", None))
    record["seconds"]["fit"] = round(time.perf_counter() - began - (watcher.seconds if watcher else 0.0), 4)
    began = time.perf_counter()
    probabilities = estimator.predict_proba(split.test_X)
    record["seconds"]["predict"] = round(time.perf_counter() - began, 4)
    if watcher is not None:
        record["curve"] = watcher.curve if cell.curve else None
        if watcher.best is not None:
            probabilities = watcher.best
    test_y = as_labels(split.test_y, dataset.classes)
    covered = estimator.predict_proba(split.train.X).argmax(axis=1)
    known = cell.algorithm == "supervised"  # it was given what the others have to find
    record["metrics"] = {
        "accuracy": accuracy(test_y, probabilities.argmax(axis=1)),
        "disambiguation": None if known else disambiguation_accuracy(train_y, estimator.confidence_),
        "covering": covering_rate(split.train.candidates.matrix, covered),
        "calibration": calibration_error(test_y, probabilities),
    }
    if views is not None:
        seen = estimator.set_params(predict_views=views).predict_proba(split.test_X)
        record["metrics"]["accuracy_views"] = accuracy(test_y, seen.argmax(axis=1))
    if not known:
        counts, _ = np.histogram(largest(estimator.confidence_)[1], bins=HISTOGRAM_BINS, range=(0, 1 + 1e-6))
        record["confidence_histogram"] = counts.tolist()


def _listed(callbacks: Any) -> list[Any]:
    return [callbacks] if isinstance(callbacks, str) else list(callbacks)


def _keep_judges(split: Split, cell: Cell) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Half of the clean rows, kept from the fit, judge its epochs: rows that train would always prefer the last."""
    rng = np.random.default_rng([cell.seed, 4, cell.fold or 0])
    judges = np.isin(np.arange(len(split.clean_y)), hold_out(split.clean_y, len(split.clean_y) // 2, rng))
    return split.clean_X[~judges], split.clean_y[~judges], (split.clean_X[judges], split.clean_y[judges])


def _select(
    estimator: PartialLabelEstimator, cell: Cell, X: np.ndarray, candidates: Candidates, X_val: Any, y_val: Any
) -> tuple[dict[str, Any], float]:
    """Parameters chosen on the training rows of this cell alone."""
    from mogd.selection import select

    began = time.perf_counter()
    seed, grid = cell.derived_seed("select"), cell.select or {}
    chosen = select(estimator, grid, X, candidates, X_val, y_val, n_splits=cell.select_splits, random_state=seed)
    return dict(chosen.params), round(time.perf_counter() - began, 4)


def _plain(estimator: PartialLabelEstimator, cell: Cell) -> dict[str, Any]:
    """All parameters of an estimator as JSON; the method of a deep one by its name and its own parameters."""
    params = estimator.get_params(deep=True)
    if "method" in params:
        params["method"] = cell.algorithm
    return {name: _json(value) for name, value in sorted(params.items()) if name not in NOT_RECORDED}


def _json(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_json(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _json(v) for k, v in value.items()}
    return value if isinstance(value, (str, int, float, bool, type(None))) else repr(value)
