"""Memory formats: what NHWC would take off a step."""

from __future__ import annotations

from dataclasses import dataclass

from laptime.advice.figures import ms
from laptime.advice.outcome import Abstain, Outcome, Proposal, known, lines_of
from laptime.advice.rules.operators import is_convolution, reorders_memory, spent
from laptime.advice.signals import Signals
from laptime.records.trace import MIXED, OperatorRow

# A trial of single layers says nothing of the rest of the net, whose operators meet another format, too.
_TRIED = (0.5, 1.3)
# Below it two formats are alike, as far as a trial of each layer can tell.
_LEAST = 0.03
# Measured of EfficientNet-B5 on a CPU: with a gradient that is spread, the step was shorter by 1.0 (bf16) and 1.4 times
# (fp32) what these operators had taken, since no map is written either (docs/log.md). On a GPU nobody has measured it.
_MIXED, _MIXED_ON_GPU = (0.7, 1.3), (0.3, 0.9)
_MEAN = "x.sum((2, 3), keepdim=True) / (H * W)  # for a global mean: its gradient is spread by strides, in no format"
# There autocast would have a sum in fp32.
_MEAN_ON_GPU = "F.avg_pool2d(x, x.shape[-2:])  # for a global mean: its gradient is in the format of x"


@dataclass(frozen=True)
class Gain:
    """Milliseconds less in a step, from low to high, with what they were reckoned from."""

    gain_ms: tuple[float, float]
    figures: str


def channels_last(s: Signals) -> Outcome:
    """Convolutions take another time in NHWC, and the reorders around them go where everything is NHWC from the start.

    By a trial of the convolutions in both formats; a GPU's reorders show in its trace, too.
    """
    if s.channels_last or s.has("channels-last"):
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.operators, "the operators of a trace")
    convolutions = spent(filter(is_convolution, rows), s.device == "cuda")
    if convolutions <= 0:
        return None
    found = nhwc_gain(s, convolutions)
    if not isinstance(found, Gain):
        return found
    return Proposal(
        "channels-last",
        "Convolutions are in NCHW: keep net and images in channels_last.",
        (f"{found.figures}; convolutions take {ms(convolutions)} of {ms(step)} ms a step",),
        found.gain_ms,
        0.6,
        remedy="channels-last",
        code="model.to(memory_format=torch.channels_last), and the images too",
        klass="exact",
    )


def nhwc_gain(s: Signals, convolutions: float) -> Gain | Abstain | None:
    """What NHWC takes off; None where nothing is lost to NCHW.

    Args:
        s: the signals.
        convolutions: milliseconds of a step in them.

    Raises:
        MissingSignalError: neither a trial nor reorders are known.
    """
    tried = s.layouts
    if tried is not None and tried.nchw_ms > 0:
        words = f"timed by themselves they take {ms(tried.nchw_ms)} ms in NCHW and {ms(tried.nhwc_ms)} ms in NHWC"
        share = 1 - tried.nhwc_ms / tried.nchw_ms
        if share < _LEAST:
            return Abstain(f"NHWC is no faster for these convolutions here: {words}")
        low, high = (part * share * convolutions for part in _TRIED)
        return Gain((low, min(high, convolutions)), words)
    layout = s.kernels.layout_ms if s.kernels is not None else None
    named = spent(filter(reorders_memory, s.operators or ()), s.device == "cuda")
    lost = known(layout if layout is not None else named or None, "a trial of both memory formats")
    if lost <= 0:
        return None
    most = lost + (0.15 * convolutions if s.device == "cuda" else 0.0)
    return Gain((0.8 * lost, most), f"reorders between NCHW and NHWC take {lost:.2f} ms")


def mixed_formats(s: Signals) -> Outcome:
    """Additions, products and activations whose maps come in NCHW on one side and in NHWC on the other."""
    step, mixed = known(s.step_ms, "the step's time"), known(s.mixed_ms, "the strides of a trace's inputs")
    if mixed < _LEAST * step:
        return None
    on_gpu = s.device == "cuda"
    rows = sorted((r for r in s.operators or () if r.window == MIXED), key=lambda r: -_own_ms(r, on_gpu))
    low, high = _MIXED_ON_GPU if on_gpu else _MIXED
    return Proposal(
        "mixed-formats",
        "Maps in NCHW meet maps in NHWC, which goes value by value: keep one format. A global average pool's gradient "
        "is in NCHW whatever it was given, and so is what .contiguous(), .view() and .reshape() bring.",
        tuple(
            f"{row.name} of {row.shapes}: {ms(_own_ms(row, on_gpu))} of {ms(step)} ms a step, {row.calls:.0f} calls"
            for row in rows[:3]
        ),
        (low * mixed, high * mixed),
        0.5 if on_gpu else 0.7,
        code=_MEAN_ON_GPU if on_gpu else _MEAN,
        klass="exact",
        lines=lines_of(*(row.source for row in rows)),
    )


def _own_ms(row: OperatorRow, on_gpu: bool) -> float:
    return row.device_self_ms if on_gpu else row.self_ms
