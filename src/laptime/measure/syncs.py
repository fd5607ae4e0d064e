"""How often a piece of work makes the host wait for the GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

# torch's own words, in c10/cuda/CUDAFunctions.cpp.
_SAID = "called a synchronizing CUDA operation"


def count_syncs(work: Callable[[], object]) -> int:
    """Runs work under torch's debug mode for synchronisations and counts what it says.

    Args:
        work: anything; on a machine without a GPU in use it makes none.

    Returns:
        Reads of values, copies to pageable memory and the like; not `torch.cuda.synchronize` itself, which nobody calls
        by mistake.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            torch.cuda.set_sync_debug_mode("warn")  # which warns once itself, of being a prototype
            work()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum(_SAID in str(one.message) for one in said)
