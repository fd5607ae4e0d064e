"""Gradients of slices that a loop takes of one tensor or writes into one: n as large as it, where one copy would do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Outcome, Proposal, known, lines_of
from laptime.advice.rules.operators import shapes_of
from laptime.advice.signals import Signals
from laptime.records.trace import WRITTEN, OperatorRow, SliceRow

_LEAST_SHARE = 0.05
# Fewer parts are halves, a first place, or queries, keys and values, which torch's own attention indexes.
_LEAST_SLICES = 4
# Of what the functions of these slices take in a trace, what a training lost without them (docs/log.md).
_TAKEN_APART = (0.9, 1.6)
# A step of an LSTM cell takes apart gates and states as well, and what it lost scatters down to this.
_LSTM_CELL, _OF_CELLS = "aten::lstm_cell", 0.6
# Of what the functions of such writes take in a trace, what a training lost with a list and one stack (docs/log.md).
_STACKED = (1.0, 2.0)
# Padding adds steps of samples that have ended, up to as much as short sequences lose; oneDNN has an LSTM of its own
# that takes padded batches alone.
_PADDED = {"LSTM": (1.3, 3.0)}
_PADDED_OTHER = (0.3, 1.6)
_OWN_KERNEL = "an LSTM takes padded batches in one kernel, so that more than the slices goes"
# Of a padded batch, what is no padding: with less, padded steps cost other nets more than their slices (docs/log.md).
_LEAST_FILLED = 0.25


def sliced(s: Signals, step: float) -> Proposal | None:
    """What a loop of the user's own slices, or torch's over packed sequences: whichever takes longer."""
    rows = [row for row in s.slices or () if row.slices >= _LEAST_SLICES and row.name != WRITTEN]
    own, packed = ([r for r in rows if bool(r.within) is inside] for inside in (False, True))
    packed = [r for r in packed if _kind(r) in _PADDED or _filled(r, s.operators or ()) >= _LEAST_FILLED]
    gone = max(_gone(own), _gone(packed))
    if gone < _LEAST_SHARE * step:
        return None
    return _of_packed(packed, step) if gone > _gone(own) else _of_a_loop(own, step, _cells(s.operators or ()))


def written_slices(s: Signals) -> Outcome:
    """A loop writes its states into one tensor: each write copies the whole gradient in backward."""
    if s.device == "cuda":
        return None
    step, _ = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    rows = [row for row in s.slices or () if row.slices >= _LEAST_SLICES and row.name == WRITTEN]
    gone = _gone(rows)
    if gone < _LEAST_SHARE * step:
        return None
    most = max(rows, key=lambda row: row.ms)
    axis = _axis(most)
    return Proposal(
        "written-slices",
        f"The gradients of writes into slices take {percent(_taken(rows) / step)} of the step: where a loop writes its "
        "results into one tensor, each write copies the gradient of the whole. Keep them in a list, and stack them "
        f"once: `torch.stack(states, {axis})`.",
        (
            f"copies of whole gradients take {ms(_taken(rows))} of {ms(step)} ms a step",
            f"most of a tensor {most.shapes}, into which {most.slices} parts are written: {most.calls:.0f} a step",
            "where it was measured, once to twice as much went, since the writes and their bookkeeping went, too",
        ),
        (_STACKED[0] * gone, min(_STACKED[1] * gone, step)),
        0.8,
        code=f"states.append(state)  # in the loop; out = torch.stack(states, {axis}) behind it",
        klass="exact",
        lines=lines_of(*(row.source for row in rows)),
    )


def within_slices(rows: Iterable[SliceRow]) -> Counter[str]:
    """Milliseconds by operator that all gradients of slices take: zeros, copies and sums that nobody wrote."""
    found: Counter[str] = Counter()
    for row in rows:
        found.update(row.parts_ms)
    return found


def _gone(rows: Iterable[SliceRow]) -> float:
    """One copy of the whole stays, which takes no longer than one of the gradients does now."""
    return sum(row.ms * (1 - 1 / row.slices) for row in rows)


def _cells(operators: Iterable[OperatorRow]) -> bool:
    return any(_LSTM_CELL in (row.name, *row.chain) for row in operators)


def _of_a_loop(rows: list[SliceRow], step: float, cells: bool) -> Proposal:
    gone, first = _gone(rows), rows[0]
    low = _OF_CELLS if cells else _TAKEN_APART[0]
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
        (low * gone, min(_TAKEN_APART[1] * gone, step)),
        0.8,
        code=code,
        klass="exact",
        lines=lines_of(*(row.source for row in rows)),
    )


def _of_packed(rows: list[SliceRow], step: float) -> Proposal:
    gone, net = _gone(rows), _kind(rows[0])
    low, high = _PADDED.get(net, _PADDED_OTHER)
    return Proposal(
        "hot-operator/packed",
        f"torch's {net} slices a packed sequence at each step, and the gradients of these slices take "
        f"{percent(_taken(rows) / step)} of the step: give it the padded batch, and read each sample's output at its "
        "last step; the reverse direction needs a net of its own over samples that are reversed within their lengths.",
        (*_evidence(rows, step), *([_OWN_KERNEL] if net in _PADDED else [])),
        (min(low * gone, step), min(high * gone, step)),
        0.6,
        code="out, _ = net(padded); last = out[torch.arange(len(out)), lengths - 1]  # nothing is packed",
        klass="exact",
        lines=lines_of(*(row.source for row in rows)),
    )


def _kind(row: SliceRow) -> str:
    """`GRU`, `LSTM` or `RNN`."""
    return row.within.rpartition("::")[2].partition("_")[0].upper()


def _filled(row: SliceRow, operators: Iterable[OperatorRow]) -> float:
    """What of a padded batch is no padding, by the net's inputs `[places, width] [steps] [layers, B, width]`.

    1 where the trace does not say.
    """
    nets = [(r.calls, shapes_of(r)) for r in operators if r.name == row.within]
    packed = [(n, of[0][0], of[1][0] * of[2][1]) for n, of in nets if [len(sizes) for sizes in of[:3]] == [2, 1, 3]]
    padded = sum(n * places for n, _, places in packed)
    return sum(n * places for n, places, _ in packed) / padded if padded else 1.0


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
