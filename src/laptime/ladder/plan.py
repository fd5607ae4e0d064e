"""Which variants a ladder tries, in which order, and which it leaves out and why. Pure: no process is started here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from laptime.catalogue import (
    DEVICES,
    LADDERS,
    WITHOUT,
    classes_of,
    combine,
    find_optimization,
    options_of,
    rung_spec,
)
from laptime.entries import Preset
from laptime.errors import UsageError
from laptime.records import LeftOut, ProbeRecord, Rung, RunRecord
from laptime.spec import OptimizationSpec
from laptime.variants import OPTIMIZED, Variant, baseline_of, on_several, resolve

# A probe's gain below this is noise.
LEAST_GAIN = 1.05


@dataclass(frozen=True)
class Plan:
    """What is tried.

    Attributes:
        rungs: what to try one after another on the best so far, each a group of optimizations that is named after its
            last; empty where the user named the variants.
        fixed: variants that are known beforehand, the baseline first.
        refused: optimizations that a probe refused.
        parallel: variants on several devices, which take the optimized list (see `ranks.with_parallel`).
    """

    device: str
    rungs: tuple[tuple[str, ...], ...]
    fixed: tuple[Variant, ...]
    refused: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    parallel: tuple[str, ...] = ()

    @property
    def adaptive(self) -> bool:
        """Whether rungs join the best so far, instead of the user having named the variants."""
        return bool(self.rungs)


def make_plan(device: str, preset: Preset, names: Sequence[str] | None, probe: ProbeRecord) -> Plan:
    """Settles what a ladder tries.

    Raises:
        UsageError: a variant that does not exist or belongs to another device.
    """
    refused = {n: reason for n in LADDERS[device] if (reason := refusal(n, probe))}
    left_out = tuple(LeftOut(variant=f"{device}-{name}", reason=reason) for name, reason in refused.items())
    baseline = baseline_of(device)
    if names:
        chosen = [resolve(name, tuple(refused)) for name in dict.fromkeys(names)]
        foreign = next((v for v in chosen if DEVICES[v.device] != device), None)
        if foreign:
            raise UsageError(
                f"variant {foreign.name!r} does not run on device {device!r}: give --device {DEVICES[foreign.device]}."
            )
        wanted = [v for v in chosen if v.name not in {left.variant for left in left_out}]
        others = tuple(v for v in wanted if v.name != baseline.name)
        named = tuple(left for left in left_out if left.variant in names)
        return Plan(device, (), (baseline, *others), tuple(refused), named)
    entering = tuple(r for r in LADDERS[device] if r not in refused and _has_place(r, preset.rungs))
    return Plan(device, grouped(entering, preset.rungs), (baseline,), tuple(refused), left_out)


def _has_place(rung: str, own: tuple[str, ...] | None) -> bool:
    """A rung that is only shown enters with no other one."""
    return own is None or rung in own or not _only_shown(rung)


def _only_shown(rung: str) -> bool:
    return find_optimization(rung_spec(rung).name).only_shown


def grouped(ladder: tuple[str, ...], own: tuple[str, ...] | None) -> tuple[tuple[str, ...], ...]:
    """Cuts a ladder into rungs: each of `own` (None for all) with those before it that have no rung of their own."""
    groups: list[tuple[str, ...]] = []
    waiting: tuple[str, ...] = ()
    for name in ladder:
        waiting += (name,)
        if own is None or name in own:
            groups.append(waiting)
            waiting = ()
    return tuple(groups)


def refusal(name: str, probe: ProbeRecord) -> str | None:
    """Why a probe keeps an optimization out; None where it may enter."""
    entry = find_optimization(rung_spec(name).name)
    if entry.name in probe.lacking:
        return probe.lacking[entry.name]
    gain = probe.gains.get(entry.probe) if entry.probe else None
    if gain is None or gain >= LEAST_GAIN:
        return None
    return f"a probe on this machine showed {gain:.2f}x, less than the {LEAST_GAIN:.2f}x that would be a gain"


def enters_untried(name: str) -> bool:
    """Whether a rung belongs to the optimized variant of a ladder that did not try it."""
    entry = find_optimization(rung_spec(name).name)
    return not (entry.only_shown or entry.earned)


@dataclass
class Climb:
    """The first round: each rung joins the best so far and stays only if it is faster and right."""

    plan: Plan
    best: Variant
    best_s: float | None = None

    def next_rung(self, group: tuple[str, ...]) -> tuple[Variant, Rung]:
        """The variant that tries a group of optimizations on the best so far; it is named after the last."""
        chosen = combine(self.best.optimizations, *map(rung_spec, group))
        variant = Variant(f"{self.plan.device}-{group[-1]}", self.plan.device, chosen)
        return variant, rung_of(variant, on=self.best.name, adds="+".join(group))

    def judge(self, variant: Variant, rung: Rung, record: RunRecord) -> Rung:
        """Decides whether the added optimization stays, by the fastest kept epoch: others only ever add time."""
        seconds = fastest_s(record)
        if seconds is None:
            return rung.model_copy(update={"joined": False, "reason": f"{record.status}: {record.error}"})
        if rung.adds is not None and _only_shown(rung.adds.rpartition("+")[2]):
            return rung.model_copy(update={"joined": False, "reason": "kept for comparison"})
        if self.best_s is not None and seconds >= self.best_s:
            reason = f"slower in the first round: {seconds:.3g} s an epoch after {self.best_s:.3g} s"
            return rung.model_copy(update={"joined": False, "reason": reason})
        before = f" after {self.best_s:.3g} s" if self.best_s is not None else ""
        self.best, self.best_s = variant, seconds
        return rung.model_copy(
            update={"joined": True, "reason": f"faster in the first round: {seconds:.3g} s an epoch{before}"}
        )

    def optimized(self) -> list[tuple[Variant, Rung]]:
        """The best combination, and the same without the optimizations whose share is shown apart.

        A short ladder does not try every rung; those not tried enter too, unless a probe refused them or they must
        earn their place.
        """
        device = self.plan.device
        tried = {name for group in self.plan.rungs for name in group}
        known = (*tried, *self.plan.refused)
        untried = [r for r in LADDERS[device] if r not in known and enters_untried(r)]
        kept = combine(self.best.optimizations, *map(rung_spec, untried))
        whole = Variant(f"{device}-{OPTIMIZED}", device, kept)
        found = [(whole, rung_of(whole, on=self.best.name))]
        for dropped in WITHOUT.get(device, ()):
            if any(o.name == dropped for o in kept):
                rest = Variant(f"{whole.name}-without-{dropped}", device, tuple(o for o in kept if o.name != dropped))
                found.append((rest, rung_of(rest, on=None)))
        several = (on_several(whole, name) for name in self.plan.parallel)
        return [*found, *((variant, rung_of(variant, on=whole.name)) for variant in several)]


def rung_of(variant: Variant, on: str | None, adds: str | None = None) -> Rung:
    """The record of a variant's place in a ladder."""
    return Rung(
        variant=variant.name,
        optimizations=tuple(OptimizationSpec(name=o.name, options=options_of(o)) for o in variant.optimizations),
        classes=classes_of(variant.optimizations),
        on=on,
        adds=adds,
    )


def fastest_s(record: RunRecord) -> float | None:
    """The fastest kept epoch of a run that is done, see `RunRecord.laps`; None otherwise."""
    if record.status != "done" or not record.kept:
        return None
    return min(record.laps)
