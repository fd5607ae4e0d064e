"""The ranks of a training: who this process is among them, what they tell each other, and nothing where it is alone.

A process that torch's elastic launcher started finds its place in the environment. All traffic of one machine stays on
its loopback interface.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from laptime.host.processes import allowed_cores

T = TypeVar("T")

# Longer than a rank may be ahead of another outside of steps: saving, compiling, probing.
PATIENCE = timedelta(minutes=10)


@dataclass(frozen=True)
class World:
    """This process among the ranks.

    Attributes:
        rank: from 0; rank 0 alone writes.
        size: ranks in all.
        grouped: whether a process group is open; without one nothing is exchanged and nothing costs time.
        device: where the tensors live that are exchanged: of NCCL on the GPU, of gloo on the CPU.
        nodes: machines that the ranks stand on, as many on each.
    """

    rank: int = 0
    size: int = 1
    grouped: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    nodes: int = 1

    @property
    def here(self) -> int:
        """Ranks that share this machine."""
        return self.size // self.nodes

    @property
    def first(self) -> bool:
        """Whether this rank writes files and speaks."""
        return self.rank == 0

    def barrier(self) -> None:
        """Waits for all ranks.  # all ranks"""
        if self.grouped:
            self.summed(torch.zeros(1))

    def summed(self, values: Tensor) -> Tensor:
        """The sum of a small tensor over the ranks, in its own type, on the CPU: exact for int64.  # all ranks"""
        if not self.grouped:
            return values
        shared = values.to(self.device, copy=True)
        dist.all_reduce(shared)
        return shared.cpu()  # waits for the device

    def gathered(self, value: float) -> tuple[float, ...]:
        """The number of each rank, by rank.  # all ranks"""
        places = torch.zeros(self.size, dtype=torch.float64)
        places[self.rank] = value
        return tuple(self.summed(places).tolist())

    def collected(self, value: T) -> tuple[T, ...]:
        """The value of each rank, by rank; for a small object outside of steps.  # all ranks"""
        if not self.grouped:
            return (value,)
        held = [value] * self.size
        dist.all_gather_object(held, value)
        return tuple(held)

    def agreed(self, value: T) -> T:
        """What rank 0 says, for what each rank would decide for itself: a choice by timing.  # all ranks"""
        if not self.grouped:
            return value
        held: list[T] = [value]
        dist.broadcast_object_list(held, src=0, device=self.device)
        return held[0]

    def same(self, model: nn.Module, parameters: bool = True) -> None:
        """Gives all ranks rank 0's buffers, and its parameters too.  # all ranks"""
        if not self.grouped:
            return
        kept = [*model.parameters(), *model.buffers()] if parameters else list(model.buffers())
        with torch.no_grad():
            for tensor in kept:
                whole = tensor.detach().contiguous()  # channels_last weights are sent in plain order
                dist.broadcast(whole, src=0)
                tensor.copy_(whole)


ALONE = World()


def started_by_launcher() -> bool:
    """Whether this process is a rank of torch's elastic launcher, be it the only one."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "WORLD_SIZE" in os.environ


def started_again() -> bool:
    """Whether the launcher starts its ranks anew where one fails, as on several nodes and in pods."""
    return int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


@contextlib.contextmanager
def opened(device: str) -> Iterator[World]:
    """Opens the process group of the launcher that started this process; `ALONE` where none did.

    The ranks of a machine divide its cores among them, on GPUs for the host's operators.
    """
    if not started_by_launcher():
        yield ALONE
        return
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    beside = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    torch.set_num_threads(threads_of(beside))
    if device == "cuda":
        place = torch.device("cuda", local)
        torch.cuda.set_device(place)
        dist.init_process_group("nccl", timeout=PATIENCE, device_id=place)
    else:
        place = torch.device("cpu")
        dist.init_process_group("gloo", timeout=PATIENCE)
    yield World(rank, size, True, place, size // beside)
    # A recorded step stands in a cycle (the run's parts know it, and it them), and NCCL waits for ever for recordings
    # that hold its exchanges: see https://github.com/pytorch/pytorch/issues/115388.
    gc.collect()
    dist.destroy_process_group()  # not where a rank failed: NCCL would wait for the others


def once(work: Callable[[], object], each_machine: bool = True) -> None:
    """Has the first rank of each machine, or of all, do something while the others wait; alone a process does it.

    # all ranks
    """
    if not dist.is_initialized():
        work()
        return
    if os.environ["LOCAL_RANK" if each_machine else "RANK"] == "0":
        work()
    dist.barrier()


def threads_of(ranks: int) -> int:
    """Threads of one rank where so many ranks share the cores of a machine."""
    return max(1, allowed_cores() // ranks)


def lost_a_peer(error: BaseException) -> bool:
    """Whether a rank failed only because another one is gone: gloo and NCCL have no type of their own for that."""
    text = str(error)
    return isinstance(error, dist.DistError) or "gloo" in text or "Connection closed by peer" in text
