"""Names, classes, needs and options of workloads, optimizations and rungs; without torch, so that listing is quick."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from laptime.catalogue.entries import Class, OptimizationEntry, OptionEntry, Preset, WorkloadEntry
from laptime.catalogue.ladders import COMPILE_RUNGS, DEVICES, LADDERS, PARALLEL, RUNGS, STAGES, STATISTICAL, WITHOUT
from laptime.catalogue.optimizations import OPTIMIZATIONS
from laptime.catalogue.own import is_own, own_entry, refuse_elsewhere
from laptime.catalogue.trajectory import LARGE_BATCHES, LINEAR_WARMUP
from laptime.catalogue.workloads import WORKLOADS
from laptime.errors import UsageError, shorten, unknown
from laptime.spec import OptimizationSpec, Option

CLASSES: tuple[Class, ...] = ("exact", "numeric", "statistical", "model")
# An epoch of fewer is hardly a training.
_FEWEST_STEPS = 4

__all__ = [
    "CLASSES",
    "COMPILE_RUNGS",
    "DEVICES",
    "LADDERS",
    "LARGE_BATCHES",
    "LINEAR_WARMUP",
    "OPTIMIZATIONS",
    "PARALLEL",
    "RUNGS",
    "STAGES",
    "STATISTICAL",
    "WITHOUT",
    "WORKLOADS",
]


def find_workload(name: str) -> WorkloadEntry:
    """Finds a workload by name; one of the user's own is a place in a file, and no more is known of it here.

    Raises:
        UsageError: there is none, with the nearest names.
    """
    if is_own(name):
        return own_entry(name)
    for entry in WORKLOADS:
        if entry.name == name:
            return entry
    refuse_elsewhere(name)
    raise unknown("workload", name, [w.name for w in WORKLOADS])


def find_preset(workload: WorkloadEntry, name: str) -> Preset:
    """Finds a workload's preset; raises UsageError with the nearest names."""
    for preset in workload.presets:
        if preset.name == name:
            return preset
    raise unknown("preset", name, [p.name for p in workload.presets])


def find_optimization(name: str) -> OptimizationEntry:
    """Finds an optimization; raises UsageError with the nearest names."""
    for entry in OPTIMIZATIONS:
        if entry.name == name:
            return entry
    raise unknown("optimization", name, [o.name for o in OPTIMIZATIONS])


def parse_optimization(text: str) -> OptimizationSpec:
    """Parses `name(:option=value)*`; raises UsageError for what does not exist or has another type."""
    name, *given = text.split(":")
    entry = find_optimization(name)
    options: dict[str, Option] = {}
    for pair in given:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"{shorten(pair)!r} in {shorten(text)!r} is no option: write {name}:option=value.")
        options[key] = parse_option(entry, key, value)
    return OptimizationSpec(name=name, options=options)


def parse_option(entry: OptimizationEntry, key: str, value: Option) -> Option:
    """Reads an option's value, which may be text; raises UsageError for one that it can't hold."""
    option = next((o for o in entry.options if o.name == key), None)
    if option is None:
        if not entry.options:
            raise UsageError(
                f"optimization {entry.name!r} has no options, so {shorten(key)!r} can't be set: leave it out."
            )
        raise unknown(f"option of {entry.name}", key, [o.name for o in entry.options])
    try:
        found: Option = _reader(option).validate_python(value)
    except ValidationError as error:
        wanted = error.errors()[0]["msg"]
        raise UsageError(
            f"option {key!r} of {entry.name!r} can't be {shorten(str(value))!r}: {wanted[0].lower()}{wanted[1:]}; see "
            "laptime list optimizations."
        ) from None
    return found


@cache
def _reader(option: OptionEntry) -> TypeAdapter[Any]:
    return TypeAdapter(type(option.default) if option.kind is None else option.kind)


def rung_spec(name: str) -> OptimizationSpec:
    """The optimization that a rung adds, with its options."""
    return parse_optimization(RUNGS.get(name, name))


