"""Steps in which torch.compile's compiler ran: none of the training's own, and seldom meant."""

from __future__ import annotations

from dataclasses import dataclass, field

from laptime.records import CompilerUse
from laptime.trace.events import OP, Event
from laptime.trace.intervals import Span, length, merge

# How Dynamo names what it times, all of it parts of a compilation (torch/_dynamo/utils.py, since torch 2.0).
_TIMED = "(dynamo_timed)"
# What runs in each step of a compiled net.
_RUNS = ("Torch-Compiled Region", "CompiledFunction", "## Call CompiledFxGraph")
# Below this share of a step its time is the training's own.
_LEAST_SHARE = 0.05


def is_compiling(event: Event) -> bool:
    return event.kind == OP and event.name.endswith(_TIMED)


@dataclass
class Compiler:
    """What a trace shows of the compiler.

    Attributes:
        spans: where it ran.
        used: whether anything that it made ran.
    """

    spans: list[Span] = field(default_factory=list)
    used: bool = False

    def see(self, row: Event) -> None:
        if row.kind != OP:
            return
        if is_compiling(row):
            self.spans.append((row.begin, row.end))
        elif not self.used:
            self.used = row.name.startswith(_RUNS)

    def sift(self, marks: list[Event]) -> tuple[list[Event], CompilerUse | None]:
        """The steps in which it did not run, or all where there are no others; None where the trace knows no compiler.

        Args:
            marks: of the steps, one after the other; one at least.
        """
        if not self.spans and not self.used:
            return marks, None
        took = [length(merge(self.spans, mark.begin, mark.end)) for mark in marks]
        slow = [us > _LEAST_SHARE * mark.dur for us, mark in zip(took, marks, strict=True)]
        others = [mark for mark, compiled in zip(marks, slow, strict=True) if not compiled]
        compiled = [us / 1e3 for us, among in zip(took, slow, strict=True) if among]
        use = CompilerUse(
            steps=len(compiled),
            of=len(marks),
            first=slow[0],
            ms=sum(compiled) / len(compiled) if compiled else 0.0,
            counted=bool(compiled) and not others,
        )
        return others or marks, use
