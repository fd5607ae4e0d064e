"""Which devices this machine has, without importing torch."""

from __future__ import annotations

from laptime.catalogue import LADDERS
from laptime.errors import UsageError, unknown


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
