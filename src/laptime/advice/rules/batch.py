"""A larger batch: what a step takes whatever its size is shared by more samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Abstain, Note, Outcome, Proposal, known
from laptime.advice.signals import Signals
from laptime.catalogue import larger_batch
from laptime.records.breakdown import PassRecord

_LEAST_FIXED = 0.10
_FULL, _EMPTY = 0.90, 0.50
# Around what training's own passes say: a run at the other batch meets other caches and other minutes.
_TRIED = (0.9, 1.1)
# So much longer than in the counted steps, passes at the run's batch met a slow moment. That weighs more on small ones
# than on large ones, so what they call fixed is the most that it can be.
_SLOWED = 1.25
# Without those a share f that passes in evaluation call fixed stands for f to 1 - (1 - f)^2: backward has more of it,
# since it writes the gradient of each weight once, however many samples. Seven remedies on an Intel Xeon, a Zen 3 and a
# Zen 4 brought 0.75 to 2.9 times f, 1.4 times in the median (docs/log.md, 21 to 24 November 2026).
_EVALUATED = (1, 2)


# Batch and milliseconds of passes at a small and at a large size.
_Moment = tuple[tuple[int, float], tuple[int, float]]


@dataclass(frozen=True)
class _Fixed:
    """What a step takes whatever its batch.

    Attributes:
        middle_ms: what is known of it.
        ends_ms: from low to high.
        words: what forward and backward's part rests on.
    """

    middle_ms: float
    ends_ms: tuple[float, float]
    words: str


def batch_size(s: Signals) -> Outcome:
    """`step = a + k b`: a from two sizes of forward and backward, and the optimizer, which does not see the batch.

    The gain is by sample: the step of the larger batch, cut to as many samples as a step has now. Where the passes were
    timed at the larger batch itself, nothing of it is a fit.
    """
    if s.has("large-batch"):
        return None
    if s.parts is not None and s.parts > 1:
        return Abstain(f"a step goes through the net in {s.parts} parts, and a larger batch has more of the same size")
    step, batch = known(s.step_ms, "the step's time"), known(s.whole_batch, "the batch of all ranks")
    both = known(s.forward_ms, "the forward pass") + known(s.backward_ms, "the backward pass")
    updates = known(s.optimizer_ms, "the optimizer's time")
    a_rank, moments = known(s.batch_size, "the batch size"), _moments(s.trained)
    fixed = _tried(moments, a_rank, both, updates) if moments else _evaluated(s, a_rank, both, updates)
    if fixed.middle_ms < _LEAST_FIXED * step:
        return None
    size = larger_batch(s.device, batch, batch * known(s.steps, "the steps of an epoch"))
    if size <= batch:
        return Abstain("the data are too few for a larger batch")
    crowded = _crowded(s, size / batch)
    if crowded:
        return Abstain(crowded)
    saved = 1 - batch / size
    low, high = (saved * end for end in fixed.ends_ms)
    return Proposal(
        "batch-size",
        f"Much of a step does not depend on the batch: take {size} samples a step instead of {batch}.",
        (
            f"{ms(fixed.middle_ms)} of {ms(step)} ms a step are fixed: {ms(updates)} ms of optimizer and {fixed.words}",
            f"the step is given for {batch} samples; quality needs a look, since the learning rate changes too",
        ),
        (low, min(high, step)),
        0.5,
        remedy=f"large-batch:size={size}",
        code=f"DataLoader(..., batch_size={size}), and a learning rate scaled by the root of the ratio",
        klass="statistical",
    )


def _tried(moments: Sequence[_Moment], batch: int, both: float, updates: float) -> _Fixed:
    """By training's own passes at two sizes; a share below zero says that more samples at once are slower each."""
    usual = [m for m in moments if not _slow(m[0], batch, both)] or moments
    shares = [_share(m, batch) for m in usual]
    share = fmean(shares)
    (size, small_ms), (larger, large_ms) = (
        (n, fmean(m[end][1] for m in usual if m[end][0] == n)) for end, (n, _) in enumerate(usual[0])
    )
    low, high = (end * (updates + of * both) for end, of in zip(_TRIED, (min(shares), max(shares)), strict=True))
    words = (
        f"{ms(share * both)} ms of forward and backward, which by themselves take {ms(small_ms)} ms for {size} "
        f"samples and {ms(large_ms)} ms for {larger}"
    )
    if _slow(usual[0][0], batch, both):
        least = min(_share(((batch, both), m[1]), batch) for m in usual)
        low = min(low, updates + max(0.0, least) * both)
        words += f", but {ms(both)} ms in a step (a slow moment, so the range is wide)"
    return _Fixed((low + high) / 2, (low, high), words)


def _moments(trained: Sequence[PassRecord] | None) -> list[_Moment]:
    """A trial by moment, each with a small and a large size; one size, as of a run on few samples, draws no line."""
    sizes = [(p.batch_size, p.pass_ms) for p in trained or ()]
    pairs = [(min(pair), max(pair)) for pair in zip(sizes[::2], sizes[1::2], strict=False)]
    return [(small, large) for small, large in pairs if small[0] < large[0]]


def _slow(small: tuple[int, float], batch: int, both: float) -> bool:
    return small[0] == batch and small[1] > _SLOWED * both


def _evaluated(s: Signals, batch: int, both: float, updates: float) -> _Fixed:
    """By passes in evaluation, of which backward knows nothing."""
    passes = sorted(known(s.passes, "a forward pass at two batch sizes"))
    if passes[0][0] == passes[-1][0]:
        known(None, "a forward pass at two batch sizes")
    share = max(0.0, _share((passes[0], passes[-1]), batch))
    low, high = (1 - (1 - share) ** power for power in _EVALUATED)
    middle = (low + high) / 2
    words = f"{percent(middle)} of forward and backward, by a fit of the forward pass over batch sizes"
    return _Fixed(updates + middle * both, (updates + low * both, updates + high * both), words)


def _share(passes: Sequence[tuple[int, float]], batch: int) -> float:
    """The share of a pass at this batch that does not depend on it, by the line through two sizes; 1 at most."""
    (small, fast), (large, slow) = passes
    slope = max(0.0, (slow - fast) / (large - small))
    fixed = fast - slope * small
    whole = fixed + slope * batch
    return fixed / whole if whole > 0 else 0.0


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
