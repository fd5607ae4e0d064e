"""Many small kernels: the host can't launch them fast enough, or each moves memory that one could move for all."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from laptime.advice.figures import ms
from laptime.advice.outcome import Abstain, MissingSignalError, Outcome, Proposal, known
from laptime.advice.remedy import remedy_of
from laptime.advice.rules.batch import batch_size
from laptime.advice.signals import Signals

_LEAST_IDLE = 0.15
_SHORT_US = 10.0
_MOSTLY = 0.5
_LEAST_ELEMENTWISE = 0.10
_FEW_CALLS = 20
LEAST_RATIO = 1.05
# By how much wider the range is, at both ends, where a probe's ratio is of other steps than the run's.
OTHER_STEPS = 0.1
# Of what a graph of the whole step brings, where the optimizer stays outside of it.
_COMPILED = (0.6, 0.9)


def launch_bound(s: Signals) -> Outcome:
    """The device idles between short kernels: launch a whole step at once."""
    if s.device != "cuda" or s.graphed or s.has("graph", "compile-graphed"):
        return None
    step, kernels = known(s.step_ms, "the step's time"), known(s.kernels, "the kernels of a trace")
    if (kernels.graphed or 0.0) > _MOSTLY:
        return None
    idle, median_us = kernels.unexplained_idle_ms, known(kernels.median_us, "the length of kernels")
    if idle < _LEAST_IDLE * step or median_us >= _SHORT_US:
        return None
    if s.wait_ms is None:
        return Abstain(
            "the trace marks no fetch of data, neither a DataLoader's nor a region, so the device may idle for that: "
            'put torch.profiler.record_function("data") around it'
        )
    best = max(kernels.busy_ms, step - idle)
    found = Proposal(
        "launch-bound",
        "The device waits for launches: record the whole step as a CUDA graph, or take a larger batch.",
        (
            f"the device idles {ms(idle)} of {ms(step)} ms a step with neither data nor reads to wait for",
            f"{kernels.calls:.0f} kernels a step, half of them under {median_us:.1f} us; busy {ms(kernels.busy_ms)} ms",
        ),
        (0.5 * (step - best), step - best),
        0.7,
        remedy="graph",
        code='torch.cuda.graph(...) around the whole step, or torch.compile(model, mode="reduce-overhead")',
        klass="exact",
    )
    refusal = "" if s.foreign else remedy_of(found.remedy, s).refusal
    return _without_graph(s, found, refusal) if refusal else found


def _without_graph(s: Signals, found: Proposal, refusal: str) -> Outcome:
    """Where no graph of the whole step can be had: one of forward and backward alone, else more samples a launch."""
    evidence, (low, high) = (*found.evidence, f"no graph of the whole step: {refusal}"), found.gain_ms
    other = remedy_of("compile-graphed", s).refusal
    if not other:
        return replace(
            found,
            what="The device waits for launches: compile the net and launch what comes of it as CUDA graphs.",
            evidence=evidence,
            gain_ms=(_COMPILED[0] * low, _COMPILED[1] * high),
            confidence=0.5,
            remedy="compile-graphed",
            klass="numeric",
        )
    with contextlib.suppress(MissingSignalError):
        larger = batch_size(s)
        if isinstance(larger, Proposal):
            what = "The device waits for launches: take more samples a step, for as many launches."
            return replace(larger, id=found.id, what=what, evidence=(*evidence, f"nor by the compiler: {other}"))
    return Abstain(f"the device waits for launches, but {refusal}, {other}, and no larger batch is known to help")


def compiling(s: Signals) -> Outcome:
    """torch.compile, by a probe's ratio; without one only on a GPU, in a wide range."""
    if s.compiled or s.has("compile", "compile-graphed"):
        return None
    step = known(s.step_ms, "the step's time")
    if s.compile_gain is not None:
        return _probed(s, step, s.compile_gain)
    if s.device == "cpu":
        return Abstain(
            "on a CPU the compiler can make a step several times slower, so only a probe of it says "
            "(laptime optimize with --preset full runs one)"
        )
    small = known(s.elementwise_ms, "the time of element-wise operators")
    calls = known(s.elementwise_calls, "the number of element-wise operators")
    if small < _LEAST_ELEMENTWISE * step or calls < _FEW_CALLS:
        return None
    return Proposal(
        "compile",
        "Many small element-wise operators each read and write memory: let the compiler fuse them.",
        (f"{calls:.0f} of them a step take {ms(small)} of {ms(step)} ms; no probe has measured what compiling brings",),
        (0.3 * small, 0.9 * small),
        0.4,
        remedy="compile",
        code="model = torch.compile(model)",
        klass="numeric",
    )


def _probed(s: Signals, step: float, ratio: float) -> Outcome:
    if ratio < LEAST_RATIO:
        return Abstain(f"a probe on this machine ran at {ratio:.2f}x with the compiler")
    both = known(s.forward_ms, "the forward pass") + known(s.backward_ms, "the backward pass")
    gain = both * (1 - 1 / ratio)
    cost = ""
    if s.compile_cost_s is not None:
        steps = s.compile_cost_s * 1e3 / gain
        cost = f"; compiling took {s.compile_cost_s:.0f} s, which {steps:,.0f} steps win back"
    wider = OTHER_STEPS if s.compile_apart else 0.0
    return Proposal(
        "compile",
        "Compile the training step's net.",
        (
            f"a probe of a few steps on this machine ran at {ratio:.2f}x{cost}",
            *other_steps(s.compile_apart),
            f"forward and backward, which are compiled, take {ms(both)} of {ms(step)} ms a step",
        ),
        ((0.7 - wider) * gain, (1.15 + wider) * gain),
        0.6,
        remedy="compile",
        code="model = torch.compile(model)",
        klass="numeric",
    )


def other_steps(apart: str) -> tuple[str, ...]:
    """The sentence that says how the probe's steps differ from the run's; none where they do not."""
    return (f"the probe's steps were others, {apart}, so the range is wider",) if apart else ()
