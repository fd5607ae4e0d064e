"""Which devices this machine has, without importing torch."""

from __future__ import annotations

import os

from laptime.catalogue import LADDERS
from laptime.errors import UsageError, unknown
from laptime.processes import allowed_cores


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


def device_count(device: str) -> int:
    """How many ranks this machine holds: its GPUs that CUDA_VISIBLE_DEVICES allows, or its allowed cores."""
    if device != "cuda":
        return allowed_cores()
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = len(cuda_devices())
    return there if allowed is None else min(there, len([d for d in allowed.split(",") if d.strip()]))
