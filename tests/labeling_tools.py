"""A real labelling server in a process of its own, and the requests that a page sends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

LABELS = np.array(["ant", "bee", "cat", "dog"])


def write_table(path: Path, n: int, *, seed: int = 0) -> np.ndarray:
    """A table of `n` rows with ids, four features that show the label, and two or three candidates; the true labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.normal(size=(n, 4)) + 2.5 * np.eye(4)[y]
    matrix = np.eye(4, dtype=bool)[y]
    matrix[np.arange(n), rng.integers(4, size=n)] = True
    matrix[np.arange(n), (y + 1) % 4] = True
    columns: dict[str, Any] = {"id": [f"r{i}" for i in range(n)], "labels": ["|".join(LABELS[row]) for row in matrix]}
    columns |= {f"x{j}": X[:, j].round(4).tolist() for j in range(4)}
    pl.DataFrame(columns).write_csv(path)
    return LABELS[y]


class Server:
    """`mogd label` as a shell runs it; `kill` is kill -9, `stop` is Ctrl+C."""

    def __init__(self, *arguments: object, port: int = 0, before: Callable[[], None] | None = None) -> None:
        command = [sys.executable, "-m", "mogd", "label", *map(str, arguments), "--port", str(port)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=before
        )
        self.said: list[str] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line.rstrip())
            if line.startswith("http"):
                break
        else:
            raise AssertionError("\n".join(self.said))
        self.address = self.said[-1].partition("?")[0].rstrip("/")
        self.port = int(self.address.rpartition(":")[2])

    def ask(self, path: str, headers: dict[str, str] | None = None, **fields: Any) -> dict[str, Any]:
        """What the page gets for a request; an error's words stand under `error`, its number under `status`."""
        body = json.dumps({"name": "ann", "tab": "1"} | fields).encode()
        sent = {"Content-Type": "application/json"} | (headers or {})
        request = urllib.request.Request(f"{self.address}/api/{path}", body, sent)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            text = error.read().decode()
            found = json.loads(text) if text.startswith("{") else {"error": text}
            return found | {"status": error.code}

    def get(self, path: str, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
        request = urllib.request.Request(f"{self.address}{path}", headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, dict(reply.headers.items()), reply.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers.items()), error.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> str:
        """End it as Ctrl+C does; what it said at the end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.communicate(timeout=60)[0]


def eventually(check: Callable[[], Any], seconds: float = 60) -> Any:
    """What `check` gives once it gives something."""
    end = time.monotonic() + seconds
    while not (found := check()):
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.1)
    return found
