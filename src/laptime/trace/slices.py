"""Gradients of slices, each as large as the whole: zeros that are added up, and a copy for each write into a tensor."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from laptime.records import SliceRow
from laptime.records.trace import WRITTEN
from laptime.trace.events import PLACED, SLICED, Event
from laptime.trace.nest import Node
from laptime.trace.steps import ENGINE, Step

# What takes a part of a tensor, in a forward pass.
_TAKES = frozenset(("aten::select", "aten::slice", "aten::narrow"))
# What writes into a part: it makes a node for what is written, and behind that the one of WRITTEN.
_WRITES = "aten::copy_"
_RECURRENT = re.compile(r"aten::(gru|lstm|rnn_tanh|rnn_relu)$")
_MOST_ROWS = 20


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a slice was taken: the recurrent net of torch's own around it, and the user's line."""

    within: str
    source: str


@dataclass(slots=True)
class _Sum:
    """Gradients of slices of tensors of one shape."""

    calls: int = 0
    us: float = 0.0
    places: set[int] = field(default_factory=set)
    sources: Counter[str] = field(default_factory=Counter)
    parts_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))


@dataclass
class Slices:
    """Sums over steps, by operator, shape of the whole tensor and net around it.

    A function of a backward tells the number of the node that it goes through, and the operator that made the node was
    told the same one. Backward follows forward within two steps.
    """

    sums: dict[tuple[str, str, str], _Sum] = field(default_factory=lambda: defaultdict(_Sum))
    before: dict[int, _Origin] = field(default_factory=dict)
    latest: dict[int, _Origin] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        self.before, self.latest = self.latest, {}
        of: dict[int, _Sum] = {}
        for node in step.ops:
            event = node.event
            if event.sequence > 0 and event.name in _TAKES:
                self.latest[event.sequence] = _origin(node)
            elif event.sequence > 0 and event.name == _WRITES:
                self.latest[event.sequence + 1] = _origin(node)
            elif event.name in SLICED and event.shapes:
                self._counted(node, of, event.name, event.size)
            elif event.name == PLACED and node.op is not None and node.op.event.name.endswith(WRITTEN):
                self._counted(node.op, of, WRITTEN, event.size)
        for node in step.ops if of else ():
            around = next((of[id(above)] for above in (node, *node.above()) if id(above) in of), None)
            if around is not None:
                around.parts_us[node.event.name] += node.self_us

    def _counted(self, node: Node, of: dict[int, _Sum], name: str, place: int) -> None:
        """Counts the gradient of a slice with the whole function of the backward around it, which adds it up."""
        function = next((n for n in node.above() if n.event.name.startswith(ENGINE)), None)
        origin = self._made(function.event) if function is not None else None
        if function is None or origin is None:
            return
        found = self.sums[name, node.event.shapes, origin.within]
        of[id(function)] = found
        found.calls += 1
        found.us += function.event.dur
        found.places.add(place)
        if origin.source:
            found.sources[origin.source] += 1

    def _made(self, function: Event) -> _Origin | None:
        number = -function.sequence
        return self.latest.get(number) or self.before.get(number)

    def rows(self, steps: int) -> tuple[SliceRow, ...]:
        """A row for each operator, shape and net around it, by time."""
        found = [
            SliceRow(
                name=name,
                shapes=shapes,
                within=within,
                calls=one.calls / steps,
                slices=len(one.places),
                ms=one.us / steps / 1e3,
                parts_ms={part: us / steps / 1e3 for part, us in one.parts_us.items() if us},
                source=min(one.sources, key=lambda line: (-one.sources[line], line), default=""),
            )
            for (name, shapes, within), one in self.sums.items()
        ]
        return tuple(sorted(found, key=lambda row: (-row.ms, row.name, row.shapes))[:_MOST_ROWS])


def _origin(node: Node) -> _Origin:
    within = next((n.event.name for n in node.above() if _RECURRENT.match(n.event.name)), "")
    return _Origin(within, node.source)
