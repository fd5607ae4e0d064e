"""NVIDIA's GPUs as the driver tells of them: which CUDA shows this process, and in what state they are."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

# NVML's clock event reasons: hardware slowdown, software and hardware thermal slowdown, power brake.
_HOT = 0x08 | 0x20 | 0x40 | 0x80
# cuInit in a process of its own: one that has called it can fork no child that uses a GPU.
_ASK = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
count, device, uuid = ctypes.c_int(), ctypes.c_int(), (ctypes.c_ubyte * 16)()
if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
    raise SystemExit(1)
for number in range(count.value):
    if cuda.cuDeviceGet(ctypes.byref(device), number) or cuda.cuDeviceGetUuid_v2(uuid, device):
        raise SystemExit(1)
    print(bytes(uuid).hex())
"""
_PATIENCE_S = 60
# NVML's word for a GPU in MIG mode.
_DIVIDED = 1


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as the driver names it."""

    uuid: str
    name: str


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that the driver reports and CUDA_VISIBLE_DEVICES leaves, the one that `cuda` means first."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    with open_nvml() as nvml:
        if nvml is None:
            return ()
        if (visible or "").lstrip().startswith("MIG-"):
            return _slice(nvml, str(visible))
        gpus = (_gpu(nvml, handle) for handle in _handles(nvml))
        shown = _in_cudas_order(tuple(gpu for gpu in gpus if not _is_empty(nvml, gpu)), visible)
        first = next((found for gpu in shown if (found := _first_slice(nvml, gpu))), None)
    return (first,) if first else shown


def empty_gpus() -> tuple[str, ...]:
    """Names of GPUs in MIG mode without a slice that this user may open: CUDA shows nothing of them."""
    with open_nvml() as nvml:
        gpus = () if nvml is None else tuple(_gpu(nvml, handle) for handle in _handles(nvml))
        return tuple(gpu.name for gpu in gpus if _is_empty(nvml, gpu))


def _is_empty(nvml: Any, gpu: Gpu) -> bool:
    with contextlib.suppress(nvml.NVMLError):  # a card that can't be divided has no answer
        mode, _ = nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
        return mode == _DIVIDED and _first_slice(nvml, gpu) is None
    return False


def _in_cudas_order(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    if len({gpu.name for gpu in gpus}) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        known = {gpu.uuid: gpu for gpu in gpus}
        if shown := tuple(known[uuid] for uuid in cuda_uuids() if uuid in known):
            return shown
    return chosen(gpus, visible)


def _handles(nvml: Any) -> list[Any]:
    """NVML's handles of the GPUs; not of one that this user may not open, which CUDA passes over, or that is lost."""
    handles = []
    for index in range(nvml.nvmlDeviceGetCount()):
        with contextlib.suppress(nvml.NVMLError):
            handles.append(nvml.nvmlDeviceGetHandleByIndex(index))
    return handles


def _gpu(nvml: Any, handle: Any) -> Gpu:
    return Gpu(_text(nvml.nvmlDeviceGetUUID(handle)), _text(nvml.nvmlDeviceGetName(handle)))


def _slice(nvml: Any, visible: str) -> tuple[Gpu, ...]:
    """The slice of a GPU (MIG) that comes first: CUDA shows one alone, whatever is named behind it.

    A name that NVML does not know, of drivers before 470 say (MIG-GPU-…/1/0), is left to CUDA, as torch does.
    """
    names = itertools.chain((visible.partition(",")[0].strip(),), _cuda_slices())
    for name in names:
        with contextlib.suppress(nvml.NVMLError):
            return (_gpu(nvml, nvml.nvmlDeviceGetHandleByUUID(name)),)
    return ()


def _cuda_slices() -> Iterator[str]:
    for uuid in cuda_uuids():  # asked only where it is come to
        yield uuid.replace("GPU-", "MIG-")


