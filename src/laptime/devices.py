"""Which devices and compilers this machine has, without importing torch."""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec

from laptime.catalogue import LADDERS
from laptime.errors import UsageError, shorten, unknown


def cuda_devices() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs that the driver reports; none without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return tuple(str(pynvml.nvmlDeviceGetName(h)) for h in handles)
    finally:
        pynvml.nvmlShutdown()


def choose_device(asked: str) -> str:
    """Settles `auto|cpu|cuda` for this machine.

    Raises:
        UsageError: no such device here, or no ladder for it.
    """
    if asked == "auto":
        return "cuda" if "cuda" in LADDERS and cuda_devices() else "cpu"
    if asked == "cuda" and not cuda_devices():
        raise UsageError(
            "device 'cuda' was asked for, but no NVIDIA driver answers on this machine: give --device cpu."
        )
    if asked not in LADDERS:
        raise unknown("device", asked, ["auto", *LADDERS])
    return asked


def missing_compiler(device: str) -> str | None:
    """What torch.compile would need on a device and does not find, with the remedy; None where all is there.

    Inductor writes C++ for a CPU. For CUDA it writes Triton, which builds a small C launcher on first use.
    """
    if device == "cpu":
        asked = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
        found = shutil.which(asked.split()[0]) if asked.strip() else None
        return None if found else f"there is no C++ compiler {shorten(asked)!r}: install it or set CXX"
    if find_spec("triton") is None:
        return "there is no triton: install it"
    named = os.environ.get("CC")
    compilers = (named,) if named else ("gcc", "clang", "cc")
    found = next((c for c in compilers if shutil.which(c)), None)
    return None if found else f"there is no C compiler ({', '.join(compilers)}) for triton: install one or set CC"
