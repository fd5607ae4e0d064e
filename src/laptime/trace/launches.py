"""Which operator launched what the device does."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from laptime.trace.events import FILLS, OP, RUNTIME, Event
from laptime.trace.nest import NO_STEP, Node
from laptime.trace.steps import TOUCHING_US, Places, Step

# The host may run that many steps ahead of the device before a kernel's launch is forgotten: so many of long steps, of
# which each holds thousands of calls, and of short ones as many as the second says, or hold that many calls together.
AHEAD, MOST_AHEAD, MOST_CALLS = 4, 32, 50_000
_MOVES = ("aten::to", "aten::_to_copy", "aten::copy_")
_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaMemset", "hipLaunch", "hipExtLaunch", "hipMemset")
# A fill lies directly before its move, or with a change of type or view between.
_NEAR = 3


@dataclass
class Launches:
    """Launching calls of the last steps, by the ids that their kernels carry.

    Where a call lies (region, optimizer, behind a fill) is noted when it is added: its kernel may run steps later, when
    the host is in another region.
    """

    by_correlation: deque[dict[int, Node]] = field(default_factory=lambda: deque(maxlen=MOST_AHEAD))
    by_external: deque[dict[int, Node]] = field(default_factory=lambda: deque(maxlen=MOST_AHEAD))
    steps: int = 0

    def add(self, step: Step) -> None:
        # Not the next one where something lies between: no step lasts from the one to the other.
        self.steps += 1 if step.begin - step.since <= TOUCHING_US else 2
        places, updates = step.places(), Places({"update": step.optimizer()})
        for node in step.nodes:
            node.region = places.at(node.event.begin)
            node.step = self.steps if node.event.begin >= step.begin else NO_STEP
            node.update = bool(updates.at(node.event.begin))
        for node in fresh_moves(step):
            node.fresh = True
        calls = (n for n in step.nodes if n.event.kind == RUNTIME and n.event.correlation)
        self.by_correlation.appendleft({n.event.correlation: n for n in calls})
        ops = (n for n in step.nodes if n.event.kind == OP and n.event.external)
        self.by_external.appendleft({n.event.external: n for n in ops})
        for known in (self.by_correlation, self.by_external):
            while len(known) > AHEAD and sum(map(len, known)) > MOST_CALLS:
                known.pop()

    def call(self, row: Event) -> Node | None:
        """The runtime's call behind an event of the device."""
        return next((known[row.correlation] for known in self.by_correlation if row.correlation in known), None)

    def operator(self, row: Event) -> Node | None:
        """The innermost operator behind an event of the device."""
        call = self.call(row)
        if call is not None and call.op is not None:
            return call.op
        return next((known[row.external] for known in self.by_external if row.external in known), None)

    def source(self, row: Event) -> str:
        """The user's line behind an event of the device; empty without stacks."""
        call = self.call(row)
        if call is not None and call.source:
            return call.source
        op = self.operator(row)
        return op.source if op is not None else ""


def root(node: Node) -> Node:
    """The outermost operator around."""
    above = node.above()
    return above[-1] if above else node


def fresh_moves(step: Step) -> list[Node]:
    """Moves of a tensor that the host filled just before.

    A trace names no tensors: a move is taken for one when an operator that fills memory, on the host, stands among the
    few before it in the same thread, and made the same shape where the trace has shapes.
    """
    launching = {id(root(n)) for n in step.nodes if n.event.kind == RUNTIME and n.event.name.startswith(_LAUNCHES)}
    before: dict[str, deque[Node]] = {}
    found = []
    for node in step.nodes:
        if node.event.kind != OP or node.op is not None:
            continue
        near = before.setdefault(node.event.lane, deque(maxlen=_NEAR))
        if node.event.name in _MOVES and any(_fills(fill, node, launching) for fill in near):
            found.append(node)
        near.append(node)
    return found


def _fills(fill: Node, move: Node, launching: set[int]) -> bool:
    if fill.event.name not in FILLS or id(fill) in launching:
        return False
    made, moved = fill.event.shapes, move.event.shapes
    return made in ("", "[]") or not moved or moved.startswith(made)
