"""`laptime doctor`: what this machine can do, with a reason for each thing it can't."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence

import typer

from laptime.cli.options import JSON


def doctor(as_json: JSON = False) -> None:
    """Looks at this machine; measures its ceilings and whether bf16 gains (a few seconds)."""
    from laptime.devices import cuda_devices
    from laptime.host.gpus import empty_gpus
    from laptime.host.variables import slowing
    from laptime.ladder.surroundings import run_probe
    from laptime.places import find_places, lock_folder
    from laptime.records import LEAST_GAIN

    places = find_places()
    places.require_writable()
    places.home.mkdir(parents=True, exist_ok=True)
    probe = run_probe(("cifar", "cpu"), places, lambda text: typer.echo(text, err=True))
    machine, gpus = probe.machine, cuda_devices()
    free = shutil.disk_usage(places.home).free / 2**30
    locks, slow = lock_folder(), slowing(machine.variables, machine.cores)
    found = [
        (
            "python",
            sys.version_info >= (3, 11),
            f"{machine.python}; torch {machine.torch}, torchvision {machine.torchvision}",
        ),
        ("cpu", True, f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB"),
        ("cuda", bool(gpus and machine.cuda), told_of_cuda(gpus, machine.cuda, empty_gpus())),
        (
            "bf16",
            _best(probe.gains) >= LEAST_GAIN,
            probe.refusals.get("bf16") or _bf16(_best(probe.gains), machine.instruction_sets),
        ),
        ("compile", *compilers(bool(gpus))),
        ("ceilings", True, _ceilings(probe.machine.ceilings.model_dump())),
        ("disk", free > 1, f"{free:.0f} GiB free under {places.home}"),
        ("locks", os.access(locks, os.W_OK), f"device locks in {locks}"),
        (
            "quiet",
            (machine.load_before or 0) < machine.cores / 2,
            _load(machine.load_before),
        ),
        ("variables", not slow, " ".join(slow) or told_of_variables(machine.variables)),
    ]
    if as_json:
        typer.echo(json.dumps([{"what": w, "ok": ok, "detail": d} for w, ok, d in found], indent=1))
        return
    for what, ok, detail in found:
        typer.echo(f"{'yes' if ok else 'no':<4}{what:<10}{detail}")


def told_of_cuda(gpus: Sequence[str], version: str | None, empty: Sequence[str] = ()) -> str:
    """What to say of GPUs by the driver and the version of CUDA that torch has found to work; None without one.

    Without any, of those that have no slice (MIG).
    """
    if not gpus:
        from laptime.devices import of_empty

        return of_empty(empty) if empty else "no NVIDIA driver answers: CPU variants only"
    names = ", ".join(gpus)
    return names if version else f"torch can't use {names}: install a torch and a driver that fit together"


def told_of_variables(variables: Sequence[str]) -> str:
    """What to say of the environment where nothing in it makes trainings slow."""
    if not variables:
        return "none is set that decides speed"
    return f"set, and none of them known to make trainings slow: {', '.join(variables)}"


def compilers(on_gpus: bool) -> tuple[bool, str]:
    """Whether torch.compile finds what it needs for each kind of device here, and what is there or missing."""
    from laptime.devices import missing_compiler

    there = {"cpu": "a C++ compiler"} | ({"cuda": "Triton and a C compiler"} if on_gpus else {})
    missing = [f"on {device}, {reason}" for device in there if (reason := missing_compiler(device))]
    if missing:
        return False, "; ".join(missing)
    return True, " and, for cuda, ".join(there.values()) + (" are there" if on_gpus else " is there")


def _load(load: float | None) -> str:
    return "not known: the load is of the whole host" if load is None else f"load {load:.1f} before the probe"


def _best(gains: dict[str, float]) -> float:
    """The gain at the batch where it is larger."""
    return max((g for name, g in gains.items() if name.partition("@")[0] == "bf16"), default=0.0)


def _bf16(gain: float, sets: tuple[str, ...]) -> str:
    if not gain:
        return "not probed"
    has = ", ".join(s for s in sets if "bf16" in s) or "no bf16 instructions"
    return f"{gain:.2f}x the speed of fp32 in a probe ({has})"


def _ceilings(rates: dict[str, float | None]) -> str:
    named = {"gemm_fp32_gflops": "fp32", "gemm_bf16_gflops": "bf16"}
    parts = [f"{label} {rates[key]:.0f} GFLOP/s" for key, label in named.items() if rates[key] is not None]
    return ", ".join([*parts, f"copy {rates['copy_gb_s'] or 0:.0f} GB/s"])
