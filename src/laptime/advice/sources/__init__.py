"""Signals out of a run's record, a trace and a probe."""

from __future__ import annotations

import math
from dataclasses import replace

from laptime.advice.signals import Signals
from laptime.advice.sources.probe import with_probe
from laptime.advice.sources.record import of_record
from laptime.advice.sources.trace import device_of, with_trace
from laptime.records import ProbeRecord, RunRecord
from laptime.records.trace import TraceSummary


def signals_of(
    record: RunRecord | None = None, trace: TraceSummary | None = None, probe: ProbeRecord | None = None
) -> Signals:
    """Brings everything known onto the scale of the counted steps.

    A trace is of profiled steps, which are slower: its times are scaled by the counted step over their mean.
    """
    if record is not None:
        found = of_record(record)
    else:
        found = Signals(subject=trace.source, device=device_of(trace)) if trace is not None else Signals()
    if trace is not None:
        found = with_trace(found, trace)
    if found.step_ms is not None and not 0 < found.step_ms < math.inf:
        found = replace(found, step_ms=None)  # a record from elsewhere: nothing is a share of such a step
    return with_probe(found, probe) if probe is not None else found
