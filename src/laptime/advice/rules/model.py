"""The net itself: precision, kernels larger than their maps, biases that a norm takes away."""

from __future__ import annotations

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Abstain, Note, Outcome, Proposal, known, lines_of
from laptime.advice.rules.launches import LEAST_RATIO, OTHER_STEPS, other_steps
from laptime.advice.rules.operators import (
    LEAST_RATE,
    dead_parameters,
    dead_taps_of,
    in_bf16,
    is_convolution,
    is_matrix_work,
    spent,
)
from laptime.advice.signals import Signals
from laptime.records.breakdown import PrecisionRecord

_FEW_PARAMETERS = 0.05
# What of convolutions and products should go with fp16 where nobody has timed it: matrix units run it at several times
# the rate of fp32, casts and small shapes eat much of that.
_IN_FP16 = (0.2, 0.7)
# Ampere, the first generation with units for bf16.
_HAS_BF16 = 8
# bf16 over fp32 on a GPU that nobody measured: over TF32, which torch allows convolutions by default, and over fp32
# proper, to which large products alone gain more than this.
_RATES = (2.0, 4.0)
# A trial of the passes and trainings in both formats came out this far apart, of the passes' time (docs/log.md); below
# the least the two formats are alike.
_TRIED = 0.06
_LEAST_SHARE = 0.03
_LEAST_DOUBLE = 0.05
_IN_FP32 = "Forward and backward run in fp32: let autocast run convolutions and matrix products in bf16."
# What of convolutions and products in fp64 went in fp32: 0.41 (GRU) to 0.85 (a CNN) on a CPU (docs/log.md).
_SINGLE = (0.4, 0.85)
_ONLY_A_PROBE = "on a CPU only a probe says what bf16 brings to a step (laptime optimize runs one)"


def precision(s: Signals) -> Outcome:
    """bf16, by a trial or by a probe's ratio on this machine; a CPU without fast bf16 is several times slower with it.

    GPUs before compute capability 8 have matrix units for fp16 alone.
    """
    double = _doubled(s)
    if double is not None:
        return double
    if s.foreign and s.precision is None:
        return Abstain("the trace does not say which precision it ran in: record it with record_shapes=True")
    if known(s.precision, "the precision") != "fp32":
        return None
    step = known(s.step_ms, "the step's time")
    if s.shorter is not None and s.shorter.own_ms > 0:
        return _tried(s, step, s.shorter)
    if s.bf16_gain is not None:
        return _probed(s, step, s.bf16_gain)
    return _untimed(s, step)


def _doubled(s: Signals) -> Proposal | None:
    """Convolutions and products in fp64: numpy's floats, or a scalar of numpy's that a tensor was made of."""
    rows = [row for row in s.operators or () if row.dtype == "fp64" and is_matrix_work(row)]
    work = spent(rows, s.device == "cuda")
    if s.step_ms is None or work < _LEAST_DOUBLE * s.step_ms:
        return None
    return Proposal(
        "precision/double",
        "Convolutions and matrix products run in fp64: make the data fp32, and the net.",
        (f"they take {ms(work)} of {ms(s.step_ms)} ms a step in fp64, of which 40 to 85 % went where it was measured",),
        (_SINGLE[0] * work, _SINGLE[1] * work),
        0.8,
        code="x = x.float(); net = net.float()  # numpy's numbers are float64",
        klass="numeric",
        lines=lines_of(*(row.source for row in rows)),
    )


def _untimed(s: Signals, step: float) -> Outcome:
    """Where neither a trial nor a probe has timed bf16."""
    if s.device == "cuda" and "bf16" in s.refusals and "fp16" not in s.refusals:
        return _in_fp16(s, step)
    if s.foreign and s.bf16_rates is None:
        return _unmeasured(s, step)
    rates = known(s.bf16_rates, "the rates of fp32 and bf16 on this machine")
    if rates < LEAST_RATE:
        return Abstain(f"bf16 runs at {rates:.2f} times the rate of fp32 on this machine")
    if s.device == "cpu":
        return Abstain(_ONLY_A_PROBE)
    work = spent(filter(is_matrix_work, known(s.operators, "the operators of a trace")), on_device=True)
    return Proposal(
        "precision",
        "Convolutions and matrix products run in fp32: let autocast run them in bf16.",
        (f"they take {ms(work)} of {ms(step)} ms a step; micro-benchmarks ran at {rates:.1f} times the rate in bf16",),
        in_bf16(work, rates),
        0.6,
        remedy="bf16",
        code=_autocast(s),
        klass="numeric",
    )


def _in_fp16(s: Signals, step: float) -> Outcome:
    work = spent(filter(is_matrix_work, known(s.operators, "the operators of a trace")), on_device=True)
    return Proposal(
        "precision",
        "Convolutions and matrix products run in fp32: let autocast run them in fp16, with the loss scaled.",
        (
            f"they take {ms(work)} of {ms(step)} ms a step; nothing has timed fp16 on this machine",
            f"not bf16: {s.refusals['bf16']}",
        ),
        (_IN_FP16[0] * work, _IN_FP16[1] * work),
        0.35,
        remedy="fp16",
        code='scaler = torch.amp.GradScaler("cuda"); with torch.autocast("cuda", dtype=torch.float16): ...',
        klass="numeric",
    )


