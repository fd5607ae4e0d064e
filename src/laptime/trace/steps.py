"""Steps of a trace, one at a time: the stretches that `prof.step()` marked, with all that lies in them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from laptime.trace.events import DEVICE, KERNEL, NOTE, OP, RUNTIME, Event
from laptime.trace.intervals import Span, gaps, length, merge
from laptime.trace.nest import Node, nest
from laptime.trace.store import Store

REGIONS = ("data", "forward", "backward", "optimizer")
LOADER = "enumerate(DataLoader)"
OPTIMIZER = "Optimizer.step#"
# What torch marks on its own, where the user named no regions.
_MARKS = {"data": (LOADER,), "optimizer": ("Optimizer.zero_grad#",)}
ENGINE = "autograd::engine::evaluate_function"
# A device that never waits takes as long for the steps as their marks, to within a queue that is not full each time.
_LEAST_BEHIND = 0.95
# One step of so many and more that takes so many times as long as any other is none of their kind.
_FEWEST, _ODD = 4, 3.0
_VERY_FIRST = "ProfilerStep#0"
# Steps end where the next begins, to within the rounding of their times.
TOUCHING_US = 1.0


@dataclass(frozen=True)
class Step:
    """A step as it lies in the trace; times in microseconds.

    Attributes:
        since: the end of the step before, from which rows are counted here.
        rows: all that overlaps it.
        nodes: events of the host that begin between `since` and the step's end.
        regions: where on the clock each region is.
        marked: whether it is one; else it is what the device still does of the steps behind the last of them.
    """

    begin: float
    end: float
    since: float
    rows: list[Event]
    nodes: list[Node]
    regions: dict[str, list[Span]]
    marked: bool = True

    def within(self, window: Span | None) -> Step:
        """What of it lies in a stretch of time, where one is given; its host's events all stay."""
        if window is None:
            return self
        begin = max(self.begin, window[0])
        return replace(self, begin=begin, end=max(begin, self.end), since=max(self.since, window[0]))

    @cached_property
    def ops(self) -> list[Node]:
        return [n for n in self.nodes if n.event.kind == OP and n.event.begin >= self.begin]

    @cached_property
    def device(self) -> list[Event]:
        return [r for r in self.rows if r.kind in DEVICE]

    @cached_property
    def runtime(self) -> list[Node]:
        return [n for n in self.nodes if n.event.kind == RUNTIME and n.event.begin >= self.begin]

    def notes(self, *prefixes: str) -> list[Span]:
        """Where annotations lie whose names begin so, within the step."""
        found = [(r.begin, r.end) for r in self.rows if r.kind == NOTE and r.name.startswith(prefixes)]
        return merge(found, self.begin, self.end)

    def optimizer(self) -> list[Span]:
        """Where the optimizer steps on the host."""
        spans = _updates((self.begin, self.end), self.rows, self.nodes)
        return self.regions.get("optimizer", []) if spans is None else spans

    def places(self) -> Places:
        return Places(self.regions)


class Places:
    """Answers in which region a moment lies."""

    def __init__(self, regions: dict[str, list[Span]]) -> None:
        self._spans = sorted((begin, end, name) for name, spans in regions.items() for begin, end in spans)
        self._begins = [begin for begin, _, _ in self._spans]

    def at(self, time: float) -> str:
        place = bisect_right(self._begins, time) - 1
        if place < 0 or time >= self._spans[place][1]:
            return ""
        return self._spans[place][2]


def read_steps(store: Store, marks: Iterable[Event], until: float = float("-inf")) -> Iterator[Step]:
    """Yields the marked steps; of the rows only those of one step are in memory.

    What began before a step and reaches into it (a kernel, a frame) is carried over. Where the device works for them
    until later, what it does behind the last one follows.
    """
    carried: list[Event] = []
    since = float("-inf")
    for mark in marks:
        rows = carried + store.between(since, mark.end)
        yield _step(mark, since, rows)
        since = mark.end
        carried = [row for row in rows if row.end > since]
    if until > since:
        rows = [row for row in carried + store.between(since, until) if row.kind in DEVICE]
        yield Step(since, until, since, rows, [], {}, marked=False)


def ends_idle(store: Store, mark: Event) -> bool:
    """Whether nothing runs in the last step: the loop had ended, or waits for a batch, when the profiler stopped."""
    rows = store.between(mark.begin, mark.end)
    places = Places({"data": merge(_fetches(rows))})
    return not any(row.kind in (OP, RUNTIME, *DEVICE) and not places.at(row.begin) for row in rows)


def odd_one(store: Store, marks: list[Event]) -> Event | None:
    """The one step that takes several times as long as any other: it compiled, evaluated, saved, or started workers.

    None where it is long since it waits for data, as every n-th step does with n workers, but for a training's very
    first and one that fetches many batches; and where it waits for what earlier ones have launched.
    """
    if len(marks) < _FEWEST:
        return None
    *_, second, longest = sorted(marks, key=lambda mark: mark.dur)
    if longest.dur <= _ODD * second.dur:
        return None
    rows = store.between(longest.begin, longest.end)
    within = (longest.begin, longest.end)
    fetches, usual = _fetches(rows), _fetches(store.between(second.begin, second.end))
    whole = longest.name == _VERY_FIRST or len(fetches) > _ODD * len(usual) > 0
    own = longest.dur - (0.0 if whole else length(merge(fetches, *within)))
    calls = {row.correlation for row in rows if row.kind == RUNTIME}
    earlier = [(r.begin, r.end) for r in rows if r.kind in DEVICE and r.correlation and r.correlation not in calls]
    return longest if own > _ODD * second.dur and length(merge(earlier, *within)) < longest.dur / 2 else None


