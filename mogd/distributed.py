"""Several processes that train one model, on one machine or more: what they have in common goes by `torch.distributed`.

Every process (rank) is given the same rows and draws the same order. A row belongs to one rank, which alone passes it
through the network and keeps what is known of it; gradients are summed over the ranks in every step, each with the
weight of its rows. Outside of a process group there is one rank, and nothing is sent.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def join() -> None:
    """Enter the group whose environment `torchrun` has set up, where it has and nobody has entered it yet."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2 or not dist.is_available() or dist.is_initialized():
        return
    on_cuda = torch.cuda.is_available()
    if on_cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if on_cuda else "gloo")
    atexit.register(dist.destroy_process_group)


def leave() -> None:
    """End the process of a rank that has done its work; outside of a group nothing happens.

    Threads of Gloo outlive the group. One of them that lets go of a tensor while Python ends aborts the process, about
    once in a hundred runs, so that Python's own end is left out.
    """
    if size() == 1:
        return
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    return dist.get_rank() if size() > 1 else 0


def is_first() -> bool:
    """Whether this is the rank that writes and prints; outside of a group it is."""
    return rank() == 0


def own(index: Tensor) -> Tensor:
    """Those of the rows that belong to this rank."""
    return index if size() == 1 else index[index % size() == rank()]


def sums(values: Sequence[float]) -> list[float]:
    """Each number summed over the ranks."""
    if size() == 1:
        return list(values)
    return _summed(torch.tensor(values, dtype=torch.float64, device=_device())).tolist()


def from_first(value: int) -> int:
    """The first rank's number."""
    return int(sums([value if is_first() else 0])[0])


def average_gradients(parameters: Iterable[Tensor], loss: Tensor, weight: float) -> Tensor:
    """Make the gradients those of the whole batch, a weighted mean of which this rank has the part `weight`.

    Returns the loss of the whole batch.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([loss.detach().reshape(1), loss.new_ones(1), *(g.flatten() for g in gradients)])
    flat = _summed(flat * weight)
    flat /= flat[1].clamp(min=1e-12).clone()
    for g, whole in zip(gradients, flat[2:].split([g.numel() for g in gradients]), strict=True):
        g.copy_(whole.view_as(g))
    return flat[0]


def gather_rows(values: Tensor, row: Tensor) -> None:
    """Give every rank what each rank keeps of its rows: values, each with the number of its row, change in place."""
    values[row % size() != rank()] = 0
    values.copy_(_summed(values))


def average_buffers(model: nn.Module) -> None:
    """BatchNorm's running statistics, of which each rank has those of its rows: their mean."""
    for buffer in model.buffers() if size() > 1 else ():
        if buffer.is_floating_point():
            buffer.copy_(_summed(buffer) / size())


def check_same(what: str, *tensors: Tensor) -> None:
    """Refuse ranks that were given different rows: their number and sum are compared."""
    if size() == 1:
        return
    own_sums = torch.tensor(
        [v for t in tensors for v in (t.numel(), t.double().sum().item())], dtype=torch.float64, device=_device()
    )
    lowest, highest = own_sums.clone(), own_sums.clone()
    with _answering():
        dist.all_reduce(lowest, dist.ReduceOp.MIN)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
    if not torch.equal(lowest, highest):
        raise ValueError(
            f"the {size()} ranks were given different {what}: give every rank the same, it takes its share"
        )


def _summed(tensor: Tensor) -> Tensor:
    with _answering():
        tensor = tensor.detach().clone()
        dist.all_reduce(tensor)
    return tensor


def _device() -> torch.device:
    """Where the group's own numbers must lie."""
    on_cuda = dist.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")


@contextmanager
def _answering() -> Iterator[Any]:
    """Say what it means when a sum over the ranks fails."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        said = str(error).strip().splitlines()[0]
        raise RuntimeError(
            f"rank {rank()}: another of the {size()} ranks has ended or does not answer ({said}): its own message says "
            "why; a run with callbacks=['auto', Checkpoint('FOLDER')] (in the shell --checkpoint FOLDER) can be resumed"
        ) from None