def _unmeasured(s: Signals, step: float) -> Outcome:
    """On somebody's machine, of which a trace tells no more than the GPU's generation: a wide range."""
    if s.device == "cpu":
        return Abstain(_ONLY_A_PROBE)
    major = known(s.compute_major, "the GPU's compute capability")
    if major < _HAS_BF16:
        return Abstain(f"a GPU of compute capability {major} has no units for bf16")
    rows = [r for r in known(s.operators, "the operators of a trace") if is_matrix_work(r) and r.dtype in ("", "fp32")]
    work = spent(rows, on_device=True)
    if s.kernels is not None:
        work = min(work, s.kernels.busy_ms)  # those of two streams at once add up to more
    return Proposal(
        "precision",
        "Convolutions and matrix products run in fp32: let autocast run them in bf16.",
        (
            f"they take {ms(work)} of {ms(step)} ms a step",
            "the rates of this GPU were not measured: bf16's is taken for 2 (over TF32) to 4 times that of fp32",
        ),
        (in_bf16(work, _RATES[0])[0], in_bf16(work, _RATES[1])[1]),
        0.3,
        remedy="bf16",
        code=_autocast(s),
        klass="numeric",
    )


def _autocast(s: Signals) -> str:
    return f'with torch.autocast("{s.device}", dtype=torch.bfloat16): ...'


def _tried(s: Signals, step: float, trial: PrecisionRecord) -> Outcome:
    words = f"timed by themselves they take {ms(trial.own_ms)} ms in fp32 and {ms(trial.bf16_ms)} ms in bf16"
    share = 1 - trial.bf16_ms / trial.own_ms
    if share < _LEAST_SHARE:
        return Abstain(f"bf16 is no faster for this net and batch here: forward and backward, {words}")
    both = known(s.forward_ms, "the forward pass") + known(s.backward_ms, "the backward pass")
    return Proposal(
        "precision",
        _IN_FP32,
        (f"forward and backward take {ms(both)} of {ms(step)} ms a step", words),
        (max(0.0, share - _TRIED) * both, min(share + _TRIED, 1.0) * both),
        0.8,
        remedy="bf16",
        code=_autocast(s),
        klass="numeric",
    )


def _probed(s: Signals, step: float, ratio: float) -> Outcome:
    """Amdahl: the probe's ratio is of whole steps, so that of forward and backward alone is a little higher."""
    if ratio < LEAST_RATIO:
        return Abstain(f"a probe on this machine ran at {ratio:.2f}x in bf16")
    both = known(s.forward_ms, "the forward pass") + known(s.backward_ms, "the backward pass")
    gain = both * (1 - 1 / ratio)
    wider = OTHER_STEPS if s.bf16_apart else 0.0
    return Proposal(
        "precision",
        _IN_FP32,
        (
            f"a probe on this machine ran whole steps at {ratio:.2f}x in bf16",
            *other_steps(s.bf16_apart),
            f"forward and backward take {ms(both)} of {ms(step)} ms a step",
        ),
        ((0.75 - wider) * gain, (1.2 + wider) * gain),
        0.7,
        remedy="bf16",
        code=_autocast(s),
        klass="numeric",
    )


def dead_taps(s: Signals) -> Outcome:
    """Kernels larger than their feature maps: taps that only ever meet padding cost time and change nothing.

    Their share of the optimizer goes, and of the convolutions on such maps what their dead taps take.
    """
    if s.has("dead-taps"):
        return None
    step = known(s.step_ms, "the step's time")
    operators = known(s.operators, "the operators of a trace")
    rows = [(r, dead_taps_of(r)) for r in operators if is_convolution(r)]
    counted = s.dead_share if s.dead_share is not None else dead_parameters(operators)
    dead = known(counted, "the shapes of convolutions")
    wasted = sum(share * (r.device_self_ms if s.device == "cuda" else r.self_ms) for r, share in rows)
    if dead < _FEW_PARAMETERS and wasted <= 0:
        return None
    updates = dead * known(s.optimizer_ms, "the optimizer's time") if dead else 0.0
    return Proposal(
        "dead-taps",
        "Kernels are larger than their feature maps: crop the taps that only ever meet padding.",
        (
            *([f"{percent(dead)} of the parameters are such taps, {ms(updates)} ms of the optimizer"] if dead else []),
            *([f"{ms(wasted)} of {ms(step)} ms a step go to convolving padding with them"] if wasted else []),
        ),
        # On three machines 0.9 to 1.2 times that went (docs/log.md, 21 to 24 November 2026): fewer gradients, too.
        (0.85 * (updates + wasted), min(1.2 * (updates + wasted), step)),
        0.8,
        remedy="dead-taps",
        code="nn.Conv2d(..., kernel_size=1, padding=0) where the map is one pixel, with the kernels' middle as weight",
        klass="exact",
    )


def bias_before_norm(s: Signals) -> Outcome:
    """A convolution's bias that the following BatchNorm takes away again: cheap, but for nothing."""
    if not known(s.biased_before_norm, "the biases before norms"):
        return None
    return Note(
        f"{s.biased_before_norm} convolutions have a bias that BatchNorm takes away again: bias=False is "
        "the same net with less to update."
    )
