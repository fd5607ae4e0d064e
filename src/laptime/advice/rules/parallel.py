"""Several devices: what is sent, and who waits for whom."""

from __future__ import annotations

from statistics import median_low

from laptime.advice.figures import ms
from laptime.advice.outcome import Abstain, Note, Outcome, Proposal, known
from laptime.advice.signals import Signals

_LEAST_EXPOSED = 0.10
_LEAST_SKEW = 0.10
_SMALL_MIB = 1.0


def communication(s: Signals) -> Outcome:
    """The part of the exchange that no computation hides."""
    if known(s.ranks, "the number of ranks") < 2:
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.collectives, "the collectives of a trace")
    exposed = sum(r.exposed_ms for r in rows)
    if exposed < _LEAST_EXPOSED * step:
        return None
    tuned = s.has("flat-reduce") or (
        s.optimizations is not None and any(o.options.get("tuned") for o in s.optimizations)
    )
    return Proposal(
        "communication",
        "Ranks wait for gradients: overlap the exchange with backward, send less, or sum up over several batches.",
        (
            f"{ms(exposed)} of {ms(step)} ms a step are communication that nothing hides",
            *(f"{r.name}: {r.calls:.0f} calls, {ms(r.ms)} ms" for r in sorted(rows, key=lambda r: -r.exposed_ms)[:3]),
        ),
        (0.3 * exposed, exposed),
        0.5,
        remedy="" if tuned else "ddp:tuned=true",
        code="DistributedDataParallel(model, gradient_as_bucket_view=True, static_graph=True)",
        klass="exact",
    )


def small_messages(s: Signals) -> Outcome:
    """Many small collectives: each pays its latency."""
    if known(s.ranks, "the number of ranks") < 2:
        return None
    step, rows = known(s.step_ms, "the step's time"), known(s.collectives, "the collectives of a trace")
    sent = [r for r in rows if r.mib is not None and r.calls > 0]
    calls, mib, exposed = sum(r.calls for r in sent), sum(r.mib or 0.0 for r in sent), sum(r.exposed_ms for r in sent)
    if calls < 2 or mib / calls >= _SMALL_MIB or exposed < _LEAST_EXPOSED * step:
        return None
    return Proposal(
        "small-messages",
        "Ranks exchange many small messages: put gradients into larger buckets, or into one.",
        (f"{calls:.0f} collectives a step send {mib / calls:.2f} MiB each; {ms(exposed)} of {ms(step)} ms show",),
        (0.3 * exposed, 0.9 * exposed),
        0.5,
        remedy="" if s.has("flat-reduce") else "flat-reduce",
        code="DistributedDataParallel(model, bucket_cap_mb=25)",
        klass="exact",
    )


def stragglers(s: Signals) -> Outcome:
    """One rank takes longer than the others, who wait for it.

    From backward on each rank's clock holds its wait for the others; its own trace tells the two apart. Without all
    ranks' traces only who is late before backward can be told.
    """
    if known(s.ranks, "the number of ranks") < 2:
        return None
    step = known(s.step_ms, "the step's time")
    ranks = s.rank_own_ms or known(s.rank_compute_ms, "the step of each rank")
    # Of two the faster one: it is what the slower would be.
    middle = median_low(ranks)
    late = max(ranks) - middle
    if late < _LEAST_SKEW * step:
        return None if s.rank_own_ms else Abstain(_unseen(late))
    what = "what it does itself (less its waiting for others) takes" if s.rank_own_ms else "data, copy and forward take"
    return Proposal(
        "stragglers",
        f"Rank {ranks.index(max(ranks))} is late in each step and the others wait: look at its data, cores and device.",
        (f"{what} it {ms(max(ranks))} ms, the middle rank {ms(middle)} of {ms(step)} ms",),
        (0.5 * late, late),
        0.6,
        code="equal shares of equal work: the same number of samples, cores and loader workers by rank",
        klass="exact",
    )


def _unseen(late: float) -> str:
    return (
        f"up to backward (data, copy, forward) no rank is more than {ms(max(0.0, late))} ms late; one that is slow "
        "in backward, exchange or optimizer is not seen, since all wait for each other there and not every rank was "
        "profiled"
    )


def data_parallel(s: Signals) -> Outcome:
    """DataParallel copies the net in every step and gathers on one device."""
    if s.foreign and (s.devices or 0) > 1:
        return Note(
            f"{s.devices} devices work in this process, and the numbers are of the busiest alone. Where that is "
            "DataParallel, DistributedDataParallel (a process for each device) does without its copies of the net."
        )
    if s.foreign or not s.has("dp"):
        return None
    return Note(
        "DataParallel copies the net to all devices in each step, in one process: DistributedDataParallel does not "
        "(laptime optimize tries ddp-plain and ddp-tuned)."
    )
