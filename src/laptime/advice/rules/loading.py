"""Waiting for data: worker processes, and data that needs no fetching."""

from __future__ import annotations

import math
from collections.abc import Callable

from laptime.advice.figures import ms, percent
from laptime.advice.outcome import Abstain, Outcome, Proposal, known
from laptime.advice.remedy import remedy_of
from laptime.advice.rules.operators import spent
from laptime.advice.signals import Signals

LEAST_WAIT = 0.05
# Below it a fetch waits (for a disk, a network, a lock) more than it computes.
IO_BOUND = 0.3
_MOST_WORKERS = 16
# What training loses where a worker's CPU time finds no free core, as a multiple of that time: barriers of the
# training's threads wait for the one that lost its core. Recorded: 17 ms of fetching moved to a worker on a full
# machine made a step of 57 ms one of 65, so it cost 25.
_CONTENTION = 1.5
# A worker hands batches over through shared memory; recorded at 1.3 ms in steps of 42 ms.
_HANDOVER = 0.03
# What is left of a fetch, item by item, when whole batches come out of memory; recorded at 0.10 to 0.20.
_RESIDENT_LEFT = (0.08, 0.22)
# Of what files take, by a few of them that were read beside nothing else; in steps they brought 1.3 times that
# (docs/log.md, 26 November 2026).
_DECODED = (0.75, 1.3)
_LARGEST_SHARE = 0.25
# What of a wait goes where whole batches are transformed at once and nothing is decoded twice: anything, as long as
# nobody has timed the transform.
_TRANSFORMED = (0.2, 0.9)
# Steps whose waits span more of a step than this, or whose mean wait is so far from the middle one, are told of.
_UNEVEN = 0.1


def workers(s: Signals) -> Outcome:
    """Loader processes, where the wait can be hidden.

    The fetch takes the wait W, of which the share f is CPU time; training computes for C = S - W on u of p cores. A
    worker hides the waiting part (1 - f) W whole. The CPU part f W is hidden as far as free cores can compute it while
    training does, (p - u) C; the rest takes training's own cores, and more than its own time (`_CONTENTION`).
    """
    step, wait = known(s.step_ms, "the step's time"), known(s.wait_ms, "the exposed data wait")
    if wait < LEAST_WAIT * step:
        return None
    if s.foreign and s.workers is None:
        return _of_trace(s, step, wait)
    if known(s.loader, "the kind of loader") == "resident":
        return None
    if known(s.workers, "the number of loader workers") > 0:
        return _more(s, step, wait)
    return _first(s, step, wait)


def _first(s: Signals, step: float, wait: float) -> Outcome:
    share = min(1.0, known(s.fetch_cpu_share, "the CPU time of the fetches"))
    compute, spare = step - wait, known(_spare_ms(s, step - wait, share * wait), "the CPU time of the process")
    if share >= IO_BOUND and spare <= 0:
        return Abstain(
            f"fetching computes ({percent(share)} of the wait is CPU time) and training uses all {_cores(s)}: "
            "workers would take its time"
        )
    cramped = max(0.0, share * wait - spare)
    if (1 - share) * wait + share * wait - cramped <= _CONTENTION * cramped:
        return Abstain("the free cores can compute too little of the fetch: workers would take the training's time")
    count = max(1, min(_MOST_WORKERS, math.ceil(wait / compute))) if compute > 0 else _MOST_WORKERS
    best = max(compute, wait / count)
    worst = min(best + _CONTENTION * cramped + _HANDOVER * step, step)
    kind = "waits" if share < IO_BOUND else "computes, and cores are free"
    return Proposal(
        "workers",
        f"The training waits for data, and fetching {kind}: fetch in {_processes(count)} beside it.",
        (
            *_waits(s, step, wait, ", without loader workers"),
            f"{percent(share)} of the fetch is CPU time"
            + (f"; the cores have {ms(spare)} ms a step free" if spare else ""),
            *(
                [f"{ms(cramped)} ms of CPU time find no free core; they are in the range's upper end"]
                if cramped >= 0.05
                else []
            ),
        ),
        (step - worst, step - best),
        0.8 if share < IO_BOUND else 0.6,
        remedy=f"workers:count={count}",
        code=f"DataLoader(..., num_workers={count}, persistent_workers=True)",
        klass="exact",
    )


