"""What a variant's name stands for: `<device>-baseline`, `-<rung>`, `-optimized`, each with `+name:option=value`."""

from __future__ import annotations

from dataclasses import dataclass

from laptime.catalogue import (
    DEVICES,
    LADDERS,
    OPTIMIZATIONS,
    PARALLEL,
    WITHOUT,
    combine,
    find_optimization,
    in_stage_order,
    parse_optimization,
    rung_spec,
)
from laptime.errors import UsageError, shorten, unknown
from laptime.spec import OptimizationSpec

BASELINE, OPTIMIZED = "baseline", "optimized"
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


def variant_names(device: str) -> tuple[str, ...]:
    """The named variants of a device in the order of its ladder."""
    rungs = LADDERS[device]
    without = tuple(f"{OPTIMIZED}-without-{name}" for name in WITHOUT.get(device, ()))
    return tuple(f"{device}-{rung}" for rung in (BASELINE, *rungs, OPTIMIZED, *without))


def all_names() -> tuple[str, ...]:
    """The named variants of all devices."""
    one = tuple(name for device in LADDERS for name in variant_names(device))
    return (*one, *(name for names in PARALLEL.values() for name in names))


def resolve(text: str, left_out: tuple[str, ...] = ()) -> Variant:
    """Finds what a variant's name stands for.

    A rung stands for all optimizations of its ladder up to its own, less those that must earn their place. A ladder
    that is run decides for itself which of the earlier rungs stay, and records it.

    Args:
        text: `NAME(+optimization[:option=value])*`.
        left_out: optimizations that a probe refused; only `+name` brings them back.

    Raises:
        UsageError: a name that does not exist, with the nearest.
    """
    name, *added = text.split("+")
    _refuse_company(name, added)
    side = next((d for d, names in PARALLEL.items() if name in names), None)
    if side is not None:
        best = _lasting(DEVICES[side], left_out)
        return on_several(Variant(text, side, combine((), *map(rung_spec, best))), name, tuple(added))
    device = max((d for d in LADDERS if name.startswith(f"{d}-")), key=len, default=None)
    if device is None or name not in (*variant_names(device), *_ablations(device)):
        raise unknown("variant", name, all_names())
    kept = [rung for rung in _rungs(device, name.removeprefix(f"{device}-")) if rung not in left_out]
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


def on_several(best: Variant, name: str, added: tuple[str, ...] = ()) -> Variant:
    """A variant on several devices: an optimized list with the exchange on it, without what that excludes."""
    side = next(d for d, names in PARALLEL.items() if name in names)
    parts = map(parse_optimization, (*PARALLEL[side][name].split("+"), *added))
    return Variant("+".join((name, *added)), side, combine(best.optimizations, *parts))


def _lasting(device: str, left_out: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(r for r in _rungs(device, OPTIMIZED) if r not in left_out) if device in LADDERS else ()


def _ablations(device: str) -> tuple[str, ...]:
    """The optimized variant less any one optimization: too many to list, so only those of `WITHOUT` are."""
    return tuple(f"{device}-{_WITHOUT}{rung_spec(rung).name}" for rung in LADDERS[device] if joins_by_name(rung))


def _rungs(device: str, rung: str) -> tuple[str, ...]:
    ladder = LADDERS[device]
    if rung == BASELINE:
        return ()
    lasting = tuple(r for r in ladder if r == rung or joins_by_name(r))
    if rung == OPTIMIZED:
        return lasting
    if rung.startswith(_WITHOUT):
        return tuple(r for r in lasting if rung_spec(r).name != rung.removeprefix(_WITHOUT))
    return lasting[: lasting.index(rung) + 1]


def joins_by_name(rung: str) -> bool:
    """Whether a rung is in the optimized variant before any ladder has measured it."""
    entry = find_optimization(rung_spec(rung).name)
    return not (entry.only_shown or entry.earned or entry.workload)


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
