"""Who gets which row, and what happens with the answer: the rules of the page, without its web server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from mogd.labeling.refit import Ranking, Result
from mogd.labeling.rows import LabelRows
from mogd.labeling.store import Answer, Store, StoreError
from mogd.labeling.view import RowView
from mogd.labeling.worth import MORE, expected_gain

LAST = 10  # answers of a person that stay editable
MOST_LABEL = 10_000  # characters of a typed label
MOST_NAME = 100


class Refused(ValueError):
    """A request that cannot be done, with the reason in words for the person."""


class Desk:
    """Gives rows to people and keeps their answers; every method is one transaction and may be called by any thread.

    Parameters
    ----------
    rows, store : the table and where the answers are kept.
    lock_seconds : how long a row stays with a person who does not answer.
    goal : the number of answers at which the progress bar is full.
    blind : show neither guess nor votes, so that the answers are not swayed by them.
    on_answer : called after every change of an answer with the number of answers, outside the transaction.
    """

    def __init__(
        self,
        rows: LabelRows,
        store: Store,
        *,
        lock_seconds: float = 600,
        goal: int = 100,
        blind: bool = False,
        on_answer: Callable[[int], None] = lambda count: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rows, self.store, self.view = rows, store, RowView(rows, blind=blind)
        self.lock_seconds, self.on_answer, self.clock = lock_seconds, on_answer, clock
        self.goal = min(goal, len(rows) - len(rows.known))
        self._guard = threading.RLock()
        self._answered = np.zeros(len(rows), dtype=bool)
        self._answered[[*rows.known, *(answer.row for answer in store.answers())]] = True
        self._n_answers = len(store.answers())
        shuffled = np.random.default_rng(0).permutation(len(rows))
        single = rows.candidates.sizes[shuffled] == 1  # until the first ranking: ambiguous rows first
        self._ranking = Ranking(np.concatenate([shuffled[~single], shuffled[single]]), {})
        self._start = 0  # all rows of the ranking before this place are answered
        self.refit_problem: str | None = None
        self.table_problem: str | None = None

    def answers(self) -> list[Answer]:
        with self._guard:
            return self.store.answers()

    def labels(self) -> dict[int, str | None]:
        """What is known of every row, from the table and from the answers."""
        known: dict[int, str | None] = {row: self.view.class_names[k] for row, k in self.rows.known.items()}
        return known | {answer.row: answer.label for answer in self.answers()}

    def use(self, result: Result) -> None:
        """Show the rows in a new order from now on, or a new point of the curve, or why there is neither."""
        with self._guard:
            if isinstance(result, str):
                self.refit_problem = f"The answers could not be fitted ({result}). Labelling goes on."
            elif isinstance(result, Ranking):
                self._ranking, self._start, self.refit_problem = result, 0, None
            else:
                with suppress(StoreError), self.store.transaction():  # the next answer reports a full disk
                    self.store.add_refit(result.n_answers, result.accuracy)

    def next(self, name: str, tab: str) -> dict[str, Any]:
        """The row this person has, or a new one."""
        with self._guard:
            with self.store.transaction():
                row = self._give(name, tab)
            return self._state(name, row)

    def answer(
        self,
        name: str,
        tab: str,
        row: int,
        *,
        choice: int | None = None,
        typed: str | None = None,
        edit: bool = False,
    ) -> dict[str, Any]:
        """Keep an answer and give the next row; `typed` empty and no `choice` is "none of these"."""
        row = self._check_row(row)
        label, outside = self._label(row, choice, typed)
        with self._guard:
            before = self.store.answer_of(row)
            # sent twice, because the reply was lost
            again = before is not None and (before.name, before.label) == (name, label)
            if self._answered[row] and not again and not (edit and before is not None and before.name == name):
                who = "The table" if before is None else "You have" if before.name == name else before.name
                verb = "has this label already" if before is None else "answered this row already"
                raise Refused(f"{who} {verb}; your answer to it was not kept.")
            with self.store.transaction():
                if not again:
                    at = before.at if edit and before is not None else self._now(name)
                    self.store.put(Answer(row, label, outside, name, at))
                following = self._give(name, tab, apart=row)
            self._mark(row, True)
            state = self._state(name, following)
        self.on_answer(self._n_answers)
        return state

    def skip(self, name: str, tab: str, row: int) -> dict[str, Any]:
        """Show the row again when all others are done."""
        row = self._check_row(row)
        with self._guard:
            with self.store.transaction():
                if not self._answered[row]:
                    self.store.skip(row, name, self._now(name))
                following = self._give(name, tab, apart=row)
            return self._state(name, following)

    def undo(self, name: str, tab: str) -> dict[str, Any]:
        """Take back this person's last answer or skip, and show its row again."""
        with self._guard:
            answers, skips = self.store.last_answers(name, 1), self.store.skips(name)
            last_skip = max(skips, key=skips.__getitem__) if skips else None
            if not answers and last_skip is None:
                raise Refused("There is nothing to undo.")
            now = self.clock()
            taken = last_skip is None or (bool(answers) and answers[0].at > skips[last_skip])
            row = answers[0].row if taken else int(last_skip or 0)
            with self.store.transaction():
                self.store.remove(row) if taken else self.store.unskip(row, name)
                self.store.lock(row, self._holder(name, tab), now + self.lock_seconds)
            if taken:
                self._mark(row, False)
            state = self._state(name, row) | {"undone": answers[0].label if taken else None}
        if taken:
            self.on_answer(self._n_answers)
        return state

    def open(self, name: str, row: int) -> dict[str, Any]:
        """One of this person's answers, to be changed."""
        row = self._check_row(row)
        with self._guard:
            answer = self.store.answer_of(row)
            if answer is None or answer.name != name:
                raise Refused("This is none of your answers, so you cannot change it.")
            return self._state(name, row) | {"editing": {"label": answer.label, "outside": answer.outside}}

    def status(self, name: str, tab: str) -> dict[str, Any]:
        """The progress; it keeps this person's row from expiring."""
        with self._guard:
            now, holder = self.clock(), self._holder(name, tab)
            held = next((row for row, who in self.store.locks(now).items() if who == holder), None)
            if held is not None:
                with self.store.transaction():
                    self.store.lock(held, holder, now + self.lock_seconds)
            return self._progress(name)

    def _give(self, name: str, tab: str, apart: int | None = None) -> int | None:
        """Lock a row for this person: the one that is theirs already, or the best that is free."""
        now, holder = self.clock(), self._holder(name, tab)
        locks = self.store.locks(now)
        held = next((row for row, who in locks.items() if who == holder and row != apart), None)
        row = held if held is not None and not self._answered[held] else self._best(name, set(locks), apart)
        if row is not None:
            self.store.lock(row, holder, now + self.lock_seconds)
        return row

    def _best(self, name: str, taken: set[int], apart: int | None) -> int | None:
        order, skips = self._ranking.order, self.store.skips(name)
        while self._start < len(order) and self._answered[order[self._start]]:
            self._start += 1
        for place in range(self._start, len(order)):
            row = int(order[place])
            if row != apart and not self._answered[row] and row not in taken and row not in skips:
                return row
        free = [row for row in skips if not self._answered[row] and row not in taken]
        others = [row for row in free if row != apart]
        return (others or free or [None])[0]  # type: ignore[list-item]

    def _label(self, row: int, choice: int | None, typed: str | None) -> tuple[str | None, bool]:
        names = self.view.class_names
        if choice is None:
            text = (typed or "").strip()
            if len(text) > MOST_LABEL or "\0" in text:
                raise Refused(f"A label has at most {MOST_LABEL} characters, and no null character.")
            if text not in names:
                return text or None, True
            choice = names.index(text)
        if not 0 <= choice < len(names):
            raise Refused(f"There is no label number {choice}.")
        return names[choice], not bool(self.rows.candidates.matrix[row, choice])

    def _check_row(self, row: int) -> int:
        if not 0 <= row < len(self.rows):
            raise Refused(f"There is no row {row}.")
        return row

    def _now(self, name: str) -> float:
        """The time, later than whatever this person did before: the order of answers is the order of time."""
        last = [answer.at for answer in self.store.last_answers(name, 1)]
        return max([self.clock(), *(at + 1e-3 for at in (*last, *self.store.skips(name).values()))])

    def _mark(self, row: int, answered: bool) -> None:
        if self._answered[row] != answered:
            self._answered[row] = answered
            self._n_answers += 1 if answered else -1
            self._start = 0 if not answered else self._start

    @staticmethod
    def _holder(name: str, tab: str) -> str:
        return f"{name}\n{tab}"

    def _state(self, name: str, row: int | None) -> dict[str, Any]:
        item = None
        if row is not None:
            item = self.view.of(row, self._ranking.belief, self._ranking.reasons.get(row))
        last = [
            {"row": a.row, "id": str(self.rows.ids[a.row]), "label": a.label, "outside": a.outside}
            for a in self.store.last_answers(name, LAST)
        ]
        return {"item": item, "last": last, "progress": self._progress(name)}

    def _progress(self, name: str) -> dict[str, Any]:
        curve = self.store.refits()
        gain = expected_gain(curve)
        n_open = int((~self._answered).sum())
        return {
            "answers": self._n_answers,
            "mine": self.store.n_answers(name),
            "rows": len(self.rows) - len(self.rows.known),
            "goal": self.goal,
            "open": n_open,
            "curve": curve,
            "more": MORE,
            "gain": gain,
            "gain_rows": None if gain is None else round(gain * n_open),
            "problem": " ".join(filter(None, [self.table_problem, self.refit_problem])) or None,
        }
