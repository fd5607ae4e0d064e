"""Which variants a ladder tries, in which order, and which it leaves out and why. Pure: no process is started here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor

from laptime.catalogue import (
    DEVICES,
    LADDERS,
    LARGE_BATCHES,
    OPTIMIZATIONS,
    classes_of,
    find_optimization,
    find_workload,
    large_batch_of,
    options_of,
    rung_spec,
)
from laptime.catalogue.entries import Preset, WorkloadEntry
from laptime.catalogue.workloads import AT_ONCE, ONLY_OWN
from laptime.devices import choose_device, missing_extra
from laptime.errors import UsageError, shorten
from laptime.records import LEAST_GAIN, LeftOut, Machine, ProbeRecord, Rung, busy
from laptime.spec import DataSpec, OptimizationSpec
from laptime.variants import Variant, baseline_of, joins_by_name, resolve


@dataclass(frozen=True)
class Plan:
    """What is tried.

    Attributes:
        rungs: what to try one after another on the best so far, each a group of optimizations that is named after its
            last; empty where the user named the variants, or a preset has no time for rungs.
        fixed: variants that are known beforehand, the baseline first.
        refused: optimizations that a probe refused.
        parallel: variants on several devices, which take the optimized list (see `ranks.with_parallel`).
        probe: what it showed of the machine.
        named: whether the user named the variants.
    """

    device: str
    rungs: tuple[tuple[str, ...], ...]
    fixed: tuple[Variant, ...]
    refused: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    parallel: tuple[str, ...] = ()
    probe: ProbeRecord = field(default_factory=ProbeRecord)
    named: bool = False

    @property
    def adaptive(self) -> bool:
        """Whether anything joins the baseline beside what the user named."""
        return not self.named and bool(self.rungs or untried(self))


def make_plan(device: str, preset: Preset, names: Sequence[str] | None, probe: ProbeRecord, workload: str = "") -> Plan:
    """Settles what a ladder tries; the workload is asked for by what is named.

    Raises:
        UsageError: a variant that does not exist or belongs to another device.
    """
    refused = {n: reason for n in LADDERS[device] if (reason := refusal(n, probe))}
    tried = tried_rungs(device, preset)
    settled = {*tried, *refused, *_of_others(device, preset)}
    untried = {n: _too_short(n, preset) for n in LADDERS[device] if n not in settled}
    left_out = tuple(LeftOut(variant=f"{device}-{name}", reason=why) for name, why in (refused | untried).items())
    if names:
        chosen = [resolve(name, tuple(refused), workload) for name in dict.fromkeys(names)]
        plan = _named(device, chosen, tuple(refused), left_out)
        gone = _missed(plan, workload) - {left.variant for left in plan.left_out}
        return replace(plan, left_out=(*plan.left_out, *(left for left in left_out if left.variant in gone)))
    # News to nobody who has not named it.
    left_out = tuple(left for left in left_out if left.reason not in (ONLY_OWN, AT_ONCE))
    entering = tuple(r for r in tried if r not in refused)
    groups = grouped(*together(gains_at_last(device, entering, probe), preset.rungs, probe))
    return Plan(device, groups, (baseline_of(device),), tuple(refused), left_out, probe=probe)


def _named(device: str, chosen: Sequence[Variant], refused: tuple[str, ...], left_out: tuple[LeftOut, ...]) -> Plan:
    for variant in chosen:
        require_device(variant, device)
    away = {f"{device}-{name}" for name in refused}
    others = tuple(v for v in chosen if v.name not in away and v.name != baseline_of(device).name)
    names = {v.name for v in chosen}
    named = tuple(left for left in left_out if left.variant in names & away)
    return Plan(device, (), (baseline_of(device), *others), refused, named, named=True)


def _missed(plan: Plan, workload: str) -> set[str]:
    """The refused rungs that what is run of the named variants would else stand for: told, as in a whole ladder."""
    pairs = ((resolve(v.name, (), workload), v) for v in plan.fixed)
    gone = {o.name for whole, v in pairs for o in whole.optimizations if o not in v.optimizations}
    return {f"{plan.device}-{rung}" for rung in plan.refused if rung in gone}


def require_device(variant: Variant, device: str) -> None:
    """Refuses a variant of the other device than a ladder's; raises UsageError, which says where there is no GPU."""
    wanted = DEVICES[variant.device]
    if wanted == device:
        return
    if wanted == "cuda":
        choose_device(wanted, f"name another variant than {variant.name} (laptime list variants)")
    raise UsageError(f"variant {variant.name!r} does not run on device {device!r}: give --device {wanted}.")


