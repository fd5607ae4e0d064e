"""Memory formats: what NHWC would take off a step."""

from __future__ import annotations

from dataclasses import dataclass

from laptime.advice.figures import ms
from laptime.advice.outcome import Abstain, Outcome, Proposal, known
from laptime.advice.rules.operators import is_convolution, reorders_memory, spent
from laptime.advice.signals import Signals

# A trial of single layers says nothing of the rest of the net, whose operators meet another format, too.
_TRIED = (0.5, 1.3)
# Below it two formats are alike, as far as a trial of each layer can tell.
_LEAST = 0.03


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
