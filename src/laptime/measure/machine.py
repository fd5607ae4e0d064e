"""What this machine is: the fields that decide speed, digested into a fingerprint that holds no host name."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from functools import lru_cache
from pathlib import Path

import torch
import torchvision

from laptime.processes import allowed_cores
from laptime.records import Ceilings, Machine

_INTERESTING = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "amx_tile", "asimd", "bf16", "sve")


@lru_cache(maxsize=1)
def machine() -> Machine:
    """Describes this machine; the load is that of the last minute, None where it is of more cores than may be used."""
    found = Machine(
        cpu=_cpu_name(),
        cores=allowed_cores(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        gpus=tuple(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())),
        os=f"{platform.system()} {platform.release().split('.')[0]}",
        python=platform.python_version(),
        torch=torch.__version__,
        torchvision=torchvision.__version__,
        cuda=torch.version.cuda if torch.cuda.is_available() else None,
        instruction_sets=_instruction_sets(),
    )
    body = found.model_dump(mode="json", exclude={"fingerprint", "ceilings", "load_before"})
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    comparable = hasattr(os, "getloadavg") and allowed_cores() == os.cpu_count()
    load = os.getloadavg()[0] if comparable else None
    return found.model_copy(update={"fingerprint": digest, "load_before": load})


def with_ceilings(ceilings: Ceilings) -> Machine:
    """This machine with measured ceilings."""
    return machine().model_copy(update={"ceilings": ceilings})


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
