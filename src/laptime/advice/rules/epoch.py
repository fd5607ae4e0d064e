"""Beside the steps: evaluation, the start of workers, the first batch, Python's garbage collector."""

from __future__ import annotations

import math

from laptime.advice.figures import ms
from laptime.advice.outcome import Outcome, Proposal, known
from laptime.advice.signals import Signals

_LEAST_OVERHEAD = 0.05
_LEAST_START = 0.03
_LEAST_GC = 0.01
# An evaluation is a forward pass for each sample, and fetching: what takes longer does something more.
_SLOW_EVALUATION = 1.5
_NO_WAIT = 0.01


def epoch_overhead(s: Signals) -> Outcome:
    """Evaluation and checkpoints every k-th epoch: their time x (1 - 1/k), for k from 2 to 5."""
    evaluates, saves = known(s.evaluate_s, "the evaluation's time"), known(s.checkpoint_s, "the checkpoints' time")
    beside = evaluates + saves
    whole_ms, by_step = _whole(s)
    whole_ms += saves * by_step
    if beside * by_step < _LEAST_OVERHEAD * whole_ms:
        return None
    spent = beside * by_step
    return Proposal(
        "epoch-overhead",
        f"{_what(evaluates, saves)} much of an epoch: every second to fifth epoch may be enough.",
        (
            f"beside {known(s.epoch_s, 'an epoch'):.2f} s of training, evaluation takes {evaluates:.2f} s"
            + (f" and checkpoints {saves:.2f} s" if saves else ""),
            "the step is given with it; laptime's own epochs are timed without",
        ),
        (spent / 2, spent * 4 / 5),
        0.9,
        code=f"if epoch % k == k - 1: {'; '.join(_calls(evaluates, saves))}",
        klass="exact",
        base_ms=whole_ms,
    )


def _what(evaluates: float, saves: float) -> str:
    names = {"evaluate()": "evaluation", "save()": "writing checkpoints"}
    told = " and ".join(names[c] for c in _calls(evaluates, saves))
    return f"{told[0].upper()}{told[1:]} {'take' if ' and ' in told else 'takes'}"


def _calls(evaluates: float, saves: float) -> list[str]:
    """What of an epoch's end is worth naming: a tenth of it and more."""
    least = 0.1 * (evaluates + saves)
    return [call for call, spent in (("evaluate()", evaluates), ("save()", saves)) if spent >= least]


def evaluation(s: Signals) -> Outcome:
    """Evaluation that takes much longer than its forward passes: gradients that are kept, reads, its loader."""
    spent = known(s.evaluate_s, "the evaluation's time")
    passes = known(s.passes, "a forward pass alone")
    batch, pass_ms = max(passes)
    needed = known(s.test_samples, "the number of test samples") / batch * pass_ms / 1e3
    whole_ms, by_step = _whole(s)
    if spent < _SLOW_EVALUATION * needed or (spent - needed) * by_step < _LEAST_START * whole_ms:
        return None
    lost = (spent - needed) * by_step
    return Proposal(
        "evaluation",
        "Evaluation takes longer than its forward passes: check for gradients that are kept, reads in each batch, a "
        "small batch and its loader.",
        (f"it takes {spent:.2f} s; the forward passes alone would take {needed:.2f} s in batches of {batch}",),
        (0.3 * lost, lost),
        0.5,
        code="with torch.inference_mode(): ...  # large batches, sums kept as tensors",
        klass="exact",
        base_ms=whole_ms,
    )


