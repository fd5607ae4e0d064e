"""Operators by name and inputs, with chains that only pass a call on folded into the one that does the work."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from laptime.records import OperatorRow
from laptime.records.trace import MIXED
from laptime.trace.events import Event
from laptime.trace.nest import Node
from laptime.trace.operands import is_elementwise
from laptime.trace.steps import Step

# Name, shapes, type of the operands, window.
Key = tuple[str, str, str, str]
# An operator passes its call on when it and its other callees keep at most this share of its time.
_PASSES = 0.10
# More rows than anybody reads; each is some 200 bytes of a summary.
MOST_ROWS = 200
# Of the others those that take little and say what larger ones are of, such as a norm that is written out.
_TELLING = frozenset(f"aten::{name}" for name in ("mean", "sqrt", "rsqrt", "pow"))


@dataclass(slots=True)
class Group:
    """Calls of one operator whose time ends up in one other (or in itself)."""

    calls: int = 0
    self_us: float = 0.0
    total_us: float = 0.0
    device_us: float = 0.0
    regions: Counter[str] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)

    def take(self, other: Group) -> None:
        """Takes a caller's own times, or those of the same operator elsewhere; calls and totals stay."""
        self.self_us += other.self_us
        self.device_us += other.device_us
        self.regions += other.regions
        self.sources += other.sources


@dataclass
class Operators:
    """Operators of all steps; grows with distinct operators, not with calls.

    Attributes:
        matrix_us: the host's time in convolutions and matrix products by the type of their operands; of those that call
            another one in that alone, since autocast casts in between.
    """

    groups: dict[tuple[Key, Key], Group] = field(default_factory=lambda: defaultdict(Group))
    matrix_us: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    elementwise_calls: int = 0
    elementwise_us: float = 0.0
    elementwise_device_us: float = 0.0

    def add(self, step: Step) -> None:
        places = step.places()
        callers = {id(caller) for node in step.ops if node.event.dtype for caller in node.above()}
        for node in step.ops:
            event, self_us = node.event, node.self_us
            group = self.groups[_key(event), _key(node.target().event)]
            region = places.at(event.begin)
            group.calls += 1
            group.self_us += self_us
            group.total_us += event.dur
            group.regions[region] += 1
            if node.source:
                group.sources[node.source] += 1
            if event.dtype and id(node) not in callers:
                self.matrix_us[event.dtype] += self_us
            if node.leaf and region not in ("data", "optimizer") and is_elementwise(event.name):
                self.elementwise_calls += 1
                self.elementwise_us += self_us

    def add_kernel(self, launcher: Node, region: str, duration_us: float) -> None:
        """Counts a kernel for the operator that launched it."""
        event = launcher.event
        self.groups[_key(event), _key(launcher.target().event)].device_us += duration_us
        if region not in ("data", "optimizer") and is_elementwise(event.name):
            self.elementwise_device_us += duration_us

    def rows(self, steps: int) -> tuple[OperatorRow, ...]:
        """Rows by self time: of the device where there is one, else of the host."""
        found = [_row(key, group, chain, steps) for key, (group, chain) in self._folded().items()]
        found.sort(key=lambda row: (-row.device_self_ms, -row.self_ms, row.name))
        telling = [r for r in found[MOST_ROWS:] if r.name in _TELLING and r.region in ("forward", "backward")]
        return (*found[:MOST_ROWS], *telling[:MOST_ROWS])

    def precision(self, on_device: bool) -> str | None:
        """The type of operands in which convolutions and matrix products spend most of their time."""
        spent = self._matrix_device_us() if on_device else self.matrix_us
        most = max(spent, key=lambda dtype: spent[dtype], default=None)
        return most if most is not None and spent[most] > 0 else None

    def mixed_us(self, on_device: bool) -> float:
        """What operators take whose maps are in two memory formats: on the device, else on the host."""
        mixed = (group for (key, _), group in self.groups.items() if key[3] == MIXED)
        return sum(group.device_us if on_device else group.self_us for group in mixed)

    def _matrix_device_us(self) -> dict[str, float]:
        spent: dict[str, float] = defaultdict(float)
        for ((_, _, dtype, _), _), group in self.groups.items():
            if dtype:
                spent[dtype] += group.device_us
        return spent

    def _folded(self) -> dict[Key, tuple[Group, tuple[str, ...]]]:
        whole: dict[Key, Group] = {}
        for (key, _), group in self.groups.items():
            into = whole.setdefault(key, Group())
            into.take(group)
            into.calls += group.calls
            into.total_us += group.total_us
        chains: dict[Key, list[tuple[float, str]]] = defaultdict(list)
        found = {key: (group.calls, group.total_us) for key, group in whole.items()}
        for (key, end), group in self.groups.items():
            if key == end or not _passes(group, *found[end]):
                continue
            _give(whole, key, end, group)
            chains[end].append((-group.total_us, key[0]))
        for key in [key for key, group in whole.items() if not group.calls]:
            del whole[key]
        return {key: (group, tuple(name for _, name in sorted(chains[key]))) for key, group in whole.items()}


def _passes(group: Group, end_calls: int, end_total_us: float) -> bool:
    """Equal totals, and one call for one: within the share that passing on may cost."""
    kept = group.total_us - end_total_us
    return kept <= _PASSES * group.total_us and end_calls <= group.calls * (1 + _PASSES)


def _give(whole: dict[Key, Group], key: Key, end: Key, group: Group) -> None:
    """Moves what a caller spent into the row of the operator that does the work."""
    left, into = whole[key], whole[end]
    into.take(group)
    into.total_us = max(into.total_us, group.total_us)
    left.calls -= group.calls
    left.self_us -= group.self_us
    left.total_us -= group.total_us
    left.device_us -= group.device_us
    left.regions -= group.regions
    left.sources -= group.sources


def _key(event: Event) -> Key:
    return event.name, event.shapes, event.dtype, event.window


def _row(key: Key, group: Group, chain: tuple[str, ...], steps: int) -> OperatorRow:
    return OperatorRow(
        name=key[0],
        shapes=key[1],
        dtype=key[2],
        window=key[3],
        chain=chain,
        calls=group.calls / steps,
        self_ms=group.self_us / steps / 1e3,
        total_ms=group.total_us / steps / 1e3,
        device_self_ms=group.device_us / steps / 1e3,
        region=_most(group.regions),
        source=_most(group.sources),
    )


def _most(counts: Counter[str]) -> str:
    """The name that most lie in, the first in order where several do."""
    return min(counts, key=lambda name: (-counts[name], name), default="")
