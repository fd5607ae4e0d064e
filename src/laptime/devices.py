"""Which devices and compilers this machine has and who uses them, without importing torch."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from laptime.catalogue import LADDERS
from laptime.errors import UsageError, shorten, unknown
from laptime.processes import allowed_cores
from laptime.records import Machine

# NVML's clock event reasons: hardware slowdown, software and hardware thermal slowdown, power brake.
_HOT = 0x08 | 0x20 | 0x40 | 0x80
_INTERESTING = ("avx2", "avx_ne_convert", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile", "asimd", "bf16", "sve")
# What oneDNN's kernels for bf16 need, any of them; without them it takes ten times as long as fp32 (docs/log.md).
_FOR_BF16 = {"avx_ne_convert", "avx512f", "bf16"}
EMULATED = "this CPU has no instructions for it, and takes ten times as long"


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as the driver names it."""

    uuid: str
    name: str


def cuda_devices() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs that this process may use; none without a driver."""
    return tuple(gpu.name for gpu in visible_gpus())


def gpu_limits() -> tuple[str, ...]:
    """What beside its name decides a GPU's speed: the driver's major version and each GPU's power limit in watts."""
    with open_nvml() as nvml:
        if nvml is None:
            return ()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        driver = _text(nvml.nvmlSystemGetDriverVersion()).partition(".")[0]
        limits = []
        for handle in handles:
            with contextlib.suppress(nvml.NVMLError):  # a card without power management has none
                limits.append(f"{nvml.nvmlDeviceGetEnforcedPowerLimit(handle) // 1000} W")
        return (f"driver {driver}", *limits)


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that the driver reports and CUDA_VISIBLE_DEVICES leaves, the one that `cuda` means first."""
    with open_nvml() as nvml:
        if nvml is None:
            return ()
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        found = tuple(Gpu(_text(nvml.nvmlDeviceGetUUID(h)), _text(nvml.nvmlDeviceGetName(h))) for h in handles)
    return chosen(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def chosen(gpus: tuple[Gpu, ...], visible: str | None) -> tuple[Gpu, ...]:
    """The GPUs that a value of CUDA_VISIBLE_DEVICES leaves.

    It holds numbers or the first letters of UUIDs; what comes after an entry that names none does not count, as CUDA
    has it. Numbers are taken in the driver's order, which is CUDA's where all GPUs are of one kind.
    """
    if visible is None:
        return gpus
    found: list[Gpu] = []
    for entry in visible.split(","):
        word = entry.strip()
        if word.isdecimal() and int(word) < len(gpus):
            found.append(gpus[int(word)])
            continue
        named = [g for g in gpus if word.startswith("GPU-") and g.uuid.startswith(word)]
        if len(named) != 1:
            break
        found += named
    return tuple(found)


def lock_name(device: str) -> str:
    """The name under which a device is locked: a GPU by its UUID, whatever number it has for this process."""
    gpus = visible_gpus() if device == "cuda" else ()
    return gpus[0].uuid if gpus else device


def lock_names(device: str, ranks: int, all_gpus: bool = False) -> tuple[str, ...]:
    """The names under which all devices of a run are locked, always in the same order, so that two runs can't wait for
    each other.
    """
    gpus = visible_gpus() if device == "cuda" else ()
    return tuple(sorted(g.uuid for g in (gpus if all_gpus else gpus[:ranks]))) or (device,)


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


def choose_device(asked: str, instead: str = "give --device cpu") -> str:
    """Settles `auto|cpu|cuda` for this machine.

    Args:
        asked: what the user wants.
        instead: the remedy where there is no GPU.

    Raises:
        UsageError: no such device here, or no ladder for it.
    """
    if asked == "auto":
        return "cuda" if "cuda" in LADDERS and cuda_devices() else "cpu"
    if asked == "cuda" and not cuda_devices():
        raise UsageError(f"device 'cuda' was asked for, but no NVIDIA driver answers on this machine: {instead}.")
    if asked not in LADDERS:
        raise unknown("device", asked, ["auto", *LADDERS])
    return asked


def device_count(device: str) -> int:
    """How many ranks this machine holds: its GPUs that CUDA_VISIBLE_DEVICES allows, or its allowed cores."""
    if device != "cuda":
        return allowed_cores()
    return len(visible_gpus() or chosen(gpus_by_files(), os.environ.get("CUDA_VISIBLE_DEVICES")))


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


def missing_extra(extra: str) -> str | None:
    """What an optional extra, called as the package that it brings, lacks here; None where all is there."""
    return None if find_spec(extra) else f"{extra} is not installed: pip install 'laptime[{extra}]'"


def require_scoring() -> None:
    """Refuses to train a detector without what measures its quality; raises UsageError."""
    if find_spec("pycocotools") is None:
        raise UsageError(
            "the workload detection measures its quality with pycocotools, which is not installed: "
            "pip install 'laptime[detection]'."
        )


def hopeless_here(variant: str, optimizations: Collection[str], device: str) -> tuple[str, ...]:
    """The optimizations that a variant's name stands for without saying so and that this CPU can only emulate."""
    emulated = device == "cpu" and emulates_bf16()
    return ("bf16",) if emulated and "bf16" in optimizations and "bf16" not in variant else ()


def emulates_bf16() -> bool:
    """Whether this CPU is known to have no instructions for bf16."""
    known = set(_instruction_sets())
    return bool(known) and not known & _FOR_BF16


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


def host() -> Machine:
    """This machine as far as it is known without torch; versions are left out."""
    return Machine(
        cpu=_cpu_name(),
        cores=allowed_cores(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        gpus=cuda_devices(),
        os=f"{platform.system()} {platform.release().split('.')[0]}",
        instruction_sets=_instruction_sets(),
    )


def fingerprinted(machine: Machine) -> Machine:
    """The machine with the digest of its fields that decide speed."""
    body = machine.model_dump(mode="json", exclude={"fingerprint", "ceilings", "load_before", "image"})
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    return machine.model_copy(update={"fingerprint": digest})


def _cpuinfo(key: str) -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def _cpu_name() -> str:
    name = _cpuinfo("model name") or platform.processor() or platform.machine()
    family, model = _cpuinfo("cpu family"), _cpuinfo("model\t")
    return f"{name} (family {family} model {model})" if family else name


def _instruction_sets() -> tuple[str, ...]:
    flags = set((_cpuinfo("flags") or _cpuinfo("Features")).split())
    return tuple(f for f in _INTERESTING if f in flags)
