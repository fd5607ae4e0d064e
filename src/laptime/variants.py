"""What a variant's name stands for: `<device>-baseline`, `-<rung>`, `-optimized`, each with `+name:option=value`."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from laptime.catalogue import (
    DEVICES,
    LADDERS,
    OPTIMIZATIONS,
    PARALLEL,
    WITHOUT,
    WORKLOADS,
    combine,
    find_optimization,
    in_stage_order,
    parse_optimization,
    rung_spec,
)
from laptime.errors import UsageError, shorten, unknown
from laptime.spec import OptimizationSpec

BASELINE, OPTIMIZED = "baseline", "optimized"
# What a search within a budget has found, in its ladder alone.
TUNED = "tuned"
_WITHOUT = f"{OPTIMIZED}-without-"


@dataclass(frozen=True)
class Variant:
    """A variant: its name, its device and what it stands for."""

    name: str
    device: str
    optimizations: tuple[OptimizationSpec, ...]


def baseline_of(device: str) -> Variant:
    """The baseline of a device."""
    return Variant(f"{device}-{BASELINE}", device, ())


def written_out(device: str, optimizations: Iterable[OptimizationSpec]) -> str:
    """What a variant is called by what it has: a name for any of them."""
    return "+".join([baseline_of(device).name, *(o.text() for o in optimizations)])


def variant_names(device: str) -> tuple[str, ...]:
    """The named variants of a device in the order of its ladder."""
    rungs = LADDERS[device]
    without = tuple(f"{OPTIMIZED}-without-{name}" for name in WITHOUT.get(device, ()))
    return tuple(f"{device}-{rung}" for rung in (BASELINE, *rungs, OPTIMIZED, *without))


def all_names() -> tuple[str, ...]:
    """The named variants of all devices."""
    one = tuple(name for device in LADDERS for name in variant_names(device))
    return (*one, *(name for names in PARALLEL.values() for name in names))


def resolve(text: str, left_out: tuple[str, ...] = (), workload: str = "") -> Variant:
    """Finds what a variant's name stands for.

    A rung stands for all optimizations of its ladder up to its own, less those that must earn their place. A ladder
    that is run decides for itself which of the earlier rungs stay, and records it.

    Args:
        text: `NAME(+optimization[:option=value])*`.
        left_out: optimizations that a probe refused; only `+name` brings them back.
        workload: whose own optimizations join those that are for all.

    Raises:
        UsageError: a name that does not exist, with the nearest.
    """
    name, *added = text.split("+")
    _refuse_company(name, added)
    side = next((d for d, names in PARALLEL.items() if name in names), None)
    if side is not None:
        best = _lasting(DEVICES[side], left_out, workload)
        return on_several(Variant(text, side, combine((), *map(rung_spec, best))), name, tuple(added), workload)
    device = max((d for d in LADDERS if name.startswith(f"{d}-")), key=len, default=None)
    if device is not None and name == f"{device}-{TUNED}":
        raise UsageError(
            f"variant {text!r} is what one search found, and another finds another: give its list, --variant "
            f"{device}-{BASELINE}+…, as its report has it under What the search tried."
        )
    if device is None or name not in (*variant_names(device), *_ablations(device, workload)):
        raise unknown("variant", name, all_names())
    kept = [rung for rung in _rungs(device, name.removeprefix(f"{device}-"), workload) if rung not in left_out]
    chosen = combine((), *map(rung_spec, kept), *map(parse_optimization, added))
    return Variant(text, device, chosen)


def _refuse_company(name: str, added: list[str]) -> None:
    """Refuses what a name puts beside an optimization that stands for the whole loop; raises UsageError."""
    device, _, rung = name.partition("-")
    asked = {rung, *(a.partition(":")[0] for a in added)} - {BASELINE}
    alone = next((o.name for o in OPTIMIZATIONS if o.alone and o.name in asked), None)
    if alone and len(asked) > 1:
        others = ", ".join(sorted(map(shorten, asked - {alone})))
        raise UsageError(f"{alone} takes nothing beside it, so not {others}: give {device}-{alone}.")


def on_several(best: Variant, name: str, added: tuple[str, ...] = (), workload: str = "") -> Variant:
    """A variant on several devices: an optimized list with the exchange on it, without what that excludes.

    Several GPUs train with the batch of the workload's tutorials, also where one was better off with its own.
    """
    side = next(d for d, names in PARALLEL.items() if name in names)
    parts = [parse_optimization(part) for part in (*PARALLEL[side][name].split("+"), *added)]
    batch = next((w.batch_on_several for w in WORKLOADS if w.name == workload), 0) if DEVICES[side] == "cuda" else 0
    if batch and not any(o.name == "large-batch" for o in (*best.optimizations, *parts)):
        parts.append(parse_optimization(f"large-batch:size={batch}"))
    return Variant("+".join((name, *added)), side, combine(best.optimizations, *parts))


def _lasting(device: str, left_out: tuple[str, ...], workload: str) -> tuple[str, ...]:
    return tuple(r for r in _rungs(device, OPTIMIZED, workload) if r not in left_out) if device in LADDERS else ()


def _ablations(device: str, workload: str) -> tuple[str, ...]:
    """The optimized variant less any one optimization: too many to list, so only those of `WITHOUT` are."""
    joining = (rung_spec(rung).name for rung in LADDERS[device] if joins_by_name(device, rung, workload))
    return tuple(f"{device}-{_WITHOUT}{name}" for name in joining)


def _rungs(device: str, rung: str, workload: str) -> tuple[str, ...]:
    ladder = LADDERS[device]
    if rung == BASELINE:
        return ()
    lasting = tuple(r for r in ladder if r == rung or joins_by_name(device, r, workload))
    if rung == OPTIMIZED:
        return lasting
    if rung.startswith(_WITHOUT):
        return tuple(r for r in lasting if rung_spec(r).name != rung.removeprefix(_WITHOUT))
    return lasting[: lasting.index(rung) + 1]


def joins_by_name(device: str, rung: str, workload: str = "") -> bool:
    """Whether a rung is in a device's optimized variant, of a workload, before any ladder has measured it."""
    entry = find_optimization(rung_spec(rung).name)
    return not (entry.only_shown or device in entry.earned or entry.workload not in ("", workload))


