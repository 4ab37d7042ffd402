"""Answers on disk: one SQLite file in which a row has at most one answer, which is there once it is confirmed.

Write-ahead logging with synchronous=FULL: when a transaction returns, its answer survives a crash of the process and of
the machine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FORMAT = 1
BUSY_SECONDS = 1  # a server that has just been stopped may still hold the file
SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    row INTEGER PRIMARY KEY, label TEXT, outside INTEGER NOT NULL, name TEXT NOT NULL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS answers_of ON answers (name, at);
CREATE TABLE IF NOT EXISTS skips (
    row INTEGER NOT NULL, name TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (row, name));
CREATE TABLE IF NOT EXISTS locks (
    row INTEGER PRIMARY KEY, holder TEXT NOT NULL UNIQUE, expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS refits (n_answers INTEGER PRIMARY KEY, accuracy REAL NOT NULL);
"""


@dataclass(frozen=True)
class Answer:
    """What a person said of a row; a label of None is "none of these", without saying what it is instead."""

    row: int
    label: str | None
    outside: bool  # whether the truth lies outside the row's candidate set
    name: str
    at: float  # seconds since 1970


class StoreError(RuntimeError):
    """The answer could not be written; the store is as it was before."""


class Store:
    """One file of answers. Not thread-safe: the desk calls it under its own lock.

    Parameters
    ----------
    path : the SQLite file; made when it is not there.
    table : a fingerprint of the table's ids and candidate sets; a store of another table is refused.
    """

    def __init__(self, path: Path, table: str) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self.connection.execute("PRAGMA trusted_schema=OFF")  # a file from elsewhere may hold functions to call
            self.connection.execute("PRAGMA locking_mode=EXCLUSIVE")  # two servers on one file would give rows twice
            self.connection.execute("PRAGMA journal_mode=WAL")
            self.connection.execute("PRAGMA synchronous=FULL")
            self.connection.executescript(SCHEMA)
            self._check_table(table)
            self._check_content()
        except (sqlite3.Error, StoreError, UnicodeDecodeError) as error:
            self.connection.close()
            if "locked" in str(error):
                raise ValueError(f"{path} is in use: another `mogd label` has it open; stop that one first") from None
            raise ValueError(f"{path} cannot be used as a store of answers: {error}") from None
        except ValueError:
            self.connection.close()
            raise

    def _check_table(self, table: str) -> None:
        with self.transaction():
            facts = dict(self.connection.execute("SELECT key, value FROM facts"))
            if facts and facts != {"format": str(FORMAT), "table": table}:
                raise ValueError(
                    f"{self.path} holds answers to another table (its ids or candidates differ) or of another version "
                    "of mogd: choose another --out, or move that file away"
                )
            if not facts:
                pairs = [("format", str(FORMAT)), ("table", table)]
                self.connection.executemany("INSERT INTO facts VALUES (?, ?)", pairs)

    def _check_content(self) -> None:
        """Read all of it: damage is said here, not in the midst of a person's work."""
        found = [said for (said,) in self.connection.execute("PRAGMA quick_check(1)")]
        rows = [(a.row, a.label or "", a.name, a.at) for a in self.answers()]
        plain = all(isinstance(v, kind) for row in rows for v, kind in zip(row, (int, str, str, float), strict=True))
        if found != ["ok"] or not plain or not all(isinstance(accuracy, float) for _, accuracy in self.refits()):
            raise ValueError(f"{self.path} is damaged: move it away, or put back a copy of it")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All of the block is on disk when it ends, or nothing of it and a StoreError."""
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            yield
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise StoreError(_reason(error, self.path)) from None
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def answers(self) -> list[Answer]:
        """All answers, in the order in which they were given."""
        return self._answers("ORDER BY at, row")

    def answer_of(self, row: int) -> Answer | None:
        return next(iter(self._answers("WHERE row = ?", row)), None)

    def last_answers(self, name: str, count: int) -> list[Answer]:
        """A person's last answers, the newest first."""
        return self._answers("WHERE name = ? ORDER BY at DESC LIMIT ?", name, count)

    def n_answers(self, name: str) -> int:
        return int(self.connection.execute("SELECT count(*) FROM answers WHERE name = ?", (name,)).fetchone()[0])

    def _answers(self, where: str, *values: object) -> list[Answer]:
        found = self.connection.execute(f"SELECT row, label, outside, name, at FROM answers {where}", values)
        return [Answer(row, label, bool(outside), name, at) for row, label, outside, name, at in found]

    def put(self, answer: Answer) -> None:
        """Keep an answer; it replaces one to the same row and ends the row's skips."""
        values = (answer.row, answer.label, int(answer.outside), answer.name, answer.at)
        self.connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", values)
        self.connection.execute("DELETE FROM skips WHERE row = ?", (answer.row,))
        self.unlock_row(answer.row)

    def remove(self, row: int) -> None:
        self.connection.execute("DELETE FROM answers WHERE row = ?", (row,))

    def skip(self, row: int, name: str, at: float) -> None:
        self.connection.execute("INSERT OR REPLACE INTO skips VALUES (?, ?, ?)", (row, name, at))
        self.unlock_row(row)

    def unskip(self, row: int, name: str) -> None:
        self.connection.execute("DELETE FROM skips WHERE row = ? AND name = ?", (row, name))

    def skips(self, name: str) -> dict[int, float]:
        """The rows a person skipped and when, the oldest first."""
        return dict(self.connection.execute("SELECT row, at FROM skips WHERE name = ? ORDER BY at", (name,)))

    def lock(self, row: int, holder: str, expires: float) -> None:
        """Give a row to a holder, who has one row at a time."""
        self.connection.execute("DELETE FROM locks WHERE row = ? OR holder = ?", (row, holder))
        self.connection.execute("INSERT INTO locks VALUES (?, ?, ?)", (row, holder, expires))

    def unlock_row(self, row: int) -> None:
        self.connection.execute("DELETE FROM locks WHERE row = ?", (row,))

    def locks(self, now: float) -> dict[int, str]:
        """The rows that are being looked at, and by whom."""
        return dict(self.connection.execute("SELECT row, holder FROM locks WHERE expires > ?", (now,)))

    def add_refit(self, n_answers: int, accuracy: float) -> None:
        self.connection.execute("INSERT OR REPLACE INTO refits VALUES (?, ?)", (n_answers, accuracy))

    def refits(self) -> list[tuple[int, float]]:
        """Held-out accuracy over the number of answers."""
        return self.connection.execute("SELECT n_answers, accuracy FROM refits ORDER BY n_answers").fetchall()

    def close(self) -> None:
        self.connection.close()


def _reason(error: sqlite3.Error, path: Path) -> str:
    return f"{path.name} cannot be written ({error}): is the disk full? Free some space and answer again"
