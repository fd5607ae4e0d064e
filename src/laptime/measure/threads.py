"""What forward and backward of a training step take on fewer threads of torch's, on the run's own net and batch.

Threads share out each operator and wait for one another at its end. In a net of small operators that costs more than it
brings, and the more so the more cores there are, all of which torch takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import torch

from laptime.engine.setup import samples_at_once
from laptime.measure.batches import Limits
from laptime.measure.passes import Passes, batch_of, put_back
from laptime.measure.rounds import worth_another
from laptime.optimizations.base import Parts, Recipe
from laptime.records import ThreadsRecord

_ROUNDS = 4
_LEAST_ROUNDS = 2
_BLOCK = 4
# With so much more than the best so far, still fewer threads are not tried, nor this count again.
_WORSE = 1.1


def measure_threads(
    parts: Parts, recipe: Recipe, epoch: int, limits: Limits, clock: Callable[[], float] = perf_counter
) -> tuple[ThreadsRecord, ...]:
    """Times forward and backward on the run's threads and on the fastest of half as many, a quarter and so on.

    Blocks of passes take turns, of which the first pass does not count: torch gets other threads there. Where half as
    many are clearly slower, they are not timed twice. Buffers, gradients and random numbers are put back.

    Args:
        parts: of the run.
        recipe: what they were built from.
        epoch: whose first batch is taken.
        limits: of time; some blocks are done whatever they take, so steps must be short enough for those.
        clock: seconds.

    Returns:
        The run's own count and the other one; empty on a GPU, on one thread, where the net is compiled (for its
        threads), ranks exchange gradients in a pass, steps are too long, or a batch does not consist of samples.
    """
    own = torch.get_num_threads()
    if parts.device.type != "cpu" or own < 2 or recipe.compiled or recipe.world.size > 1:
        return ()
    if limits.step_ms is None or 2e-3 * _LEAST_ROUNDS * _BLOCK * limits.step_ms > limits.budget_s:
        return ()
    given = batch_of(parts, epoch)
    if given is None:
        return ()
    size = min(len(given), samples_at_once(recipe))
    with put_back(parts), _threads_put_back():
        seconds = _by_turns(Passes(parts, given, clock), size, own, limits.budget_s)
    step_ms = 1e3 * len(given) / size
    return tuple(ThreadsRecord(count=n, pass_ms=step_ms * median(s)) for n, s in seconds.items())


def _by_turns(timed: Passes, size: int, own: int, budget_s: float) -> dict[int, list[float]]:
    """Seconds of passes on the run's threads, then on the others."""
    begin, seconds = timed.clock(), {own: _block(timed, size, own)}
    other = own
    while other > 1 and (other == own or timed.clock() - begin < budget_s):
        best, other = min(seconds, key=lambda n: median(seconds[n])), other // 2
        seconds[other] = _block(timed, size, other)
        if median(seconds[other]) > _WORSE * median(seconds[best]):
            break
    other = min((n for n in seconds if n != own), key=lambda n: median(seconds[n]))
    if median(seconds[other]) <= _WORSE * median(seconds[own]):
        done = 1
        while done < _LEAST_ROUNDS or worth_another(done, _ROUNDS, timed.clock() - begin, budget_s):
            done += 1
            for count in (own, other):
                seconds[count] += _block(timed, size, count)
    return {count: seconds[count] for count in (own, other)}


def _block(timed: Passes, size: int, count: int) -> list[float]:
    torch.set_num_threads(count)
    return [timed(size) for _ in range(_BLOCK)][1:]


@contextmanager
def _threads_put_back() -> Iterator[None]:
    own = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(own)
