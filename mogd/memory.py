"""Freed memory kept for the next step, where a network's maps are large.

A C library gives blocks of many megabytes back to the system as soon as they are freed, and gets them anew, page by
page, in the next step: with airbench on one thread that took a fifth of the time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# of glibc's mallopt(3)
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
NEVER = -1  # trim
USUAL_MMAPS = 65536  # glibc's own
LARGE_BLOCK = 32 << 20  # where glibc's own rule ends up once a larger block was freed: it trims beyond twice as much


@contextmanager
def kept(wanted: bool = True) -> Iterator[None]:
    """Within the block the process keeps what it frees; at its end that goes back to the system. No value changes.

    It does nothing where the C library is not glibc.
    """
    library = _glibc() if wanted else None
    if library is None:
        yield
        return
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        library.mallopt(MMAP_MAX, USUAL_MMAPS)
        library.mallopt(MMAP_THRESHOLD, LARGE_BLOCK)
        library.mallopt(TRIM_THRESHOLD, 2 * LARGE_BLOCK)
        library.malloc_trim(0)


@cache
def _glibc() -> Any:
    """The C library of this process, or None where it has not what is needed."""
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version, library.mallopt, library.malloc_trim  # noqa: B018
    except (OSError, AttributeError, TypeError):
        return None
    return library