def unfit(entry: WorkloadEntry, device: str, limit: int | None = None) -> dict[str, str]:
    """Optimizations that a workload has no use for, or this installation lacks, with the reasons, as a probe has.

    Args:
        entry: the workload.
        device: that of the ladder.
        limit: training samples of the ladder; None for all.
    """
    # Of a workload of the user's own 0 says: not known yet.
    samples = min((n for n in (entry.train_count, limit) if n), default=0)
    large, refused = LARGE_BATCHES[device], dict(entry.refused)
    refused |= {o.name: why for o in OPTIMIZATIONS if o.extra and (why := missing_extra(o.extra))}
    reason = ""
    if entry.batch_size >= large:
        reason = f"the baseline's batch of {entry.batch_size} is not below the {large} that this rung takes"
    elif 0 < samples <= entry.batch_size:
        reason = f"one batch of {entry.batch_size} holds all training samples ({samples}) already"
    return refused | ({"large-batch": reason} if reason else {})


def tried_rungs(device: str, preset: Preset) -> tuple[str, ...]:
    """The rungs that a preset tries; one that must first earn its place is tried only under its own name."""
    own = preset.rungs
    if own is None:
        others = _of_others(device, preset)
        return tuple(r for r in LADDERS[device] if r not in others)
    return tuple(r for r in LADDERS[device] if r in own or joins_by_name(device, r))


def _of_others(device: str, preset: Preset) -> set[str]:
    """Rungs that are for one workload alone, where the preset names none of them and so is another's."""
    alone = {r for r in LADDERS[device] if find_optimization(rung_spec(r).name).workload}
    return set() if alone & set(preset.rungs or ()) else alone


def _too_short(name: str, preset: Preset) -> str:
    shown = find_optimization(rung_spec(name).name).only_shown
    why = "it is there for comparison" if shown else "it joins only where a ladder has measured it"
    return f"not tried: {why}, for which preset {preset.name} is too short; give --preset full"


def gains_at_last(device: str, rungs: tuple[str, ...], probe: ProbeRecord) -> tuple[str, ...]:
    """Moves rungs that gain only at the ladder's large batch behind the rung that brings it."""
    key = f"@{large_batch_of(device)}"
    bringer = next((r for r in rungs if rung_spec(r).name == "large-batch"), None)
    late = [r for r in rungs if bringer and (g := gains_of(r, probe)) and not _gains(g, "") and _gains(g, key)]
    early = [r for r in rungs if r not in late]
    if bringer is None:
        return rungs
    place = early.index(bringer) + 1
    return (*early[:place], *late, *early[place:])


