"""How many threads a piece of work is worth: small steps run on one, and the caller's setting is given back.

Threads that wait for each other in every small operation are slower than one thread as soon as anything else uses the
machine: the README's example took 3.5 s on one thread and 141 s on two, beside one busy process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

SMALL_STEP = 1e9  # floating-point operations of a forward pass: about 20 ms of one core; less is not worth a second


def threads_for(model: nn.Module, x: Tensor, n_rows: int) -> int:
    """The threads for passes of `n_rows` rows like `x`: one for small ones, else as many as torch is set to."""
    if torch.get_num_threads() == 1 or not len(x):
        return torch.get_num_threads()
    counter = FlopCounterMode(display=False)
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), counter:
            model(x[:1])
    finally:
        model.train(training)
    return 1 if counter.get_total_flops() * n_rows < SMALL_STEP else torch.get_num_threads()


@contextmanager
def limited_to(n_threads: int) -> Iterator[None]:
    """Within the block torch computes on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
