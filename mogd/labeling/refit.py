"""The second process, which fits and ranks while people answer: it ends with the first, and cannot hold up a page."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection

import numpy as np

from mogd.labeling.known import Answers
from mogd.labeling.rows import LabelRows


@dataclass(frozen=True)
class Ranking:
    """In which order to show the rows, why, and what the fitted model holds of them."""

    order: np.ndarray
    reasons: dict[int, str]
    belief: np.ndarray | None = None  # (n_rows, n_classes) over each row's candidates


@dataclass(frozen=True)
class HeldOut:
    """The share of the answered rows that a model resolves rightly when their own answers are kept from it."""

    n_answers: int
    accuracy: float


Result = Ranking | HeldOut | str  # a text is the reason why there is none


def work(pipe: Connection, rows: LabelRows) -> None:
    """What the second process does until the first is gone: answers in, results out, None when there are no more."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from mogd.labeling.features import features
    from mogd.labeling.ranker import results

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches both processes; the first one ends this one
    try:
        with threadpool_limits(1):
            X = None
            while True:
                answers = pipe.recv()
                try:
                    first, X = X is None, features(rows) if X is None else X
                    for result in results(rows, X, answers, first=first):
                        pipe.send(result)
                except Exception as error:
                    pipe.send(f"{type(error).__name__}: {error}")
                pipe.send(None)
    except (EOFError, BrokenPipeError):
        return


class Refitter:
    """Keeps the second process busy with the newest answers; results come to `on_result` from a thread of its own."""

    def __init__(self, rows: LabelRows, on_result: Callable[[Result], None]) -> None:
        self.on_result = on_result
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, rows), daemon=True)
        self._process.start()
        theirs.close()  # so that the pipe ends with the process
        self._newest: Answers | None = None
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def ask(self, answers: Answers) -> None:
        """Rank again after these answers; a request that still waits is replaced."""
        with self._wake:
            self._newest = answers
            self._wake.notify()

    def _loop(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._closed or self._newest is not None)
                if self._closed:
                    return
                answers, self._newest = self._newest, None
            try:
                self._pipe.send(answers)
                while (result := self._pipe.recv()) is not None:
                    self.on_result(result)
            except (EOFError, OSError):
                if not self._closed:
                    self.on_result("the process that fits the answers has ended; labelling goes on without refits")
                return

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._process.terminate()
        self._process.join()
        self._pipe.close()