def together(
    ladder: tuple[str, ...], own: tuple[str, ...] | None, probe: ProbeRecord
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Has rungs that gain only beside another followed by that one, and enter with it.

    Returns:
        The ladder, and the rungs of their own in it.
    """
    mine, order = list(ladder if own is None else own), list(ladder)
    for name in ladder:
        shown = [k for k in probe.beside if k.partition("@")[0] == _probe_key(name) and _gains(probe.gains, k)]
        partner = probe.beside[shown[0]] if shown else ""
        if partner in order:
            order.remove(partner)
            order.insert(order.index(name) + 1, partner)
            mine = [partner if rung == name else rung for rung in mine]
    return tuple(order), tuple(mine)


def grouped(ladder: tuple[str, ...], own: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Cuts a ladder into rungs: each of `own` with those before it that have no rung of their own."""
    groups: list[tuple[str, ...]] = []
    waiting: tuple[str, ...] = ()
    for name in ladder:
        waiting += (name,)
        if name in own:
            groups.append(waiting)
            waiting = ()
    return tuple(groups)


def refusal(name: str, probe: ProbeRecord) -> str | None:
    """Why a probe keeps a rung out; None where it may enter, which one gain at either batch is enough for."""
    chosen = rung_spec(name).name
    if chosen in probe.refusals:
        return probe.refusals[chosen]
    gains = gains_of(name, probe)
    if not gains or max(gains.values()) >= LEAST_GAIN:
        return None
    told = (
        f"a probe on this machine showed {_figures(name, probe)}, less than the {LEAST_GAIN:.2f}x that would be a gain"
    )
    return told + _beside_others(probe.machine)


def _beside_others(machine: Machine) -> str:
    """What may have made a gain look smaller: kernels whose threads wait for each other in turn, as bf16's do."""
    if not busy(machine.load_before, machine.cores):
        return ""
    return (
        f"; others kept the machine busy meanwhile (a load of {machine.load_before:.1f} on {machine.cores} cores), "
        "so run it again when nothing else runs here"
    )


def hopeless(name: str, batch: int | None, probe: ProbeRecord) -> str | None:
    """Why a rung is not worth a process at the batch that the best so far has (None for the baseline's)."""
    gains = gains_of(name, probe)
    key = "" if batch is None else f"@{batch}"
    if key not in gains or _gains(gains, key):
        return None
    has = "the large batch" if key else "the baseline's"
    return f"a probe on this machine showed {_figures(name, probe)}, and the best so far has {has}"


def gains_of(name: str, probe: ProbeRecord) -> dict[str, float]:
    """The gains that a probe found for a rung: by `` at the baseline's batch, by `@512` at a batch of 512."""
    key = _probe_key(name)
    found = {k.partition("@"): gain for k, gain in probe.gains.items()}
    return {at + batch: gain for (own, at, batch), gain in found.items() if own == key}


def _probe_key(name: str) -> str | None:
    return find_optimization(rung_spec(name).name).probe


def rungs_refused(device: str, workload: str, data: DataSpec | None) -> tuple[str, ...]:
    """Rungs that are not for a workload: by the catalogue, or by a look into a user's own."""
    refused = reasons_against(workload, data)
    return tuple(r for r in LADDERS.get(DEVICES[device], ()) if rung_spec(r).name in refused)


def reasons_against(workload: str, data: DataSpec | None) -> Mapping[str, str]:
    """Optimizations that are not for a workload, with the reasons: by the catalogue, or by a look into a user's own."""
    return data.own.refused if data and data.own else find_workload(workload).refused


def require_fit(variant: Variant, workload: str, data: DataSpec) -> None:
    """Refuses what `+name` asks for and a workload can't have; what a rung brings is left out before this.

    Raises:
        UsageError: there is such an optimization, with the reason.
    """
    reasons = reasons_against(workload, data)
    for name in (o.name for o in variant.optimizations):
        meant = find_optimization(name).workload
        other = f"it is for the workload {meant}" if meant not in ("", workload) else ""
        if reason := reasons.get(name, other):
            raise UsageError(f"{name} of {variant.name} is not for {shorten(workload)}: {reason}; leave it out.")


def with_refusals(probe: ProbeRecord, data: DataSpec) -> ProbeRecord:
    """A probe that also refuses what is not for a user's own workload."""
    refused = data.own.refused if data.own else {}
    return probe.model_copy(update={"refusals": {**probe.refusals, **refused}}) if refused else probe


def _gains(gains: dict[str, float], key: str) -> bool:
    return gains.get(key, 0.0) >= LEAST_GAIN


def _figures(name: str, probe: ProbeRecord) -> str:
    # Cut down: 1.049x rounded up would be called less than itself.
    cut = {key: f"{floor(100 * gain + 1e-6) / 100:.2f}x" for key, gain in gains_of(name, probe).items()}
    beside = {key: probe.beside.get(f"{_probe_key(name)}{key}") for key in cut}
    figures = {key: f"{gain} beside {beside[key]}" if beside[key] else gain for key, gain in cut.items()}
    if figures.keys() == {""}:
        return figures[""]
    tried = {key: probe.batches.get(f"{_probe_key(name)}{key}", key.removeprefix("@")) for key in figures}
    places = {key: f"a batch of {tried[key]}" if key else "the baseline's batch" for key in figures}
    return " and ".join(f"{figure} at {places[key]}" for key, figure in figures.items())


def untried(plan: Plan) -> list[str]:
    """Rungs that a short ladder does not try, which the optimized variant holds all the same."""
    settled = {*plan.refused, *(name for group in plan.rungs for name in group)}
    return [r for r in LADDERS[plan.device] if r not in settled and joins_by_name(plan.device, r)]


def rung_of(variant: Variant, on: str | None, adds: str | None = None) -> Rung:
    """The record of a variant's place in a ladder."""
    return Rung(
        variant=variant.name,
        optimizations=tuple(OptimizationSpec(name=o.name, options=options_of(o)) for o in variant.optimizations),
        classes=classes_of(variant.optimizations),
        on=on,
        adds=adds,
    )
