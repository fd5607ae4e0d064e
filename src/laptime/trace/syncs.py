"""Where the host waits for the device, and how long the device then has nothing to do."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from laptime.records import SyncRow
from laptime.records.trace import SCALER
from laptime.trace.events import COPY, WAY
from laptime.trace.intervals import Span, merge
from laptime.trace.nest import Node
from laptime.trace.steps import Step

_WAITING = (
    "cudaStreamSynchronize cudaDeviceSynchronize cudaEventSynchronize cudaMemcpy cuStreamSynchronize cuCtxSynchronize "
    "cuEventSynchronize hipStreamSynchronize hipDeviceSynchronize hipEventSynchronize hipMemcpy hipMemcpyWithStream"
)
_CALLS = frozenset(_WAITING.split())
# Operators by which a user asks for a value; the outermost of them names the wait.
_ASKING = "item is_nonzero _local_scalar_dense nonzero to _to_copy copy_ equal unique _unique2 masked_select"
_ASKS = frozenset(f"aten::{name}" for name in _ASKING.split())

# What a scaler of losses calls before it asks whether all gradients are finite, and after the last update.
_SCALED, _SETTLED = "aten::_amp_foreach_non_finite_check_and_unscale_", "aten::_amp_update_scale_"
_READS = frozenset(("aten::item", "aten::_local_scalar_dense"))

# Operator, the user's line, and which way the copy goes that is waited for.
Key = tuple[str, str, str]


@dataclass
class Syncs:
    """Waits by operator, line and direction, added up over steps.

    Attributes:
        pending: the last wait of a step after which the device got no more work in it, and its end.
    """

    calls: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    wait_us: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    idle_us: dict[Key, float] = field(default_factory=lambda: defaultdict(float))
    pending: tuple[Key, float] | None = None

    def add(self, step: Step, busy: list[Span]) -> list[Span]:
        """Takes a step's waits.

        Args:
            step: the step.
            busy: merged spans in which the device works, in the step.

        Returns:
            spans of the step that waits explain: the waits, and the idle time after each.
        """
        waits = [n for n in step.runtime if n.event.name in _CALLS]
        explained = list(self._settle(step, waits, busy))
        copies, scaled = _copies(step), _scaled(step)
        for place, node in enumerate(waits):
            way, call_us = copies.get(id(node.op), ("", 0.0))
            copies[id(node.op)] = way, 0.0
            key = (*_named(node, scaled), way)
            self.calls[key] += 1
            self.wait_us[key] += node.event.dur + call_us
            explained.append((node.event.begin, node.event.end))
            until = waits[place + 1].event.begin if place + 1 < len(waits) else step.end
            begin, end = _idle_after(node.event.end, until, busy)
            self.idle_us[key] += max(0.0, end - begin)
            explained.append((begin, max(begin, end)))
            if place + 1 == len(waits) and end >= step.end:
                self.pending = (key, step.end)
        return merge(explained, step.begin, step.end)

    def _settle(self, step: Step, waits: list[Node], busy: list[Span]) -> Iterator[Span]:
        """Adds what the last step's last wait left idle in this one."""
        if self.pending is None:
            return
        key, since = self.pending
        until = waits[0].event.begin if waits else step.end
        begin, end = _idle_after(since, until, busy)
        self.idle_us[key] += max(0.0, end - begin)
        self.pending = (key, step.end) if not waits and end >= step.end else None
        yield begin, max(begin, end)

    def rows(self, steps: int) -> tuple[SyncRow, ...]:
        keys = sorted(self.wait_us, key=lambda key: (-self.wait_us[key] - self.idle_us[key], key))
        return tuple(
            SyncRow(
                name=key[0],
                source=key[1],
                copies=key[2],
                calls=self.calls[key] / steps,
                wait_ms=self.wait_us[key] / steps / 1e3,
                idle_after_ms=self.idle_us[key] / steps / 1e3,
            )
            for key in keys
        )


def _copies(step: Step) -> dict[int, tuple[str, float]]:
    """Which way a step's copies went, by the identity of the innermost operator that launched them.

    With the time of the call, in which the host waits, too, where it is none of those for waiting.
    """
    calls = {n.event.correlation: n for n in step.runtime if n.event.correlation and n.op is not None}
    found = ((calls.get(row.correlation), WAY.match(row.name)) for row in step.device if row.kind == COPY)
    return {
        id(call.op): (way[1], 0.0 if call.event.name in _CALLS else call.event.dur)
        for call, way in found
        if call is not None and way is not None
    }


def _scaled(step: Step) -> list[Span]:
    """Where a scaler has checked the gradients of a step and not yet settled its scale."""
    checks = [(n.event.end, n.event.name) for n in step.ops if n.event.name in (_SCALED, _SETTLED)]
    checks.sort()
    return [(end, after) for (end, name), (after, _) in pairwise([*checks, (step.end, "")]) if name == _SCALED]


def _named(call: Node, scaled: list[Span]) -> tuple[str, str]:
    """What a wait is called, and the user's line."""
    above = call.above()
    asks = [n.event.name for n in above if n.event.name in _ASKS]
    if asks and asks[-1] in _READS and any(begin <= call.event.begin < end for begin, end in scaled):
        return SCALER, call.source
    return (asks or [n.event.name for n in above] or [call.event.name])[-1], call.source


def _idle_after(time: float, until: float, busy: list[Span]) -> Span:
    """From a moment on, the stretch in which the device does nothing; empty where it works right then."""
    place = bisect_left(busy, time, key=lambda span: span[1])
    if place == len(busy):
        return time, until
    begin = busy[place][0]
    return time, min(until, max(time, begin))
