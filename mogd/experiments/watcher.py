"""Watcher: test accuracy over the epochs for the curve, and the epoch that the judging clean rows prefer."""

from __future__ import annotations

import time

import numpy as np

from mogd.callbacks.base import Callback, Entry, Run
from mogd.datasets import Split
from mogd.metrics import accuracy

CURVE_POINTS = 50


class Watcher(Callback):
    """Follows the fit of a cell without changing what is learned."""

    observer = True

    def __init__(self, split: Split, judge: tuple[np.ndarray, np.ndarray] | None, keep_curve: bool) -> None:
        self.split, self.judge, self.keep_curve = split, judge, keep_curve
        self.curve: list[dict[str, float]] = []
        self.best: np.ndarray | None = None
        self.best_score = -1.0
        self.seconds = 0.0

    def on_epoch_end(self, run: Run, entry: Entry) -> None:
        if "phase" in entry:
            return
        began = time.perf_counter()
        classifier, epoch, epochs = run.owner, entry["epoch"], run.settings.epochs
        wanted = self.keep_curve and (epoch * CURVE_POINTS // epochs > (epoch - 1) * CURVE_POINTS // epochs)
        score = -1.0
        if self.judge is not None:
            score = accuracy(self.judge[1], classifier.predict(self.judge[0]))
        better = self.judge is not None and score >= self.best_score
        if wanted or better:
            probabilities = classifier.predict_proba(self.split.test_X)
            if better:
                self.best, self.best_score = probabilities, score
            if wanted:
                hit = accuracy(self.split.test_y, classifier.classes_[probabilities.argmax(axis=1)])
                point = {"epoch": epoch, "test_accuracy": hit, "loss": entry["loss"]}
                self.curve.append(point | {k: entry[k] for k in ("shrinkage",) if k in entry})
        self.seconds += time.perf_counter() - began
