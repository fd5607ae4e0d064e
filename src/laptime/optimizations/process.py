"""Stage process: what holds for the whole process."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import torch

from laptime.optimizations.base import Options, Recipe
from laptime.optimizations.modes import Modes
from laptime.world import threads_of

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 1 << 30
_LARGEST_EVERYWHERE = 32 << 20


def keep_pages(recipe: Recipe, options: Options) -> Recipe:
    """Tells glibc to keep freed blocks instead of returning them to the system.

    At batch 512 the large tensors of a step are otherwise mapped and returned each time, at 15,000 page faults and
    more (measured: docs/log.md). It costs memory: the peak stays with the process.
    """
    kept = set_malloc_thresholds(_KEPT_BYTES)
    note = "freed memory is kept" if kept else "freed memory is returned: malloc takes no thresholds"
    return replace(recipe, notes=(*recipe.notes, note))


def set_malloc_thresholds(size: int) -> bool:
    """Sets from which size glibc's malloc maps blocks one by one and trims its heap; False where there is no glibc."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # Some versions of glibc accept no mapping threshold above 32 MiB.
    mapped = mallopt(_M_MMAP_THRESHOLD, size) or mallopt(_M_MMAP_THRESHOLD, _LARGEST_EVERYWHERE)
    return bool(mallopt(_M_TRIM_THRESHOLD, size) and mapped)


def threads(recipe: Recipe, options: Options) -> Recipe:
    """Sets torch's threads to the cores that affinity and quota allow, divided among the ranks; flushes denormals."""
    count = int(options["count"]) or threads_of(recipe.world.here)
    torch.set_num_threads(count)
    torch.set_flush_denormal(True)
    return replace(recipe, notes=(*recipe.notes, f"{count} threads"))


def tf32(recipe: Recipe, options: Options) -> Recipe:
    """Lets products of fp32 tensors round their inputs to 10 bits of mantissa, as convolutions do by default."""
    return _in_modes(recipe, replace(recipe.modes, matmul_tf32=True, cudnn_tf32=True))


def cudnn_benchmark(recipe: Recipe, options: Options) -> Recipe:
    """Has cuDNN time its kernels for each new shape, in warm-up, and keep the fastest."""
    return _in_modes(recipe, replace(recipe.modes, benchmark=True))


def _in_modes(recipe: Recipe, modes: Modes) -> Recipe:
    modes.apply()  # later stages time kernels
    return replace(recipe, modes=modes)


def evaluate_on_cpu(recipe: Recipe, options: Options) -> Recipe:
    """Evaluates a copy of the model on the CPU in the baseline's batch."""
    return replace(recipe, evaluate_on=torch.device("cpu"))
