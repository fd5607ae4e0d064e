"""Variables of the environment that decide how fast a training is: which are set, and which of them slow it down."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

_THREADS = "torch takes fewer threads than there are cores, but where a training sets their number"
_LINES = "a line is written for each call"
# What each does that slows a training down, and the values that do not.
_SLOW = {
    "OMP_WAIT_POLICY": ("threads sleep between operators and are woken for each, which small nets feel", ("active",)),
    "OMP_NUM_THREADS": (_THREADS, ()),
    "MKL_NUM_THREADS": (_THREADS, ()),
    "ATEN_CPU_CAPABILITY": ("torch's own kernels may leave instructions of this CPU unused", ()),
    "ONEDNN_MAX_CPU_ISA": ("oneDNN's kernels may leave instructions of this CPU unused", ("all", "default")),
    "ONEDNN_VERBOSE": (_LINES, ("0", "none")),
    "MKL_VERBOSE": (_LINES, ("0",)),
    "MALLOC_CHECK_": ("each allocation is checked", ("0",)),
    "MALLOC_PERTURB_": ("each allocation is written over", ("0",)),
    "PYTHONDEVMODE": ("Python checks what it does", ()),
    "PYTHONTRACEMALLOC": ("Python notes where each allocation was made", ("0",)),
    "PYTHONMALLOC": ("Python checks its allocations or does not pool them", ("default", "pymalloc")),
    "CUDA_LAUNCH_BLOCKING": ("the CPU waits for each kernel's end", ("0",)),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("the driver allocates each tensor on a GPU anew", ("0",)),
    "NVIDIA_TF32_OVERRIDE": ("TF32 stays off, whatever a training asks for", ("1",)),
    "TORCH_COMPILE_DISABLE": ("torch.compile compiles nothing", ("0",)),
    "TORCH_DISTRIBUTED_DEBUG": ("collectives are checked or logged", ("off",)),
    "NCCL_P2P_DISABLE": ("GPUs don't reach into each other's memory", ("0",)),
}
_COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # slow below the number of cores
# These decide it, too, one way or the other.
_DECIDE = (
    *("OMP_DYNAMIC", "OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "KMP_AFFINITY"),
    *("KMP_BLOCKTIME", "MKL_DYNAMIC", "ONEDNN_DEFAULT_FPMATH_MODE", "GLIBC_TUNABLES", "LD_PRELOAD"),
    *("MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"),
    *("CUBLAS_WORKSPACE_CONFIG", "CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_ALLOC_CONF"),
    *("PYTORCH_CUDA_ALLOC_CONF", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NCCL_ALGO", "NCCL_PROTO", "NCCL_IB_DISABLE"),
)
# What a training's own file sets comes after torch has read them, and belongs to the training.
_AT_START = MappingProxyType(dict(os.environ))


def variables_here(cores: int, environment: Mapping[str, str] = _AT_START) -> tuple[str, ...]:
    """Those that this process began with and that decide speed, as `NAME=value`; of preloaded libraries names alone.

    As many threads as there are cores are what torch takes of itself, and decide nothing.
    """
    found = {name: environment[name].strip() for name in (*_SLOW, *_DECIDE) if environment.get(name, "").strip()}
    found = {name: value for name, value in found.items() if name not in _COUNTS or value != str(cores)}
    if "LD_PRELOAD" in found:  # where they lie is a matter of this machine
        places = found["LD_PRELOAD"].replace(":", " ").split()
        found["LD_PRELOAD"] = ":".join(Path(place).name for place in places)
    return tuple(f"{name}={value}" for name, value in sorted(found.items()))


def slowing(variables: Sequence[str], cores: int) -> list[str]:
    """A sentence for each variable that makes trainings slow, with what it does and the remedy.

    Args:
        variables: as `variables_here` gives them.
        cores: those that may be used.
    """
    given = (text.partition("=") for text in variables)
    return [
        f"{name}={value} is set in the environment: {_SLOW[name][0]}. Unless your trainings always run so, unset it."
        for name, _, value in given
        if name in _SLOW and _slows(name, value, cores)
    ]


def _slows(name: str, value: str, cores: int) -> bool:
    if name in _COUNTS:
        first = value.partition(",")[0].strip()  # further ones are for nested regions
        return first.isdigit() and 0 < int(first) < cores
    return value.lower() not in _SLOW[name][1]
