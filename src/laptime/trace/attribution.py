"""What each moment of a step goes to: categories claim it in order, and what one has claimed no other can."""

from __future__ import annotations

from laptime.records import CATEGORIES
from laptime.trace.collectives import communication, is_collective
from laptime.trace.events import COPY, FILL, KERNEL, Event
from laptime.trace.intervals import Span, length, merge
from laptime.trace.steps import LOADER, Step


def attribute(step: Step, on_device: bool) -> dict[str, float]:
    """Shares a step out, in microseconds; the values add up to it.

    Data loading is thus the wait that no kernel hides. The order is that of torch's former TensorBoard plugin.
    """
    device = step.device
    claims: dict[str, list[Span]] = {
        "kernel": _spans([r for r in device if r.kind == KERNEL and not is_collective(r)]),
        "copy": _spans([r for r in device if r.kind == COPY]),
        "fill": _spans([r for r in device if r.kind == FILL]),
        "communication": communication(step, on_device),
        "runtime": _spans([n.event for n in step.runtime]),
        "data_loading": waiting_for_data(step),
        "cpu_op": _spans([n.event for n in step.ops if n.op is None]),
    }
    shares = dict.fromkeys(CATEGORIES, 0.0)
    claimed: list[Span] = []
    taken = 0.0
    for category, spans in claims.items():
        if spans:
            claimed = merge([*claimed, *spans], step.begin, step.end)
            now = length(claimed)
            shares[category], taken = now - taken, now
    shares["other"] = step.end - step.begin - taken
    return shares


def waiting_for_data(step: Step) -> list[Span]:
    """Where the training thread fetches a batch, hidden behind the device or not."""
    return merge([*step.notes(LOADER), *step.regions.get("data", [])], step.begin, step.end)


def _spans(rows: list[Event]) -> list[Span]:
    return [(r.begin, r.end) for r in rows]
