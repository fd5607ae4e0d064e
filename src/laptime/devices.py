"""Which devices and compilers this machine has and who uses them, without importing torch."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from pathlib import Path

from laptime.catalogue import LADDERS
from laptime.errors import UsageError, shorten, unknown
from laptime.host.gpus import chosen, empty_gpus, gpus_by_files, visible_gpus
from laptime.host.processes import allowed_cores
from laptime.host.variables import variables_here
from laptime.records import Machine

_INTERESTING = ("avx2", "avx_ne_convert", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile", "asimd", "bf16", "sve")
# What oneDNN's kernels for bf16 need, any of them; without them it takes ten times as long as fp32 (docs/log.md).
_FOR_BF16 = {"avx_ne_convert", "avx512f", "bf16"}
EMULATED = "this CPU has no instructions for it, and takes ten times as long"


def cuda_devices() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs that this process may use; none without a driver."""
    return tuple(gpu.name for gpu in visible_gpus())


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
        if empty := empty_gpus():
            raise UsageError(f"device 'cuda' was asked for, but {of_empty(empty)}, or {instead}.")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        why = "no NVIDIA driver answers on this machine"
        if visible is not None:
            why += f", or CUDA_VISIBLE_DEVICES={shorten(visible)!r} names none of its GPUs"
        raise UsageError(f"device 'cuda' was asked for, but {why}: {instead}.")
    if asked not in LADDERS:
        raise unknown("device", asked, ["auto", *LADDERS])
    return asked


def of_empty(gpus: Sequence[str]) -> str:
    """What to say of GPUs in MIG mode that CUDA shows nothing of."""
    return (
        f"the {', '.join(gpus)} is in MIG mode and this user has no instance of it: make one (sudo nvidia-smi mig -cgi "
        "PROFILE -C)"
    )


def device_count(device: str) -> int:
    """How many ranks this machine holds: its GPUs that CUDA_VISIBLE_DEVICES allows, or its allowed cores."""
    if device != "cuda":
        return allowed_cores()
    return len(visible_gpus() or chosen(gpus_by_files(), os.environ.get("CUDA_VISIBLE_DEVICES")))


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
        variables=variables_here(allowed_cores()),
    )


def fingerprinted(machine: Machine) -> Machine:
    """The machine with the digest of its fields that decide speed."""
    body = machine.model_dump(mode="json", exclude={"fingerprint", "ceilings", "load_before", "image"})
    if not machine.variables:  # so that it stays that of versions which did not look at them
        del body["variables"]
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
