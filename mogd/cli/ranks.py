"""`torchrun --nproc-per-node=N -m mogd fit …`: the processes train together, and the first alone writes and prints."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout


@contextmanager
def joined() -> Iterator[bool]:
    """Within the block the processes that `torchrun` started are one group; says whether this is the first of them.

    They end with the block.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:  # nothing of torch is loaded for it
        yield True
        return
    from mogd import distributed

    distributed.join()
    if distributed.is_first():
        yield True
    else:
        with _silence():
            yield False
    distributed.leave()


@contextmanager
def _silence() -> Iterator[None]:
    """No output: the first rank gives it."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
