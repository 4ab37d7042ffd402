"""How a message names an option: `--ignore text` in the shell, `ignore=["text"]` in Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

IN_SHELL = {"overwrite": "force"}  # options that the shell calls otherwise
_SHELL: ContextVar[bool] = ContextVar("shell", default=False)


@contextmanager
def in_shell() -> Iterator[None]:
    """Within this block messages name the options of the shell."""
    token = _SHELL.set(True)
    try:
        yield
    finally:
        _SHELL.reset(token)


def option(name: str, value: Any) -> str:
    """An option and its value, as they are typed in the place where the user is."""
    if not _SHELL.get():
        plain = isinstance(value, (bool, tuple))
        return f"{name}={value if plain else json.dumps(value, ensure_ascii=False)}"
    flag = f"--{IN_SHELL.get(name, name).replace('_', '-')}"
    if value is True:
        return flag
    if isinstance(value, tuple):  # a picture's height and width
        return f"{flag} {'x'.join(map(str, value))}"
    text = ",".join(map(str, value)) if isinstance(value, Sequence) and not isinstance(value, str) else str(value)
    return f"{flag} {text}" if text and all(c.isalnum() or c in "_-.,/" for c in text) else f'{flag} "{text}"'
