"""Gradients of slices that a loop takes of one tensor: n tensors of zeros, as large as it, where one copy would do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Proposal, lines_of
from laptime.advice.signals import Signals
from laptime.records.trace import SliceRow

_LEAST_SHARE = 0.05
# Fewer parts are halves, a first place, or queries, keys and values, which torch's own attention indexes.
_LEAST_SLICES = 4
# Of what the functions of these slices take in a trace, what a training lost without them (docs/log.md).
_TAKEN_APART = (0.8, 1.3)
# Padding adds steps of samples that have ended, up to as much as short sequences lose; oneDNN has an LSTM of its own
# that takes padded batches alone.
_PADDED = {"LSTM": (1.1, 2.0)}
_PADDED_OTHER = (0.3, 1.3)


def sliced(s: Signals, step: float) -> Proposal | None:
    """What a loop of the user's own slices, or torch's over packed sequences: whichever takes longer."""
    rows = [row for row in s.slices or () if row.slices >= _LEAST_SLICES]
    own, packed = ([r for r in rows if bool(r.within) is inside] for inside in (False, True))
    gone = max(_gone(own), _gone(packed))
    if gone < _LEAST_SHARE * step:
        return None
    return _of_packed(packed, step) if gone > _gone(own) else _of_a_loop(own, step)


def within_slices(rows: Iterable[SliceRow]) -> Counter[str]:
    """Milliseconds by operator that all gradients of slices take: zeros, copies and sums that nobody wrote."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(row.parts_ms)
    return found


def _gone(rows: Iterable[SliceRow]) -> float:
    """One copy of the whole stays, which takes no longer than one of the gradients does now."""
    return sum(row.ms * (1 - 1 / row.slices) for row in rows)


def _of_a_loop(rows: list[SliceRow], step: float) -> Proposal:
    gone, first = _gone(rows), rows[0]
    axis = _axis(first)
    code = (
        f"steps = x.unbind({axis})  # once, and in the loop steps[t]"
        if first.name == "aten::select_backward"
        else f"parts = x.split(size, dim={axis})  # once; of parts that overlap x.unfold({axis}, size, step)"
    )
    return Proposal(
        "hot-operator/slices",
        f"The gradients of slices take {percent(_taken(rows) / step)} of the step: where a loop indexes a tensor, each "
        f"part's gradient is a whole tensor of zeros. Take it apart once before: `{code.partition('  #')[0]}`.",
        _evidence(rows, step),
        (_TAKEN_APART[0] * gone, min(_TAKEN_APART[1] * gone, step)),
        0.8,
        code=code,
        klass="exact",
        lines=lines_of(*(row.source for row in rows)),
    )


def _of_packed(rows: list[SliceRow], step: float) -> Proposal:
    gone, net = _gone(rows), rows[0].within.rpartition("::")[2].partition("_")[0].upper()
    low, high = _PADDED.get(net, _PADDED_OTHER)
    return Proposal(
        "hot-operator/packed",
        f"torch's {net} slices a packed sequence at each step, and the gradients of these slices take "
        f"{percent(_taken(rows) / step)} of the step: give it the padded batch, and read each sample's output at its "
        "last step; the reverse direction needs a net of its own over samples that are reversed within their lengths.",
        _evidence(rows, step),
        (min(low * gone, step), min(high * gone, step)),
        0.6,
        code="out, _ = net(padded); last = out[torch.arange(len(out)), lengths - 1]  # nothing is packed",
        klass="exact",
        lines=lines_of(*(row.source for row in rows)),
    )


def _taken(rows: Iterable[SliceRow]) -> float:
    return sum(row.ms for row in rows)


def _evidence(rows: list[SliceRow], step: float) -> tuple[str, ...]:
    fills = sum(ms_ for row in rows for name, ms_ in row.parts_ms.items() if re.search("fill_|zero", name))
    most = max(rows, key=lambda row: row.ms)
    return (
        f"zeros ({ms(fills)} ms), copies and sums take {ms(_taken(rows))} of {ms(step)} ms a step",
        f"most of a tensor {most.shapes}, of which {most.slices} parts are taken: {most.calls:.0f} gradients a step",
    )


def _axis(row: SliceRow) -> int:
    """Along which axis: the one with as many places as there are parts, else the second, where time is."""
    sides = [int(n) for n in re.findall(r"\d+", row.shapes)]
    return sides.index(row.slices) if row.slices in sides else 1
