"""Operators of forward passes that autograd recorded for a backward which never came."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from laptime.records import UnusedGraph
from laptime.trace.compiling import is_compiling
from laptime.trace.events import Event
from laptime.trace.nest import Node
from laptime.trace.operands import is_matrix_work
from laptime.trace.steps import ENGINE, Places, Step

# A backward may come that many steps after its forward pass before a graph counts as unused.
AHEAD = 4
# An operator makes a few nodes at most; where the count moves on by more, something was not recorded.
_MOST_NODES = 16
_LINES = 3


def _is_apart(event: Event) -> bool:
    """Whether what an operator calls is a backward's or the compiler's, which runs a net to see what it does."""
    return event.name.startswith(ENGINE) or is_compiling(event)


@dataclass(slots=True)
class Made:
    """An operator that made nodes of a graph, or may have: the last that was told the count before it moved on.

    Attributes:
        number: the count as it was told it, which is its first node's; `after`: the count as it was then.
        us: of the operator with all that it calls.
        matrix: whether it is a convolution or a matrix product.
        apart: whether it is none to judge: within a backward or the compiler, or a function of the user's own.
        lines: the user's, the nearest first.
    """

    number: int
    begin: float
    us: float
    matrix: bool
    apart: bool
    region: str
    lines: tuple[str, ...]
    after: int = 0
    used: bool = False


@dataclass
class Gradients:
    """Nodes of graphs by their numbers, with what became of them.

    Autograd counts the nodes that a thread makes. Operators that could make one are told the count, whether they do or
    not, so of those with one number the last before the count moves on made the node. A backward names the numbers that
    it goes through. What it recomputes (checkpoints) or records for a second one lies within it, and is not judged.
    Numbers of several threads may coincide: then one that is unused may pass for used, never the other way about.

    Attributes:
        last: by lane, what has not been told yet whether it made a node.
        waiting: by number, what no backward has gone through yet.
        steps: what the last steps made.
        backward: where the latest function of a backward began: what came after it, none has judged.
        judged: operators of steps with unused ones, all that made nodes.
        origins: the lines, the nearest first, that unused operators come from; `shared`: all lines of used ones.
    """

    last: dict[str, Made] = field(default_factory=dict)
    waiting: dict[int, list[Made]] = field(default_factory=dict)
    steps: deque[list[Made]] = field(default_factory=deque)
    backward: float | None = None
    recorded: int = 0
    judged: int = 0
    unused: int = 0
    with_unused: int = 0
    matrix: int = 0
    us: float = 0.0
    regions: Counter[str] = field(default_factory=Counter)
    origins: Counter[tuple[str, ...]] = field(default_factory=Counter)
    shared: set[str] = field(default_factory=set)

    def add(self, step: Step) -> None:
        made: list[Made] = []
        places, seen = step.places(), set()
        for node in step.nodes:
            number = node.event.sequence
            if number < 0:
                self._go_through(-number)
                self.backward = node.event.begin
            elif number:
                seen.add(node.event.lane)
                made += self._told(node, number, places)
        # Threads that live for a step (DataParallel) would add up.
        self.last = {lane: one for lane, one in self.last.items() if lane in seen}
        self.steps.append(made)
        if len(self.steps) > AHEAD:
            self._settle(self.steps.popleft())

    def _told(self, node: Node, number: int, places: Places) -> Iterator[Made]:
        """Takes an operator that was told the count, and yields the one before where that made nodes."""
        before, event = self.last.get(node.event.lane), node.event
        if before is not None and before.number < number <= before.number + _MOST_NODES:
            before.after = number
            for each in range(before.number, number):
                self.waiting.setdefault(each, []).append(before)
            yield before
        # A function of the user's own takes a number even where nothing is recorded.
        own = "::" not in event.name
        apart = own or any(_is_apart(above.event) for above in node.above())
        matrix, region = is_matrix_work(event.name), places.at(event.begin)
        self.last[event.lane] = Made(number, event.begin, event.dur, matrix, apart, region, node.lines())

    def _go_through(self, number: int) -> None:
        for one in self.waiting.pop(number, ()):
            one.used = True
        for one in self.last.values():
            # It may have made more than one.
            one.used |= one.number <= number < one.number + _MOST_NODES

    def _settle(self, made: list[Made]) -> None:
        for one in made:
            for number in range(one.number, one.after):
                self._forget(number, one)
        if self.backward is None:
            return
        judged = [one for one in made if not one.apart and one.begin < self.backward]
        self.recorded += len(judged)
        self.shared.update(line for one in judged if one.used for line in one.lines)
        unused = [one for one in judged if not one.used]
        if not any(one.matrix for one in unused):
            return  # no forward pass: views that an assignment replaced, a metric
        self.with_unused += 1
        self.judged += len(judged)
        self.unused += len(unused)
        self.matrix += sum(one.matrix for one in unused)
        self.us += sum(one.us for one in unused)
        self.regions.update(one.region for one in unused if one.region)
        self.origins.update(one.lines for one in unused if one.lines)

    def _forget(self, number: int, one: Made) -> None:
        left = [other for other in self.waiting.get(number, ()) if other is not one]
        if left:
            self.waiting[number] = left
        else:
            self.waiting.pop(number, None)

    def found(self) -> UnusedGraph | None:
        """What was found; None where the trace has no numbers or no backward. Ends adding."""
        while self.steps:
            self._settle(self.steps.popleft())
        if not self.recorded:
            return None
        steps = max(1, self.with_unused)
        return UnusedGraph(
            steps=self.with_unused,
            operators=self.unused / steps,
            matrix_work=self.matrix / steps,
            share=self.unused / self.judged if self.judged else 0.0,
            ms=self.us / steps / 1e3,
            regions=tuple(name for name, _ in self.regions.most_common()),
            sources=self._sources(),
        )

    def _sources(self) -> tuple[str, ...]:
        """The lines that name what is unused: the nearest each that nothing used comes from, else the nearest."""
        counts: Counter[str] = Counter()
        for lines, count in self.origins.items():
            counts[next((line for line in lines if line not in self.shared), lines[0])] += count
        return tuple(sorted(counts, key=lambda line: (-counts[line], line))[:_LINES])