def _fetches(rows: Iterable[Event]) -> list[Span]:
    return [(r.begin, r.end) for r in rows if r.kind == NOTE and (r.name.startswith(LOADER) or r.name == "data")]


def device_window(store: Store, marks: list[Event]) -> Span | None:
    """Where the device does what the marked steps launched, where the marks are not the time for that.

    A host that waits for nothing marks its launching alone: what it launches runs behind the marks, and within them
    what it launched before. So it is where the device had not begun the last step when the host left it, or takes
    longer for it than any mark does. None where the marks hold the device's work, too, and where they are longer than
    it: then the device waits for the host now and then, which its own time would not show to the end.
    """
    last = _begun(_launched(store, marks[-1]))
    if last is None:
        return None
    until = max(row.end for row in _launched(store, marks[-1]))
    if last < marks[-1].end and until - last <= max(mark.dur for mark in marks):
        return None
    first = _begun(_launched(store, marks[0]))
    begin = marks[0].begin if first is None else first
    return (begin, until) if _LEAST_BEHIND * sum(mark.dur for mark in marks) < until - begin else None


def _begun(rows: Iterable[Event]) -> float | None:
    """When the stream of the first kernel begins; another may fetch batches ahead."""
    before: dict[str, float] = {}
    for row in rows:
        begin = before.setdefault(row.lane, row.begin)
        if row.kind == KERNEL:
            return begin
    return None


def _launched(store: Store, mark: Event) -> Iterator[Event]:
    """What the device does for a step, whenever it does."""
    rows = store.between(mark.begin, mark.end)
    calls = {row.correlation for row in rows if row.kind == RUNTIME and row.correlation}
    return (row for row in store.since(mark.begin) if row.kind in DEVICE and row.correlation in calls)


def _step(mark: Event, since: float, rows: list[Event]) -> Step:
    nodes = [n for n in nest(row for row in rows if row.kind not in DEVICE) if n.event.begin >= since]
    over = [row for row in rows if row.end > mark.begin]
    inside = [n for n in nodes if n.event.begin >= mark.begin]
    return Step(mark.begin, mark.end, since, over, nodes, _regions(mark, over, inside))


def _updates(within: Span, rows: Iterable[Event], nodes: Iterable[Node]) -> list[Span] | None:
    """Where optimizers update parameters, by torch's own marks; None without any.

    One that is given a closure (Lightning gives it forward and backward) updates after the last function of the
    backward; where a step ends in the middle of the mark, it ends in that closure.
    """
    marks = [row for row in rows if row.kind == NOTE and row.name.startswith(OPTIMIZER)]
    if not marks:
        return None
    engine = [n.event for n in nodes if n.event.kind == OP and n.event.name.startswith(ENGINE)]
    spans = []
    for mark in marks:
        closure = [e.end for e in engine if mark.begin <= e.begin < mark.end]
        begin = max(closure, default=mark.begin)
        if mark.end <= within[1] + TOUCHING_US:
            spans.append((begin, max(begin, mark.end)))
    return merge(spans, *within)


def _regions(mark: Event, rows: list[Event], nodes: list[Node]) -> dict[str, list[Span]]:
    """Regions as the user named them; one that isn't named is taken from torch's own marks and operators."""
    within = (mark.begin, mark.end)
    named = [n.event for n in nodes if n.event.kind == NOTE]
    found = {name: merge(((e.begin, e.end) for e in named if e.name == name), *within) for name in REGIONS}
    for name, prefixes in _MARKS.items():
        found[name] = found[name] or merge(((e.begin, e.end) for e in named if e.name.startswith(prefixes)), *within)
    if not any(e.name == "optimizer" for e in named):
        found["optimizer"] = merge([*found["optimizer"], *(_updates(within, rows, nodes) or [])], *within)
    found["backward"] = found["backward"] or merge(_backward(nodes, found["data"]), *within)
    found["forward"] = found["forward"] or _forward(mark, nodes, found)
    return {name: spans for name, spans in found.items() if spans}


def _backward(nodes: list[Node], fetches: list[Span]) -> list[Span]:
    """From the first function that the autograd engine ran to the last, on whatever thread.

    What follows a fetch is another batch's, whose gradients are added.
    """
    begins, found = [begin for begin, _ in fetches], dict[int, Span]()
    for event in (n.event for n in nodes if n.event.kind == OP and n.event.name.startswith(ENGINE)):
        of = bisect_right(begins, event.begin)
        begin, end = found.get(of, (event.begin, event.end))
        found[of] = begin, max(end, event.end)
    return list(found.values())


def _forward(mark: Event, nodes: list[Node], found: dict[str, list[Span]]) -> list[Span]:
    """The operators of the step's thread before a backward that are in no other region."""
    if not found["backward"]:
        return []
    end = found["backward"][-1][0]
    free = gaps(merge([*found["data"], *found["optimizer"], *found["backward"]]), mark.begin, end)
    ops = [n.event.begin for n in nodes if n.event.kind == OP and n.event.lane == mark.lane and n.event.begin < end]
    firsts = ((bisect_left(ops, low), high) for low, high in free)
    return [(ops[place], high) for place, high in firsts if place < len(ops) and ops[place] < high]
