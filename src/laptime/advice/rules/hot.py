"""One operator that takes much of the step: what has helped such operators, with what each should bring."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import MissingSignalError, Note, Outcome, Proposal, known, lines_of
from laptime.advice.remedy import remedy_of
from laptime.advice.rules.attention import written_out
from laptime.advice.rules.launches import LEAST_RATIO
from laptime.advice.rules.layout import Gain, nhwc_gain
from laptime.advice.rules.operators import (
    LEAST_RATE,
    dead_taps_of,
    in_bf16,
    is_convolution,
    is_matrix_work,
    map_and_kernel,
    shapes_of,
)
from laptime.advice.rules.operators import spent as self_ms
from laptime.advice.rules.slices import sliced, within_slices
from laptime.advice.signals import Signals
from laptime.records.trace import OperatorRow

_LARGE_SHARE = 0.25
# Largest side of a map on which a convolution may be faster as a matrix product (`products`).
_SMALL_MAP = 8
# Measured layer by layer at batch 32 in bf16: 40 to 75 % of layers on maps of 2x2 and less, nothing on larger ones.
_PRODUCTS = (0.10, 0.40)
# Measured: 480 regions of a 48x64 map, backward 366 against 40 ms, forward 62 against 8 (docs/log.md).
_ROIS = (0.75, 0.9)
# Of adding up rows' gradients, what went with index_select: least on graphs of 10,000 nodes and more (docs/log.md).
_SELECTED = (0.5, 1.2)
_SMALLER = 0.75
_ROI_ALIGN = "roi_align"
# Waiting for other ranks is no operator's own code: see `communication`.
_EXCHANGES = ("c10d::", "_c10d_functional::", "record_param_comms")


@dataclass(frozen=True)
class _Way:
    """What may help: its milliseconds, and the optimization that does it or the line to write, if there is one."""

    text: str
    gain_ms: tuple[float, float]
    confidence: float
    remedy: str = ""
    code: str = ""

    @property
    def figures(self) -> str:
        """What it is, with its milliseconds."""
        return f"{self.text}: {ms(self.gain_ms[0])} to {ms(self.gain_ms[1])} ms less"


def hot_operator(s: Signals) -> Outcome:
    """The gradients of slices, which are many operators; else the one with the largest self time, all its shapes."""
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    return sliced(s, step) or _hottest(s, step, rows)


def _hottest(s: Signals, step: float, rows: tuple[OperatorRow, ...]) -> Outcome:
    on_device = s.device == "cuda"
    by_name: dict[str, list[OperatorRow]] = {}
    spoken_of = [] if on_device else written_out(rows, step)  # see `attention`
    for row in (r for r in rows if r not in spoken_of):
        if not row.name.startswith(_EXCHANGES) and row.region != "optimizer":  # see `optimizer`
            by_name.setdefault(row.name, []).append(row)
    of_slices = within_slices(s.slices or ())
    times = {name: self_ms(found, on_device) - of_slices.get(name, 0.0) for name, found in by_name.items()}
    name = max(times, key=lambda name: times[name], default="")
    hot, spent = by_name.get(name, []), times.get(name, 0.0)
    if spent < _LARGE_SHARE * step:
        return None
    ways = [w for w in _ways(s, hot, spent) if not (w.remedy and remedy_of(w.remedy, s).refusal)]
    share = f"{name} alone takes {percent(spent / step)} of the step in its own code"
    first = next((w for w in ways if w.remedy or w.code), None)
    if first is None:
        none_left = "What" if s.foreign else "No optimization is left for it here; what"
        return Note(f"{share}. {none_left} may help: {'; '.join(w.figures for w in ways)}.", timed=True)
    return Proposal(
        f"hot-operator/{name.rpartition('::')[2]}",
        f"{share}: {first.text}.",
        (
            f"{ms(spent)} of {ms(step)} ms a step, in {sum(r.calls for r in hot):.0f} calls",
            *(w.figures for w in ways),
        ),
        first.gain_ms,
        first.confidence,
        remedy=first.remedy,
        code=first.code or first.text,
        klass="exact" if first.code else "",
        lines=lines_of(*(r.source for r in sorted(hot, key=lambda r: -self_ms([r], on_device)))),
    )


def _ways(s: Signals, hot: list[OperatorRow], spent: float) -> list[_Way]:
    """Exact ones first: dead taps and products, layout, precision, a smaller input, less work, another device."""
    found: list[_Way] = []
    if is_convolution(hot[0]):
        found += _convolution_ways(s, hot)
    if s.device == "cpu":
        found += _row_ways(s, hot, spent)
    if is_convolution(hot[0]) and not s.channels_last:
        with contextlib.suppress(MissingSignalError):
            faster = nhwc_gain(s, spent)
            if isinstance(faster, Gain):
                found.append(_Way("keep everything in channels_last", faster.gain_ms, 0.6, "channels-last"))
    shorter = _bf16_ms(s, spent) if is_matrix_work(hot[0]) and s.precision == "fp32" else None
    if shorter is not None:
        found.append(_Way("compute it in bf16", shorter, 0.6, "bf16"))
    if is_convolution(hot[0]):
        found.append(_smaller(hot, spent))
    found.append(_Way("do half as many operations (channels, layers, a cheaper kind)", (0.3 * spent, 0.5 * spent), 0.2))
    if s.device == "cpu":
        found.append(_Way("run it on a device with ten times the rate", (0.7 * spent, 0.9 * spent), 0.2))
    return found


def _row_ways(s: Signals, hot: list[OperatorRow], spent: float) -> list[_Way]:
    """On a CPU: rows of a tensor that are taken by an index, and regions of a map."""
    found: list[_Way] = []
    gathered = self_ms([r for r in hot if _gathers(r)], on_device=False)
    if gathered > 0:
        text = "take rows by index_select, whose gradients are added up faster than those of x[index]"
        gain = (_SELECTED[0] * gathered, min(_SELECTED[1] * gathered, spent))
        found.append(_Way(text, gain, 0.7, code="x.index_select(0, index)  # in the place of x[index]"))
    if _ROI_ALIGN in hot[0].name and not s.has("gathered-rois"):
        pooling = self_ms([r for r in s.operators or () if _ROI_ALIGN in r.name], on_device=False)
        text = "pool regions as sums of rows (embedding_bag over the pixels of maps in NHWC), on all cores"
        found.append(_Way(text, (_ROIS[0] * pooling, _ROIS[1] * pooling), 0.7, "gathered-rois"))
    return found


def _gathers(row: OperatorRow) -> bool:
    """The gradient of `x[index]` along the first axis: added to `[rows, ...]` from `[index, ...]`."""
    of = shapes_of(row)
    return row.name == "aten::_index_put_impl_" and row.region == "backward" and len(of) > 1 and of[0][1:] == of[-1][1:]


def _smaller(hot: list[OperatorRow], spent: float) -> _Way:
    """Of maps along one axis, which are known by kernels of one row as well, there is a length to cut."""
    sides = [found[1] for found in map(map_and_kernel, hot) if found]
    axes = max((len(kernel) - (kernel[0] == 1) * (len(kernel) == 2 and kernel[1] > 1) for kernel in sides), default=2)
    gain = spent * (1 - _SMALLER**axes)
    what = "sequences of three quarters of the length" if axes == 1 else "images of three quarters of the side"
    return _Way(f"train on {what}", (0.5 * gain, gain), 0.3)


def _bf16_ms(s: Signals, spent: float) -> tuple[float, float] | None:
    """By a trial of the passes or the probe's ratio, on a GPU without one by the rates; None where it is no gain."""
    ratio = s.shorter.own_ms / s.shorter.bf16_ms if s.shorter and s.shorter.bf16_ms > 0 else s.bf16_gain
    if ratio is not None:
        gain = spent * (1 - 1 / ratio)
        return (0.75 * gain, 1.3 * gain) if ratio >= LEAST_RATIO else None
    if s.device == "cpu" or s.bf16_rates is None or s.bf16_rates < LEAST_RATE:
        return None
    return in_bf16(spent, s.bf16_rates)


def _convolution_ways(s: Signals, hot: list[OperatorRow]) -> list[_Way]:
    on_device, found = s.device == "cuda", []
    wasted = sum(dead_taps_of(r) * self_ms([r], on_device) for r in hot)
    if wasted > 0 and not s.has("dead-taps"):
        text = "crop kernel taps that only meet padding"
        found.append(_Way(text, (0.4 * wasted, wasted), 0.7, "dead-taps"))
    sides = [(r, map_and_kernel(r)) for r in hot]
    flat = [(r, known_[0]) for r, known_ in sides if known_ and len(known_[0]) == 2]
    small = self_ms([r for r, size in flat if max(size) <= _SMALL_MAP], on_device)
    if small > 0 and not on_device and not s.has("products"):
        gain = (_PRODUCTS[0] * small, _PRODUCTS[1] * small)
        found.append(_Way("compute it as matrix products on small maps, where that is faster", gain, 0.5, "products"))
    return found
