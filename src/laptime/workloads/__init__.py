"""The workloads: one file each; `base.py` holds the protocol."""

from __future__ import annotations

from laptime.errors import unknown
from laptime.workloads.base import Workload
from laptime.workloads.cifar import Cifar
from laptime.workloads.detection import Detection
from laptime.workloads.eurosat import Eurosat

WORKLOADS: tuple[Workload, ...] = (Cifar(), Eurosat(), Detection())


def find(name: str) -> Workload:
    """Finds a workload by name; raises UsageError with the nearest names."""
    for workload in WORKLOADS:
        if workload.name == name:
            return workload
    raise unknown("workload", name, [w.name for w in WORKLOADS])