def _spare_ms(s: Signals, compute: float, fetch_cpu: float) -> float | None:
    """Core-milliseconds free while a step computes: (p - u) C, p a rank's share, u from the process's CPU time."""
    if s.cores is None or s.ranks is None or s.process_cpu_ms is None:
        return None
    return max(0.0, s.cores / s.ranks * compute - max(0.0, s.process_cpu_ms - fetch_cpu))


def _more(s: Signals, step: float, wait: float) -> Outcome:
    """With n workers already, each takes n steps for a batch, and all of them compute for F in a step.

    No step is shorter than what training takes beside the wait, nor than what training and fetching together compute,
    on all cores. Workers that mostly wait need no core of their own; those that compute are given free cores alone.
    Where nobody knows what they compute, each is taken to fill a core.
    """
    count, cores = s.workers or 0, known(s.cores, "the cores") / known(s.ranks, "the number of ranks")
    trains = known(s.process_cpu_ms, "the CPU time of the process")
    fetches = count * step if s.workers_cpu_ms is None else s.workers_cpu_ms
    least = max(step - wait, (trains + fetches) / cores)
    needed = math.ceil(min(_MOST_WORKERS, count * step / least)) if least > 0 else _MOST_WORKERS
    free = cores - (trains + fetches) / step
    more = needed if fetches < IO_BOUND * count * step else min(needed, count + int(free + 0.25))
    if more <= count:
        return Abstain(_full(s, count, cores, (trains + fetches) / step))
    best = max(least, step * count / more)
    kind = "which mostly wait themselves" if fetches < IO_BOUND * count * step else "and cores are free"
    return Proposal(
        "workers",
        f"The training waits for its {count} loader workers, {kind}: take {more}.",
        (
            *_waits(s, step, wait),
            f"training uses {trains / step:.1f} of {cores:g} cores, "
            + (
                f"and each of {_processes(count)} is taken to fill one, since their CPU time was not recorded"
                if s.workers_cpu_ms is None
                else f"the workers {fetches / step:.1f}"
            ),
        ),
        (0.5 * (step - best), step - best),
        0.5,
        remedy=f"workers:count={more}",
        code=f"DataLoader(..., num_workers={more}, persistent_workers=True)",
        klass="exact",
    )


def _full(s: Signals, count: int, cores: float, busy: float) -> str:
    if s.workers_cpu_ms is not None:
        return f"{count} workers and the training use {busy:.1f} of {cores:g} cores already"
    return (
        f"{count} workers and the training may use all {cores:g} cores already: the workers' CPU time is not known "
        "(it is recorded where they live longer than an epoch)"
    )


def _of_trace(s: Signals, step: float, wait: float) -> Outcome:
    if s.device == "cpu":
        return Abstain(
            "a trace does not say whether fetching waits or computes, and on a CPU that decides: record the run with "
            "laptime, or time it once with num_workers=1"
        )
    return Proposal(
        "workers",
        "The device waits for data: fetch in more worker processes, and keep them.",
        _waits(s, step, wait),
        (0.4 * wait, wait),
        0.5,
        code="DataLoader(..., num_workers=<free cores>, persistent_workers=True, prefetch_factor=4)",
        klass="exact",
    )


def resident_data(s: Signals) -> Outcome:
    """All images in memory as one tensor: the wait goes, less what whole batches still take."""
    step, wait = known(s.step_ms, "the step's time"), known(s.wait_ms, "the exposed data wait")
    if wait < LEAST_WAIT * step:
        return None
    if s.foreign and s.train_mib is None:
        return Abstain("a trace does not say how large the data are")
    if known(s.loader, "the kind of loader") != "items":
        return None
    size, memory = known(s.train_mib, "the size of the data"), known(s.memory_mib, "the device's memory")
    if size > _LARGEST_SHARE * memory:
        return Abstain(f"the training images take {size:,.0f} MiB of {memory:,.0f} MiB: too much to keep there")
    left = tuple(part * wait for part in _RESIDENT_LEFT)
    return Proposal(
        "resident-data",
        "The training waits for single items: keep all images in memory and take whole batches out of them.",
        (
            *_waits(s, step, wait),
            f"the images take {size:,.0f} MiB, {_place(s)} has {memory:,.0f} MiB",
            f"indexing and normalizing whole batches should take {ms(left[0])} to {ms(left[1])} ms of them",
        ),
        (wait - left[1], wait - left[0]),
        0.85,
        remedy="resident",
        code="images = torch.stack(all_items).to(device)  # once; then images[order[start:stop]] in each step",
        klass="exact",
    )


