"""What a printed script takes where the tutorials ask for more than this machine has."""

from __future__ import annotations

import json

from laptime.catalogue import DEVICES, find_workload
from laptime.devices import cuda_devices
from laptime.errors import RunError
from laptime.host.scratch import scratch
from laptime.launchers.process import run_child
from laptime.script import Fit
from laptime.spec import DataSpec, RunSpec
from laptime.variants import Variant, baseline_of

# What a batch of so many and no loader processes need no machine is short of.
_SMALL = 64


def fit_here(variant: Variant, workload: str, data: DataSpec | None = None) -> Fit:
    """The batch and the loader processes of a variant's baseline on this machine, as its training would settle them.

    Args:
        variant: its device counts.
        workload: name in the catalogue.
        data: to train on; None for as many images as the official data have.

    Raises:
        RunError: its process failed.
    """
    entry, device = find_workload(workload), DEVICES[variant.device]
    whole = Fit(entry.batch_size, entry.workers)
    if entry.batch_size <= _SMALL and not entry.workers:
        return whole
    if device == "cuda" and not cuda_devices():
        return Fit(entry.batch_size, entry.workers, ("as the tutorials ask; there was no GPU to fit it to",))
    spec = RunSpec(
        workload=workload,
        variant=baseline_of(variant.device).name,
        device=device,
        data=data or _official(workload),
        batch_size=entry.batch_size,
        learning_rate=entry.learning_rate,
    )
    with scratch("fitting") as folder:
        asked, result, lines = folder / "spec.json", folder / "fit.json", list[str]()
        asked.write_text(spec.model_dump_json(by_alias=True), encoding="utf-8")
        code = run_child("laptime.preflight.fitting", [str(asked), str(result)], lines.append)
        if code != 0:
            raise RunError(f"looking for room on this machine failed: {lines[-1] if lines else 'no output'}")
        found = json.loads(result.read_text(encoding="utf-8"))
    return Fit(found["batch_size"], found["workers"], tuple(found["notes"]))


def _official(workload: str) -> DataSpec:
    entry = find_workload(workload)
    counts = {"train_count": entry.train_count, "test_count": entry.test_count}
    return DataSpec(asked="auto", kind="synthetic", digest="", path="", classes=("",) * 10, **counts)
