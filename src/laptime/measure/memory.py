"""Peak memory of a stretch of work."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import torch

from laptime.host.memory import free_memory
from laptime.world import World

_MIB = 1024 * 1024
# What a process that has touched a GPU holds of it before its first tensor: half a GiB is usual.
_OWN_MIB = 1536


def reset_peak(device: torch.device) -> None:
    """Forgets the peak so far, where the system can (Linux, CUDA); elsewhere the peak is that of the process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    elif sys.platform == "linux":
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        except OSError:
            return  # a hardened container forbids it: the peak of the process is still an upper bound


def free_bytes(device: torch.device) -> int:
    """What can still be taken: of a GPU with what its allocator keeps unused, of a host what `free_memory` says."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    return free_memory()


def peak_mib(device: torch.device) -> float:
    """The peak since `reset_peak` in MiB: what the allocator took from a GPU, the process's resident memory on a CPU.

    Taken, not in use: the memory that a captured graph works in counts as free between its replays.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device) / _MIB
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    import resource  # not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / _MIB if sys.platform == "darwin" else peak / 1024


def cautions_of_others(device: torch.device, world: World) -> tuple[str, ...]:
    """One sentence where others hold memory of a GPU of which this process has taken none yet.

    For machines without NVIDIA's library, by which the launcher names such processes. Ranks have exchanged something
    before, which takes memory of its own, so of them nothing is said.
    """
    if device.type != "cuda" or world.grouped or find_spec("pynvml") is not None:
        return ()
    return in_use(torch.cuda.get_device_name(device), *torch.cuda.mem_get_info(device))


def in_use(name: str, free: int, whole: int) -> tuple[str, ...]:
    """What is said of a GPU with `free` of `whole` bytes at a run's start; nothing where the rest is the run's own."""
    held_mib = (whole - free) / _MIB
    if held_mib <= _OWN_MIB:
        return ()
    return (f"{name} was in use by another process at the start: {held_mib:,.0f} MiB of its memory were taken",)
