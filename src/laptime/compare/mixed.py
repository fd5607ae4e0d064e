"""Records that come together: in what they differ that decides their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from laptime.devices import fingerprinted
from laptime.records import Machine, RunRecord


def differences(records: Sequence[RunRecord]) -> Iterator[str]:
    """A sentence for each thing that is not the same in all of them; each has a spec."""
    machines = [r.machine for r in records if r.machine.fingerprint]
    settings = {m.variables for m in machines}
    unlike = {text.partition("=")[0] for one in settings for text in one if any(text not in s for s in settings)}
    seen: dict[str, set[Any]] = {
        "machines": {_whatever_is_set(m) for m in machines},
        f"settings of the environment ({', '.join(sorted(unlike))})": settings,
        "workloads": {r.spec.workload for r in records if r.spec},
        "devices": {r.spec.device for r in records if r.spec},
        "data sets": {r.spec.data.digest for r in records if r.spec and r.spec.data.digest},
        "amounts of training data": {r.spec.limit_train for r in records if r.spec},
        "commits": {r.commit for r in records if r.commit},
    }
    for what, values in seen.items():
        if len(values) > 1:
            yield f"The records come from {len(values)} different {what}: their times can't be compared as they stand."


def _whatever_is_set(machine: Machine) -> str:
    """The fingerprint that a machine has without variables of the environment."""
    if not machine.variables:
        return machine.fingerprint
    return fingerprinted(machine.model_copy(update={"variables": ()})).fingerprint