def combine(chosen: tuple[OptimizationSpec, ...], *added: OptimizationSpec) -> tuple[OptimizationSpec, ...]:
    """Adds optimizations one after another, in stage order at the end.

    One of the same name is replaced, and those that exclude each other give way to the one that was added last.
    """
    kept = {o.name: o for o in chosen}
    for new in added:
        kept = {n: o for n, o in kept.items() if not _exclude(find_optimization(n), find_optimization(new.name))}
        kept[new.name] = new
    return in_stage_order(tuple(kept.values()))


def _exclude(one: OptimizationEntry, other: OptimizationEntry) -> bool:
    return one.alone or other.alone or one.name in other.excludes or other.name in one.excludes


def of_stage(chosen: tuple[OptimizationSpec, ...], *stages: str) -> tuple[OptimizationSpec, ...]:
    """Those of some stages."""
    return tuple(o for o in chosen if find_optimization(o.name).stage in stages)


def options_of(spec: OptimizationSpec) -> dict[str, Option]:
    """All options of an optimization, defaults filled in; raises UsageError for a value that one can't hold."""
    entry = find_optimization(spec.name)
    given = {key: parse_option(entry, key, value) for key, value in spec.options.items()}
    return {o.name: o.default for o in entry.options} | given


def batch_of(optimizations: tuple[OptimizationSpec, ...], device: str, least: int = 0) -> int | None:
    """The batch that a list of optimizations asks for on a machine's side; None where it is the baseline's.

    Args:
        optimizations: of a variant.
        device: `cpu` or `cuda`.
        least: the baseline's batch, below which no batch is chosen where no size is given.
    """
    found = next((options_of(o)["size"] for o in optimizations if o.name == "large-batch"), None)
    return None if found is None else int(found) or max(LARGE_BATCHES[device], least)


def large_batch_of(device: str, samples: int | None = None) -> int | None:
    """The batch that a device's ladder comes to, all samples at most; None where it stays at the baseline's."""
    found = batch_of(tuple(map(rung_spec, LADDERS.get(device, ()))), device)
    return found if found is None or samples is None else min(found, samples)


def larger_batch(device: str, batch: int, samples: int) -> int:
    """The batch that a training of so many samples may grow to: the device's large one, halved while an epoch would
    have fewer than four steps; no larger than the one it has where the samples are too few.
    """
    size = LARGE_BATCHES[device]
    while size * _FEWEST_STEPS > samples and size > batch:
        size //= 2
    return size


def in_stage_order(optimizations: tuple[OptimizationSpec, ...]) -> tuple[OptimizationSpec, ...]:
    """Sorts by stage, then by place in the catalogue."""
    stages = [s for s, _ in STAGES]
    names = [o.name for o in OPTIMIZATIONS]
    return tuple(
        sorted(optimizations, key=lambda o: (stages.index(find_optimization(o.name).stage), names.index(o.name)))
    )


def classes_of(optimizations: tuple[OptimizationSpec, ...]) -> tuple[Class, ...]:
    """The classes of a list of optimizations, in the order exact, numeric, statistical, model."""
    found = {class_of(o) for o in optimizations}
    return tuple(c for c in CLASSES if c in found)


def class_of(spec: OptimizationSpec) -> Class:
    """The class of an optimization with its options: the weakest that one of them brings."""
    entry, options = find_optimization(spec.name), options_of(spec)
    brought = [s.klass for s in entry.shifts if options[s.option] == s.value]
    return max((entry.klass, *brought), key=CLASSES.index)


def as_checked(spec: OptimizationSpec) -> OptimizationSpec:
    """The optimization as the one-step comparison takes it: options that are not comparable give way to ones that are.

    So the exchange of gradients is compared although local BatchNorm statistics are not those of the whole batch.
    """
    entry, options = find_optimization(spec.name), options_of(spec)
    given = {s.option: s.checked_as for s in entry.shifts if s.checked_as is not None and options[s.option] == s.value}
    return OptimizationSpec(name=spec.name, options={**spec.options, **given})
