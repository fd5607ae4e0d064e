"""Waiting for data: worker processes, and data that needs no fetching."""

from __future__ import annotations

import math

from laptime.advice.figures import percent
from laptime.advice.outcome import Abstain, Outcome, Proposal, known
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
_LARGEST_SHARE = 0.25


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
            f"{wait:.1f} of {step:.1f} ms a step are exposed data wait ({percent(wait / step)}), without loader "
            "workers",
            f"{percent(share)} of the fetch is CPU time"
            + (f"; the cores have {spare:.1f} ms a step free" if spare else ""),
            *(
                [f"{cramped:.1f} ms of CPU time find no free core; they are in the range's upper end"]
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
    """With workers already, they deliver a batch every step; how they spend that time is not seen from here."""
    count = s.workers or 0
    cores = known(s.cores, "the cores") / known(s.ranks, "the number of ranks")
    busy = known(s.process_cpu_ms, "the CPU time of the process") / step
    free = int(cores - busy - count + 0.25)
    if free < 1:
        return Abstain(f"{count} workers and the training may use all {cores:g} cores already")
    more = min(_MOST_WORKERS, count + free)
    best = max(step - wait, step * count / more)
    return Proposal(
        "workers",
        f"The training waits for its {count} loader workers, and cores are free: take {more}.",
        (
            f"{wait:.1f} of {step:.1f} ms a step are exposed data wait ({percent(wait / step)})",
            f"training uses {busy:.1f} of {cores:g} cores, so about {free} are free beside {_processes(count)}",
        ),
        (0.5 * (step - best), step - best),
        0.5,
        remedy=f"workers:count={more}",
        code=f"DataLoader(..., num_workers={more}, persistent_workers=True)",
        klass="exact",
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
        (f"{wait:.1f} of {step:.1f} ms a step are exposed data wait ({percent(wait / step)})",),
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
            f"{wait:.1f} of {step:.1f} ms a step are exposed data wait ({percent(wait / step)})",
            f"the images take {size:,.0f} MiB, the device has {memory:,.0f} MiB",
            f"indexing and normalizing whole batches should take {left[0]:.1f} to {left[1]:.1f} ms of them",
        ),
        (wait - left[1], wait - left[0]),
        0.85,
        remedy="resident",
        code="images = torch.stack(all_items).to(device)  # once; then images[order[start:stop]] in each step",
        klass="exact",
    )


def _cores(s: Signals) -> str:
    return f"{s.cores} cores" + (f" with its {s.ranks} ranks" if (s.ranks or 1) > 1 else "")


def _processes(count: int) -> str:
    return "one process" if count == 1 else f"{count} processes"
