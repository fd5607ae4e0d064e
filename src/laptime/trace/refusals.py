"""What to say of a file that is JSON and no trace to advise on."""

from __future__ import annotations

from collections.abc import Mapping

from laptime.errors import DataError, shorten
from laptime.trace.events import KERNEL, OP
from laptime.trace.reader import TraceFile


def nothing_of_torch(file: TraceFile) -> DataError:
    """What to say of a file without events that torch records."""
    if "schemaVersion" not in file.meta:
        return file.no_trace("a trace of another tool, without events that torch records")
    return DataError(
        f"the trace {shorten(str(file.path))} holds none of torch's events: it was exported when the profiler's "
        "schedule had begun another cycle, or recorded none; pass repeat=1 to torch.profiler.schedule, or export in "
        "on_trace_ready."
    )


def no_steps(file: TraceFile, kinds: Mapping[int, int]) -> DataError:
    """What to say of a trace of torch's without a mark, which is an event of the host."""
    told = f"the trace {shorten(str(file.path))} has {file.events} events but no steps (no ProfilerStep mark): "
    if kinds.get(KERNEL) and not kinds.get(OP):
        return DataError(f"{told}the host was not recorded; give the profiler ProfilerActivity.CPU, too.")
    return DataError(
        f"{told}pass schedule=torch.profiler.schedule(wait=1, warmup=2, active=5, repeat=1) to the profiler and call "
        "prof.step() after each training step."
    )


def only_an_end(file: TraceFile) -> DataError:
    """What to say where the only step is what came after the last one."""
    return DataError(
        f"the trace {shorten(str(file.path))} has one step in which nothing runs: the loop had ended when it was "
        "recorded; pass repeat=1 to torch.profiler.schedule, and fewer wait, warmup and active steps than the loop has."
    )
