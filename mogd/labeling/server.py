"""The running server: store, desk, refits, the table that is written, and the socket, opened and closed in order."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mogd.datasets.frames import check_target, write_frame
from mogd.labeling.desk import Desk
from mogd.labeling.refit import Refitter, Result
from mogd.labeling.rows import LabelRows
from mogd.labeling.safety import Guard
from mogd.labeling.store import Store

WRITE_SECONDS = 1.0  # the table is at most this old while answers come
FIRST_RANKING_SECONDS = 10.0  # how long to wait for the first choice of rows before the page opens


def store_path(out: Path) -> Path:
    """The answers' own file, beside the table that is made of them."""
    return out.with_name(f"{out.name}.db")


def check_out(out: Path) -> None:
    """Refuse a place that would overwrite something else."""
    check_target(out)
    if out.exists() and not store_path(out).exists():
        raise FileExistsError(
            f"{out} exists and was not made by `mogd label` (there is no {store_path(out).name} beside it): choose "
            "another --out, or move it away"
        )


def answers_table(desk: Desk) -> dict[str, list[Any]]:
    """The answers as columns, in the order in which they were given."""
    answers, ids = desk.answers(), desk.rows.ids.tolist()
    return {
        desk.rows.id_name or "row": [ids[answer.row] for answer in answers],
        "label": [answer.label for answer in answers],
        "outside": [answer.outside for answer in answers],
        "answered_by": [answer.name for answer in answers],
        "answered_at": [datetime.fromtimestamp(a.at, UTC).isoformat(timespec="milliseconds") for a in answers],
    }


class TableWriter:
    """Writes the table soon after every change, in a thread of its own, so that no answer waits for it."""

    def __init__(self, desk: Desk, out: Path) -> None:
        self.desk, self.out = desk, out
        self._changed, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def changed(self) -> None:
        self._changed.set()

    def write(self) -> None:
        self._changed.clear()
        try:
            write_frame(self.out, answers_table(self.desk))
            self.desk.table_problem = None
        except Exception as error:  # a full disk; polars has errors of its own for it
            self.desk.table_problem = (
                f"{self.out.name} could not be written ({error}). The answers are safe in {store_path(self.out).name}."
            )

    def _loop(self) -> None:
        while not self._closed.wait(WRITE_SECONDS):
            if self._changed.is_set():
                self.write()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self.write()


def serve(
    rows: LabelRows,
    out: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = None,
    every: int = 10,
    lock_seconds: float = 600,
    goal: int = 100,
    blind: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Label until the process is stopped. `every` is the number of answers between refits, 0 for none."""
    import uvicorn

    from mogd.labeling.web import make_app

    check_out(out)
    guard = Guard(host, token)
    listening = _listen(host, port)
    store = Store(store_path(out), rows.fingerprint)
    desk = Desk(rows, store, lock_seconds=lock_seconds, goal=goal, blind=blind)
    writer = TableWriter(desk, out)
    writer.write()
    ready = threading.Event()

    def ranked(result: Result) -> None:
        desk.use(result)
        ready.set()

    refitter = Refitter(rows, ranked)
    refitter.ask(desk.labels())
    asked_at = len(desk.answers())

    def answered(count: int) -> None:
        nonlocal asked_at
        writer.changed()
        if every and abs(count - asked_at) >= every:
            asked_at = count
            refitter.ask(desk.labels())

    desk.on_answer = answered
    ready.wait(FIRST_RANKING_SECONDS)
    number = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    say(f"http://{name}:{number}/" + (f"?token={token}" if token else ""))
    config = uvicorn.Config(make_app(desk, guard), log_level="warning", access_log=False, server_header=False)
    before = signal.signal(signal.SIGTERM, _stop)  # uvicorn raises the signal again once it has closed
    try:
        uvicorn.Server(config).run(sockets=[listening])
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        refitter.close()
        writer.close()
        count = len(desk.answers())
        store.close()
    say(f"{count} answers in {out}")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        found.listen(128)  # who comes before the server is up waits
    except OSError as error:
        found.close()
        raise OSError(
            f"cannot listen on {host}:{port} ({error.strerror}): choose another --port, or 0 for any"
        ) from None
    return found


def _stop(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
