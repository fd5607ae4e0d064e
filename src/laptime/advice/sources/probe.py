"""What a probe of the machine says."""

from __future__ import annotations

from dataclasses import replace

from laptime.advice.signals import Signals
from laptime.advice.sources.record import bf16_rates
from laptime.records import ProbeRecord

# A probe at the large batch is the one that holds from here on; below, the one at the baseline's.
_LARGE = 256


def with_probe(found: Signals, probe: ProbeRecord) -> Signals:
    """Adds what was measured beside the run: gains at the nearer batch, rates, what can't be had here."""
    large = (found.batch_size or 0) >= _LARGE
    chosen: dict[str, tuple[float | None, float | None]] = {}
    for name in ("bf16", "compile"):
        keys = [k for k in probe.gains if k.partition("@")[0] == name and ("@" in k) == large]
        key = keys[0] if keys else ""
        chosen[name] = (probe.gains.get(key), probe.costs_s.get(key))
    return replace(
        found,
        bf16_gain=chosen["bf16"][0],
        compile_gain=chosen["compile"][0],
        compile_cost_s=chosen["compile"][1],
        bf16_rates=found.bf16_rates or bf16_rates(probe.machine),
        refusals={**found.refusals, **probe.refusals},
    )
