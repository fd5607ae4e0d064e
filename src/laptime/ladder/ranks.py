"""How many ranks a variant takes, and whether this machine and its batch hold them; before anything is started."""

from __future__ import annotations

from dataclasses import replace

from laptime.catalogue import DEVICES, PARALLEL, batch_of, find_optimization, options_of
from laptime.catalogue.entries import Preset, WorkloadEntry
from laptime.devices import device_count
from laptime.errors import UsageError
from laptime.ladder.plan import Plan
from laptime.records import LeftOut
from laptime.spec import OptimizationSpec
from laptime.variants import Variant, resolve

_UNITS = {"cpu": "cores that this process may use", "cuda": "GPUs"}


def ranks_of(variant: Variant, there: int | None = None) -> int:
    """The ranks of a variant on this machine; 1 where nothing spreads it.

    Args:
        variant: whose optimizations say how many are asked for.
        there: GPUs or cores of this machine; None to count them.

    Raises:
        UsageError: more ranks than there are GPUs, or cores on a CPU.
    """
    spread = _spread(variant.optimizations)
    if spread is None:
        return 1
    side = DEVICES[variant.device]
    held = device_count(side) if there is None else there
    asked = int(options_of(spread)["ranks"])
    if asked > held:
        raise UsageError(
            f"{variant.name} asks for {asked} ranks, but this machine has {held} {_UNITS[side]}: "
            f"give {spread.name}:ranks={max(held, 1)} or fewer."
        )
    return asked or max(held, 1)


def check_ranks(variant: Variant, entry: WorkloadEntry, there: int | None = None) -> int:
    """The ranks of a variant whose batch gives each of them at least two samples; raises UsageError."""
    ranks = ranks_of(variant, there)
    spread, batch = _spread(variant.optimizations), _batch_size(variant, entry)
    weak = spread is not None and options_of(spread)["scaling"] == "weak"
    if ranks > 1 and not weak and batch < 2 * ranks:
        raise UsageError(
            f"the batch of {batch} of {variant.name} is too small for {ranks} ranks, each of which needs two samples: "
            f"give a batch of at least {2 * ranks}{f', or at most {batch // 2} ranks' if batch > 3 else ''}."
        )
    return ranks


def with_parallel(plan: Plan, preset: Preset, entry: WorkloadEntry, there: int) -> Plan:
    """The plan with the variants on several devices after the optimized one, or the reason why each is left out.

    Args:
        plan: of a ladder; one whose variants the user named stays as it is.
        preset: whether it asks for them.
        entry: the workload.
        there: GPUs or cores of this machine.
    """
    if not (plan.adaptive and preset.parallel):
        return plan
    entering, left_out = list[str](), list[LeftOut]()
    for name in parallel_names(plan.device):
        reason = _refusal(name, plan, entry, there)
        if reason is None:
            entering.append(name)
        else:
            left_out.append(LeftOut(variant=name, reason=reason))
    return replace(plan, parallel=tuple(entering), left_out=(*plan.left_out, *left_out))


def parallel_names(device: str) -> tuple[str, ...]:
    """The variants on several devices of a machine's side."""
    return tuple(name for side, names in PARALLEL.items() if DEVICES[side] == device for name in names)


def _refusal(name: str, plan: Plan, entry: WorkloadEntry, there: int) -> str | None:
    if there < 2:
        return f"this machine has {there} {_UNITS[plan.device].replace('s that', ' that').removesuffix('s')}, not two"
    variant = resolve(name, plan.refused, entry.name)
    try:
        check_ranks(variant, entry, there)
    except UsageError as error:
        return str(error)
    return next((entry.refused[o.name] for o in variant.optimizations if o.name in entry.refused), None)


def _spread(optimizations: tuple[OptimizationSpec, ...]) -> OptimizationSpec | None:
    """The optimization that starts several ranks, if there is one."""
    ranked = (o for o in optimizations if any(p.name == "ranks" for p in find_optimization(o.name).options))
    return next(ranked, None)


def _batch_size(variant: Variant, entry: WorkloadEntry) -> int:
    return batch_of(variant.optimizations, DEVICES[variant.device]) or entry.batch_size
