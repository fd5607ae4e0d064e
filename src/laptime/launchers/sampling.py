"""Samples the machine while a process trains, from the process that waits for it: no thread runs beside its epochs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from laptime.host.gpus import open_nvml, visible_gpus
from laptime.records import SYSTEM, SystemSample, add_sample

# One takes half a millisecond (docs/log.md): 0.01 % of a core.
EVERY_S = 5.0
# That what ends within seconds has one.
FIRST_S = 1.0
_MB = 1e6

# Values by name; None where they can't be had.
_Gauge = Callable[[], dict[str, float] | None]
_Found = TypeVar("_Found")


class Sampler:
    """Takes a sample now and then, as often as it is looked at.

    Names and units are those of MLflow's own system metrics, so that its UI shows them where its users look for them.
    GPUs are numbered as this process sees them.

    Args:
        path: where samples go, a line each.
        gauges: of the devices, each giving values by name.
        clock: seconds.
    """

    def __init__(self, path: Path, gauges: tuple[_Gauge, ...], clock: Callable[[], float]) -> None:
        self._path, self._gauges, self._clock = path, gauges, clock
        self._next = clock() + FIRST_S

    def look(self) -> None:
        """Takes a sample where the last one is long enough ago; nothing depends on one that can't be written."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + EVERY_S
        values = {name: value for gauge in self._gauges for name, value in (gauge() or {}).items()}
        with contextlib.suppress(OSError):
            add_sample(self._path, SystemSample(at=time.time(), values=values))


@contextlib.contextmanager
def sampling(folder: Path, device: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Sampler]:
    """A sampler for a process that trains in a folder on `cpu` or `cuda`; what an earlier one left there goes."""
    with contextlib.suppress(OSError):  # as one that can't be written
        (folder / SYSTEM).unlink(missing_ok=True)
    with _gpus(device) as gpus:
        yield Sampler(folder / SYSTEM, (*_host(), *gpus), clock)


def _host() -> tuple[_Gauge, ...]:
    try:
        import psutil
    except ImportError:  # a machine with torch alone, as scripts/bench gpu may have
        return ()
    _quiet(psutil.cpu_percent)()  # each tells of the time since the last
    before: Any = _quiet(psutil.net_io_counters)()

    def cpu() -> dict[str, float]:
        memory = psutil.virtual_memory()
        return {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / _MB,
            "system_memory_usage_percentage": memory.percent,
        }

    def disk() -> dict[str, float]:
        usage = psutil.disk_usage(os.sep)
        return {
            "disk_usage_percentage": usage.percent,
            "disk_usage_megabytes": usage.used / _MB,
            "disk_available_megabytes": usage.free / _MB,
        }

    def network() -> dict[str, float]:
        now = psutil.net_io_counters()
        return {
            "network_receive_megabytes": (now.bytes_recv - before.bytes_recv) / _MB,
            "network_transmit_megabytes": (now.bytes_sent - before.bytes_sent) / _MB,
        }

    gauges = (cpu, disk, network) if before else (cpu, disk)  # a container may have no network
    return tuple(_quiet(gauge) for gauge in gauges)


@contextlib.contextmanager
def _gpus(device: str) -> Iterator[tuple[_Gauge, ...]]:
    """The gauges of the GPUs that this process may use; the driver's library stays open as long as they are read."""
    gpus = visible_gpus() if device == "cuda" else ()
    if not gpus:
        yield ()
        return
    with open_nvml() as driver:
        found = [_quiet(partial(driver.nvmlDeviceGetHandleByUUID, gpu.uuid))() for gpu in gpus] if driver else []
        known = [(number, handle) for number, handle in enumerate(found) if handle is not None]
        yield tuple(gauge for number, handle in known for gauge in _gpu(driver, number, handle))


def _gpu(driver: Any, number: int, handle: Any) -> Iterator[_Gauge]:
    def named(**values: float) -> dict[str, float]:
        return {f"gpu_{number}_{name}": value for name, value in values.items()}

    def load() -> dict[str, float]:
        return named(utilization_percentage=driver.nvmlDeviceGetUtilizationRates(handle).gpu)

    def memory() -> dict[str, float]:
        found = driver.nvmlDeviceGetMemoryInfo(handle)
        share = 100 * found.used / found.total
        return named(memory_usage_megabytes=found.used / _MB, memory_usage_percentage=share)

    def power() -> dict[str, float]:
        used, limit = driver.nvmlDeviceGetPowerUsage(handle), driver.nvmlDeviceGetEnforcedPowerLimit(handle)
        return named(power_usage_watts=used / 1000, power_usage_percentage=100 * used / limit)

    for gauge in (load, memory, power):
        yield _quiet(gauge)  # a card may have no power management, a MIG slice no load


def _quiet(ask: Callable[[], _Found]) -> Callable[[], _Found | None]:
    """A question that gives None where there is no answer.

    Whatever the error: files of /proc that a sandbox hides, a driver that leaves a card, a limit of 0. A training that
    runs is not ended for a figure beside it.
    """

    def asked() -> _Found | None:
        with contextlib.suppress(Exception):
            return ask()
        return None

    return asked
