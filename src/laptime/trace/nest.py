"""Who called whom: events of a thread lie within each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from laptime.trace.events import FRAME, OP, Event

# Times are written to the nanosecond, so that a callee may seem to end that much after its caller.
_ROUNDING_US = 0.0015
NO_STEP = -1


@dataclass(slots=True, eq=False)
class Node:
    """An event of the host with what is around it.

    Attributes:
        end: the event's.
        op: the nearest operator around it.
        source: the user's line that it comes from; empty where the trace has no stacks.
        inner_us: time in operators that it calls.
        heaviest: that of them which takes longest.
        region: where it lies in its step; empty outside of any and before `Launches` has seen it.
        step: number of the step it lies in, from 1; NO_STEP between steps and before `Launches` has seen it.
        update: whether it lies in the step's optimizer.
        fresh: whether it moves what the host filled just before.
        frame: the nearest Python frame around it that has a line of the user's.
    """

    event: Event
    end: float
    op: Node | None
    source: str
    inner_us: float = 0.0
    heaviest: Node | None = field(default=None, repr=False)
    region: str = ""
    step: int = NO_STEP
    update: bool = False
    fresh: bool = False
    frame: Node | None = field(default=None, repr=False)

    @property
    def self_us(self) -> float:
        return max(0.0, self.event.dur - self.inner_us)

    @property
    def leaf(self) -> bool:
        return self.heaviest is None

    def target(self) -> Node:
        """Where its time is spent: down along the callee that takes at least half of it."""
        node = self
        while node.heaviest is not None and node.heaviest.event.dur >= 0.5 * node.event.dur:
            node = node.heaviest
        return node

    def above(self) -> list[Node]:
        """Operators around it, the nearest first."""
        found, node = [], self.op
        while node is not None:
            found.append(node)
            node = node.op
        return found

    def lines(self) -> tuple[str, ...]:
        """The user's lines that it comes from, the nearest first."""
        found, frame = [], self.frame
        while frame is not None:
            found.append(frame.source)
            frame = frame.frame
        return tuple(found)


def nest(events: Iterable[Event]) -> list[Node]:
    """Nests the host's events.

    Args:
        events: by time; of equal beginnings the longest first.

    Returns:
        all but Python frames, in the same order.
    """
    stacks: dict[str, list[Node]] = defaultdict(list)
    nodes = []
    for event in events:
        stack, ended = stacks[event.lane], event.begin + _ROUNDING_US
        while stack and stack[-1].end <= ended:
            stack.pop()
        node = _below(event, stack[-1] if stack else None)
        stack.append(node)
        if event.kind != FRAME:
            nodes.append(node)
    return nodes


def _below(event: Event, around: Node | None) -> Node:
    own = event.name if event.kind == FRAME else ""
    if around is None:
        return Node(event, event.end, None, own)
    op = around if around.event.kind == OP else around.op
    node = Node(event, event.end, op, own or around.source)
    node.frame = around if around.event.kind == FRAME and around.event.name else around.frame
    if op is not None and event.kind == OP:
        op.inner_us += event.dur if node.end <= op.end else max(0.0, op.end - event.begin)
        if op.heaviest is None or event.dur > op.heaviest.event.dur:
            op.heaviest = node
    return node
