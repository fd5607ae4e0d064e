"""What each rank's own work takes: its profiled step less what it waits for the others, by its own trace.

Ranks wait for each other in backward, so no clock of theirs tells who is slow there; each one's trace does, since it
shows where the exchange is all that goes on.
"""

from __future__ import annotations

from pathlib import Path

from torch.profiler import profile

from laptime.host.scratch import scratch
from laptime.records import TraceSummary

_EXCHANGE = "communication"


def summarized(trace: Path) -> TraceSummary:
    """A trace in numbers."""
    from laptime.trace import summarize

    found: TraceSummary = summarize(trace)
    return found


def own_ms(found: TraceSummary) -> float:
    """The mean step less the exchange that nothing hides, in milliseconds."""
    return max(0.0, found.step_mean_ms - found.attribution_ms.get(_EXCHANGE, 0.0))


def of_scratch(recorded: profile) -> float:
    """`own_ms` of a recording whose trace nobody keeps; its file is gone when this returns."""
    with scratch("rank") as folder:
        trace = folder / "trace.json"
        recorded.export_chrome_trace(str(trace))
        return own_ms(summarized(trace))
