"""A larger batch: what a step takes whatever its size is shared by more samples."""

from __future__ import annotations

from laptime.advice.figures import percent
from laptime.advice.outcome import Abstain, Note, Outcome, Proposal, known
from laptime.advice.signals import Signals
from laptime.catalogue import LARGE_BATCHES

_LEAST_FIXED = 0.10
_FULL, _EMPTY = 0.90, 0.50
_FEWEST_STEPS = 4


def batch_size(s: Signals) -> Outcome:
    """`step = a + k b`: a from two sizes of the forward pass, and the optimizer, which does not see the batch at all.

    Backward is taken to have forward's share of fixed time. The gain is by sample: the step of the larger batch, cut to
    as many samples as a step has now.
    """
    if s.has("large-batch"):
        return None
    step, batch = known(s.step_ms, "the step's time"), known(s.whole_batch, "the batch of all ranks")
    both = known(s.forward_ms, "the forward pass") + known(s.backward_ms, "the backward pass")
    share = _fixed_share(s, known(s.batch_size, "the batch size"))
    updates = known(s.optimizer_ms, "the optimizer's time")
    fixed = updates + share * both
    if fixed < _LEAST_FIXED * step:
        return None
    size = _size(s, batch)
    if size <= batch:
        return Abstain("the data are too few for a larger batch")
    crowded = _crowded(s, size / batch)
    if crowded:
        return Abstain(crowded)
    saved = 1 - batch / size
    return Proposal(
        "batch-size",
        f"Much of a step does not depend on the batch: take {size} samples a step instead of {batch}.",
        (
            f"{fixed:.1f} of {step:.1f} ms a step are fixed: {updates:.1f} ms of optimizer, and {percent(share)} of "
            "forward and backward by a fit of the forward pass over batch sizes",
            f"the step is given for {batch} samples; quality needs a look, since the learning rate changes too",
        ),
        (saved * (updates + 0.5 * share * both), saved * fixed),
        0.5,
        remedy=f"large-batch:size={size}",
        code=f"DataLoader(..., batch_size={size}), and a learning rate scaled by the root of the ratio",
        klass="statistical",
    )


def _fixed_share(s: Signals, batch: int) -> float:
    """The share of a forward pass at this batch that does not depend on it, by the line through two sizes."""
    passes = sorted(known(s.passes, "a forward pass at two batch sizes"))
    (small, fast), (large, slow) = passes[0], passes[-1]
    if small == large:
        known(None, "a forward pass at two batch sizes")
    slope = max(0.0, (slow - fast) / (large - small))
    fixed = max(0.0, fast - slope * small)
    whole = fixed + slope * batch
    return fixed / whole if whole > 0 else 0.0


def _size(s: Signals, batch: int) -> int:
    """The size the catalogue takes on this device, or the largest power of two that leaves a few steps an epoch."""
    samples = batch * known(s.steps, "the steps of an epoch")
    size = LARGE_BATCHES[s.device]
    while size * _FEWEST_STEPS > samples and size > batch:
        size //= 2
    return size


def _crowded(s: Signals, times: float) -> str:
    """Why the larger batch would not fit; empty where it does."""
    peak, memory = known(s.peak_mib, "the peak of the memory"), known(s.memory_mib, "the device's memory")
    grows = peak if s.activations_mib is None else s.activations_mib
    need = peak + grows * (times - 1)
    if need <= _FULL * memory:
        return ""
    return f"it would need up to {need:,.0f} MiB of {memory:,.0f} MiB"


def memory(s: Signals) -> Outcome:
    """Nearly full, or half empty where batches could be larger."""
    peak, whole = known(s.peak_mib, "the peak of the memory"), known(s.memory_mib, "the device's memory")
    if peak > _FULL * whole:
        return Note(f"Memory is nearly full ({peak:,.0f} of {whole:,.0f} MiB): no larger batch fits.")
    if s.device == "cuda" and peak < _EMPTY * whole:
        return Note(f"The device has room: {peak:,.0f} of {whole:,.0f} MiB are taken, so a larger batch fits.")
    return None
