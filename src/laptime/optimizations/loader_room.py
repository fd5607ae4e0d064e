"""How many loader processes a machine has room for."""

from __future__ import annotations

import os

from laptime.data.boxes.tensors import BoxData
from laptime.data.tensors import ImageData
from laptime.host.memory import allowed_memory
from laptime.optimizations.base import Recipe

# Of the shared memory; the rest is for others.
_SHARE = 0.8
# What a loader process holds beside its batches, and how many batches it keeps ready: torch's own default.
_WORKER_BYTES, _READY = 200 * 2**20, 2
_SHARED = "/dev/shm"  # noqa: S108 - where torch passes batches between processes


def room_for_workers(recipe: Recipe, asked: int, size: int) -> tuple[int, str]:
    """See `workers_that_fit`, on this machine, which several ranks may share.

    Args:
        recipe: whose images are loaded.
        asked: processes.
        size: samples of a rank's batch.
    """
    here = recipe.world.here
    return workers_that_fit(asked, _batch_bytes(recipe, size), allowed_memory() // here, _shared_bytes() // here)


def workers_that_fit(asked: int, batch_bytes: int, memory: int, shared: int) -> tuple[int, str]:
    """The loader processes for which there is room, at most as many as are asked for, and why they are fewer.

    Args:
        asked: processes.
        batch_bytes: of a finished batch.
        memory: bytes of the host; a quarter of them may go to the loader.
        shared: bytes through which processes pass batches.
    """
    by_shared = int(_SHARE * shared) // (_READY * batch_bytes)
    by_memory = memory // 4 // (_WORKER_BYTES + _READY * batch_bytes)
    held = max(0, min(asked, by_shared, by_memory))
    if held == asked:
        return asked, ""
    place, room = (f"shared memory ({_SHARED})", shared) if by_shared <= by_memory else ("memory", memory)
    return held, f"{held} loader workers instead of {asked}: {room / 2**30:.1f} GiB of {place} hold no more"


def _batch_bytes(recipe: Recipe, size: int) -> int:
    if isinstance(recipe.data, BoxData):
        return size * recipe.data.item_bytes
    if not isinstance(recipe.data, ImageData):
        return max(1, size * recipe.data.train.nbytes // max(1, len(recipe.data.train)))
    height, width = recipe.image_size
    return size * recipe.channels * height * width * 4


def _shared_bytes() -> int:
    """Of the place where torch passes batches between processes; plenty where there is no such place."""
    try:
        found = os.statvfs(_SHARED)
    except OSError:
        return 2**40
    return found.f_blocks * found.f_frsize
