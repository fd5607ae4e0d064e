"""What a probe of the machine says."""

from __future__ import annotations

from dataclasses import replace

from laptime.advice.signals import Signals
from laptime.advice.sources.record import bf16_rates
from laptime.catalogue import OPTIMIZATIONS, WORKLOADS
from laptime.records import ProbeRecord
from laptime.variants import exact_before

# A probe at the large batch is the one that holds from here on; below, the one at the baseline's.
_LARGE = 256


def with_probe(found: Signals, probe: ProbeRecord) -> Signals:
    """Adds what was measured beside the run: gains at the nearer batch, rates, what can't be had here."""
    bf16, compiled = (_key(name, probe, (found.batch_size or 0) >= _LARGE) for name in ("bf16", "compile"))
    return replace(
        found,
        bf16_gain=_gain(found, probe, bf16),
        bf16_apart=_apart(found, "bf16", probe.beside.get(bf16, "")),
        compile_gain=_gain(found, probe, compiled),
        compile_apart=_apart(found, "compile", probe.beside.get(compiled, "")),
        compile_cost_s=probe.costs_s.get(compiled),
        bf16_rates=found.bf16_rates or bf16_rates(probe.machine),
        refusals={**found.refusals, **probe.refusals},
    )


def _gain(found: Signals, probe: ProbeRecord, key: str) -> float | None:
    """A gain that shows only beside another optimization says nothing of a run without that one."""
    partner, own = probe.beside.get(key), {o.name for o in found.optimizations or ()}
    return None if partner and partner not in own else probe.gains.get(key)


def _key(name: str, probe: ProbeRecord, large: bool) -> str:
    """The gain at the nearer batch, or the only one: a workload whose own batch is a large one is probed once."""
    keys = [key for key in probe.gains if key.partition("@")[0] == name]
    return next((key for key in keys if ("@" in key) == large), keys[0] if keys else "")


def _apart(found: Signals, rung: str, partner: str) -> str:
    """How the probe's steps differ from the run's; empty where they do not.

    All exact rungs before it were on, and the one that it gains beside.
    """
    if found.optimizations is None:
        return ""
    entry = next((w for w in WORKLOADS if w.name == found.workload), None)
    refused = {*found.refusals, *(entry.refused if entry else ())}
    theirs = [o.name for o in exact_before(found.device, rung, found.workload, refused)]
    theirs += [partner] if partner else []
    own = {o.name for o in found.optimizations}
    more = [name for name in theirs if name not in own]
    less = [o.name for o in OPTIMIZATIONS if o.klass == "exact" and o.name in own and o.name not in theirs]
    return " and ".join(f"{word} {', '.join(names)}" for word, names in (("with", more), ("without", less)) if names)