def exact_before(device: str, rung: str, workload: str, refused: Collection[str]) -> tuple[OptimizationSpec, ...]:
    """What the exact rungs before one in its ladder come to, less the refused ones: a probe's steps have them."""
    rungs = LADDERS[device]
    joining = (r for r in rungs[: rungs.index(rung)] if joins_by_name(device, r, workload))
    chosen = (o for o in map(rung_spec, joining) if o.name not in refused)
    return combine((), *(o for o in chosen if find_optimization(o.name).klass == "exact"))


def without(whole: Variant, name: str) -> Variant:
    """A variant less one of its optimizations."""
    rest = tuple(o for o in whole.optimizations if o.name != name)
    return Variant(f"{whole.name}-without-{name}", whole.device, rest)


def with_options(variant: Variant, settings: tuple[str, ...]) -> Variant:
    """Sets options of a variant's optimizations from `optimization.option=value`.

    Raises:
        UsageError: not of that form, or the variant does not have the optimization.
    """
    for setting in settings:
        target, equals, value = setting.partition("=")
        name, dot, option = target.partition(".")
        if not (equals and dot):
            raise UsageError(f"--set {shorten(setting)!r} is not of the form optimization.option=value.")
        given = parse_optimization(f"{name}:{option}={value}")
        current = next((o for o in variant.optimizations if o.name == name), None)
        if current is None:
            raise UsageError(f"variant {variant.name!r} has no optimization {name!r}: write {variant.name}+{name}.")
        merged = OptimizationSpec(name=name, options={**current.options, **given.options})
        others = tuple(o for o in variant.optimizations if o.name != name)
        variant = Variant(
            f"{variant.name.replace(f'+{name}', '')}+{merged.text()}",
            variant.device,
            in_stage_order((*others, merged)),
        )
    return variant