def _first_slice(nvml: Any, gpu: Gpu) -> Gpu | None:
    """The first slice of a GPU that is divided (MIG), which is all that CUDA shows then.

    So a run that names the GPU, or none, holds the same lock as one that names the slice.
    See https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html.
    """
    with contextlib.suppress(nvml.NVMLError):  # a card that can't be divided may have no answer
        handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with contextlib.suppress(nvml.NVMLError):  # places that hold none, or one that this user may not open
                return _gpu(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
    return None


def chosen(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs that a value of CUDA_VISIBLE_DEVICES leaves.

    It holds numbers, or the first letters of UUIDs: the kind that comes first, as torch has it. What comes after an
    entry that names none does not count, and where one is named twice nothing does, as CUDA has it. Numbers are taken
    in the driver's order, which is CUDA's where all GPUs are of one kind (see `cuda_uuids`).
    """
    if visible is None:
        return gpus
    by_uuid = visible.lstrip().startswith("GPU-")
    found: list[int] = []
    for entry in visible.split(","):
        word = entry.strip()
        if by_uuid:
            named = [i for i, gpu in enumerate(gpus) if word.startswith("GPU-") and gpu.uuid.startswith(word)]
        else:
            named = [int(word)] if word.isdecimal() and int(word) < len(gpus) else []
        if len(named) != 1:
            break
        found += named
    return tuple(gpus[i] for i in found) if len(set(found)) == len(found) else ()


def cuda_uuids() -> tuple[str, ...]:
    """The UUIDs of the GPUs that CUDA shows this process, as NVML writes them, `cuda:0` first; none where none answers.

    By default CUDA begins with the fastest GPU, by rules of its own, and NVML with the first on the bus.
    """
    return _asked(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"))


@lru_cache(maxsize=4)
def _asked(visible: str | None, order: str | None) -> tuple[str, ...]:
    """The variables are the child's, too, and here what is remembered depends on."""
    command = [sys.executable, "-I", "-c", _ASK]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(map(_written, done.stdout.split()))


def _written(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return f"GPU-{'-'.join(parts)}"


def gpu_limits() -> tuple[str, ...]:
    """What beside its name decides a GPU's speed: the driver's major version and each GPU's power limit in watts."""
    with open_nvml() as nvml:
        if nvml is None:
            return ()
        driver = _text(nvml.nvmlSystemGetDriverVersion()).partition(".")[0]
        limits = []
        for handle in _handles(nvml):
            with contextlib.suppress(nvml.NVMLError):  # a card without power management has none
                limits.append(f"{nvml.nvmlDeviceGetEnforcedPowerLimit(handle) // 1000} W")
        return (f"driver {driver}", *limits)


def others_on(device: str, ranks: int = 1) -> tuple[str, ...]:
    """One sentence for each process but this one that computes on the device, or on those of several ranks, now.

    They are named and not refused: shared machines exist, some drivers list processes that sleep, and in a container
    the driver may name processes that can't be looked at. The times beside them are to be read with care.
    """
    gpus = visible_gpus() if device == "cuda" else ()
    if not gpus:
        return ()
    with open_nvml() as nvml:
        if nvml is None:
            return ()
        found: list[str] = []
        for gpu in gpus[:ranks]:
            with contextlib.suppress(nvml.NVMLError):
                running = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
                found += [_sentence(nvml, gpu, p) for p in running if p.pid != os.getpid()]
    return tuple(found)


def slowed_down(gpu: Gpu) -> bool:
    """Whether a GPU is clocked down by heat or power at this moment; False where nobody knows."""
    with open_nvml() as nvml:
        if nvml is not None:
            with contextlib.suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
                with contextlib.suppress(nvml.NVMLError):  # a slice has no clock of its own
                    handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
                return bool(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & _HOT)
    return False


def _sentence(nvml: Any, gpu: Gpu, process: Any) -> str:
    name = "unknown"
    with contextlib.suppress(nvml.NVMLError):
        name = _text(nvml.nvmlSystemGetProcessName(process.pid))
    memory = f"{process.usedGpuMemory / 2**20:,.0f} MiB" if process.usedGpuMemory else "unknown memory"
    return f"{gpu.name} was in use by another process at the start: {name} (process {process.pid}, {memory})"


@contextlib.contextmanager
def open_nvml() -> Iterator[Any]:
    """NVIDIA's management library; None where it is not installed or no driver answers."""
    try:
        import pynvml  # not in a worker's slim image, and never needed there
    except ImportError:
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    """Older versions of the library return bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def gpus_by_files(root: Path = Path("/")) -> tuple[Gpu, ...]:
    """The GPUs that this system may open, by the files of the driver, for want of its library.

    What the driver tells of them may lie in a container that was given none, so their nodes count.
    """
    numbers = (node.name.removeprefix("nvidia") for node in (root / "dev").glob("nvidia*"))
    nodes = sorted(int(number) for number in numbers if number.isdecimal())
    told = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    if len(told) != len(nodes):
        return tuple(Gpu("", f"nvidia{number}") for number in nodes)
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in told]
    return tuple(Gpu(_told(text, "GPU UUID"), _told(text, "Model")) for text in texts)


def _told(text: str, key: str) -> str:
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")