def worker_start(s: Signals) -> Outcome:
    """Starting loader workers takes a part of each epoch: keep them, or take fewer where nothing waits.

    Those of laptime's own loader live on, and what is recorded there is handing over the epoch's order.
    """
    if known(s.workers, "the number of loader workers") < 1:
        return None
    if not s.foreign and known(s.loader, "the kind of loader") == "items":
        return None
    start, epoch = known(s.worker_start_s, "the start of workers"), known(s.epoch_s, "an epoch")
    if start < _LEAST_START * epoch:
        return None
    step, by_step = known(s.step_ms, "the step's time"), 1e3 / known(s.steps, "the steps of an epoch")
    enough = _enough(s, step)
    fewer = f", and {enough} instead of {s.workers} would do" if enough else ""
    return Proposal(
        "worker-start",
        f"Each epoch starts its {s.workers} workers anew: keep them{fewer}.",
        (
            f"starting them takes {start:.2f} of {epoch:.2f} s an epoch",
            *([_keeping_up(s, step)] if enough else []),
        ),
        (0.8 * start * by_step, start * by_step),
        0.8,
        code=f"DataLoader(..., {f'num_workers={enough}, ' if enough else ''}persistent_workers=True)",
        klass="exact",
        base_ms=epoch * by_step,
    )


def _enough(s: Signals, step: float) -> int | None:
    """Workers that keep up with the steps, where nothing waits and they are fewer than there are; None where not known.

    One worker alone fetches the first batch, after all have been started; n of them hand one over n times as often.
    """
    if s.wait_ms is None or s.wait_ms >= _NO_WAIT * step or s.first_batch_s is None:
        return None
    enough = max(1, math.ceil(_fetch_ms(s) / step))
    return enough if enough < (s.workers or 0) else None


def _fetch_ms(s: Signals) -> float:
    return 1e3 * max(0.0, (s.first_batch_s or 0.0) - (s.worker_start_s or 0.0))


def _keeping_up(s: Signals, step: float) -> str:
    fetch = f"the first batch took one worker {_fetch_ms(s):.0f} ms"
    return f"the steps wait for no data; {fetch}, and a step takes {step:.0f} ms"


def first_batch(s: Signals) -> Outcome:
    """Workers' first batch is waited for in each epoch: ask for it before the evaluation.

    Without workers it is fetched like any other, so beginning earlier hides nothing.
    """
    if known(s.workers, "the number of loader workers") < 1:
        return None
    first, epoch = known(s.first_batch_s, "the wait for the first batch"), known(s.epoch_s, "an epoch")
    # A step that marks no copy has none in its first batch either.
    ordinary = known(s.wait_ms, "the exposed data wait") + (s.copy_ms or 0.0)
    own = first - known(s.worker_start_s, "the start of workers") - ordinary / 1e3
    if own < _LEAST_START * epoch:
        return None
    by_step = 1e3 / known(s.steps, "the steps of an epoch")
    return Proposal(
        "first-batch",
        "Each epoch waits for its first batch: begin to fetch it before the evaluation of the epoch before.",
        (
            f"the first batch comes after {first:.2f} of {epoch:.2f} s, {own:.2f} s of it beyond the workers' start "
            "and an ordinary fetch",
        ),
        (0.7 * own * by_step, own * by_step),
        0.7,
        code="batches = iter(loader)  # before evaluate()",
        klass="exact",
        base_ms=epoch * by_step,
    )


def garbage_collection(s: Signals) -> Outcome:
    """Python's collector walks all objects in the middle of steps."""
    step, spent = known(s.step_ms, "the step's time"), known(s.gc_ms, "the garbage collector's time")
    if s.device == "cuda" and spent >= _LEAST_GC * step:
        idle = known(s.kernels, "the kernels of a trace").idle_ms
        spent = min(spent, idle)  # the device's work hides the rest
    if spent < _LEAST_GC * step:
        return None
    return Proposal(
        "garbage-collection",
        "Python's garbage collector interrupts steps: freeze what stays, and collect between epochs.",
        (f"it takes {spent:.2f} of {ms(step)} ms a step",),
        (0.7 * spent, spent),
        0.8,
        code="gc.collect(); gc.freeze(); gc.disable()  # before the loop; gc.collect() after each epoch",
        klass="exact",
    )


def _whole(s: Signals) -> tuple[float, float]:
    """The whole epoch in milliseconds by step, and milliseconds by step of one second an epoch."""
    by_step = 1e3 / known(s.steps, "the steps of an epoch")
    whole = known(s.epoch_s, "an epoch") + known(s.evaluate_s, "the evaluation's time")
    return whole * by_step, by_step