def decoded(s: Signals) -> Outcome:
    """A folder's images kept decoded, where transforms at random have each item made anew: the share of decoding."""
    step, wait = known(s.step_ms, "the step's time"), known(s.wait_ms, "the exposed data wait")
    share = s.decoding_share
    if share is None or wait < LEAST_WAIT * step or s.loader != "items" or not _closed(resident_data, s):
        return None
    # Workers that are waited for have to make less of each item, so that the wait may go as a whole.
    most = wait if s.workers else min(1.0, _DECODED[1] * share) * wait
    return Proposal(
        "decoded",
        "The training waits for images that are decoded anew in each epoch: keep them decoded.",
        (*_waits(s, step, wait), f"reading and decoding its file takes {percent(share)} of the time of an item"),
        (_DECODED[0] * share * wait, most),
        0.7,
        remedy="decoded",
        code="folder.loader = functools.cache(folder.loader)  # in the main process, before workers are forked",
        klass="exact",
    )


def batch_transform(s: Signals) -> Outcome:
    """Items transformed whole batches at once, where a loader computes and neither memory nor cores can help it."""
    step, wait = known(s.step_ms, "the step's time"), known(s.wait_ms, "the exposed data wait")
    if wait < LEAST_WAIT * step:
        return None
    if known(s.loader, "the kind of loader") != "items":
        return None
    closed = [_closed(rule, s) for rule in (resident_data, workers)]
    share = _computing(s, step)
    if not all(closed) or share < IO_BOUND or isinstance(decoded(s), Proposal):
        return None
    transform = _transform_ms(s)
    timed = transform > 0
    low, high = (part * wait for part in _TRANSFORMED)
    return Proposal(
        "batch-transform",
        "The training waits for items that are computed one by one: transform whole batches at once, on the device "
        "where there is one; decode once and keep the arrays.",
        (
            *_waits(s, step, wait),
            f"{percent(share)} of the fetch is CPU time"
            + (f", {ms(transform)} ms a step of it in operations on single items" if timed else ""),
            f"no images in memory: {closed[0]}",
            f"no more workers: {closed[1]}",
        ),
        (max(low, (1 - _RESIDENT_LEFT[1]) * min(transform, wait)), high),
        0.5 if timed else 0.35,
        code="images = transform(torch.from_numpy(arrays[chosen]).to(device))  # arrays: np.memmap, decoded once",
        klass="exact",
    )


def _closed(rule: Callable[[Signals], Outcome], s: Signals) -> str:
    """Why a simpler rule can't help; empty where it proposes something."""
    outcome = rule(s)
    if isinstance(outcome, Abstain):
        return outcome.reason
    return remedy_of(outcome.remedy, s).refusal if isinstance(outcome, Proposal) else ""


def _computing(s: Signals, step: float) -> float:
    """The share of the fetches' time that is CPU time; workers that are waited for fetch all the time."""
    count = known(s.workers, "the number of loader workers")
    if not count:
        return min(1.0, known(s.fetch_cpu_share, "the CPU time of the fetches"))
    return min(1.0, known(s.workers_cpu_ms, "the CPU time of the workers") / (count * step))


def _transform_ms(s: Signals) -> float:
    """Operations within the fetch, by a trace; 0 where none shows them: workers' own are in no trace."""
    return spent((row for row in s.operators or () if row.region == "data"), on_device=False)


def _waits(s: Signals, step: float, wait: float, more: str = "") -> tuple[str, ...]:
    said = f"{ms(wait)} of {ms(step)} ms a step are exposed data wait ({percent(wait / step)}){more}"
    if s.wait_quartiles_ms is None:
        return (said,)
    low, middle, high = s.wait_quartiles_ms
    if max(high - low, abs(wait - middle)) <= _UNEVEN * step:
        return (said,)
    return (
        said,
        f"the wait itself scatters, so its mean counts: half of the steps wait under {ms(middle)} ms, a quarter over "
        f"{ms(high)} ms",
    )


def _place(s: Signals) -> str:
    """Whose memory it is: ranks on a CPU each keep a copy in what is theirs."""
    return "a rank" if s.device == "cpu" and (s.ranks or 1) > 1 else "the device"


def _cores(s: Signals) -> str:
    return f"{s.cores} cores" + (f" with its {s.ranks} ranks" if (s.ranks or 1) > 1 else "")


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"
