"""How large DDP's buckets of gradients are: a few sizes are tried out on the run's own net, batch and ranks.

A small bucket leaves early and travels while the backward pass goes on, a large one saves messages; which counts for
more depends on the net, the batch and what lies between the ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

from laptime.optimizations.base import Recipe, Wrap
from laptime.optimizations.passes import samples_of_a_pass
from laptime.optimizations.samples import stand_in
from laptime.values.copies import copy_of
from laptime.values.draws import drawn, put_back_drawn
from laptime.workloads.base import Batch

# What torch takes by itself.
USUAL_MB = 25
_SIZES_MB = (1, 4, 10, USUAL_MB)
# A step that takes longer is not tried out: four sizes more of it would be a wait that nobody asked for.
_LONGEST_STEP_S = 0.5
# Timed steps of one size, and the seconds after which there are no more of them than two.
_LEAST, _MOST, _ONE_SIZE_S = 2, 9, 0.75


def candidates(recipe: Recipe) -> tuple[int, ...]:
    """The sizes in MiB that differ for a net; the last one holds all of its gradients."""
    total = sum(p.numel() * p.element_size() for p in recipe.model.parameters() if p.requires_grad)
    whole = max(1, -(-total // 2**20))
    return (*(size for size in _SIZES_MB if size < whole), whole)


def chosen_mb(recipe: Recipe, wrapped: Callable[[int], Wrap]) -> tuple[int, str]:
    """The size in MiB with the fastest step of the slowest rank, and what a user should know of it.  # all ranks

    Each size has a few steps of forward and backward on a copy of the net, so nothing of the run is touched. All ranks
    see all times, and so choose alike.

    Args:
        recipe: the run, with all that comes before the exchange.
        wrapped: the wrapper of the net whose buckets have a size.
    """
    sizes = candidates(recipe)
    if recipe.compiled:
        return USUAL_MB, f"buckets of {USUAL_MB} MiB, not tried out: the net would be compiled anew for each size"
    if len(sizes) == 1 or recipe.world.size == 1:
        return sizes[-1], "all gradients in one bucket"
    recipe.modes.apply()  # as the run's own steps have them, before which they are set again
    with _undrawn(recipe.device):
        batch = stand_in(recipe, samples_of_a_pass(recipe), recipe.device)
        whole_s = step_s(recipe, wrapped(sizes[-1]), batch, _LEAST)
        if whole_s > _LONGEST_STEP_S:
            return USUAL_MB, f"buckets of {USUAL_MB} MiB, not tried out: a step takes {whole_s:.1f} s"
        count = max(_LEAST, min(_MOST, int(_ONE_SIZE_S / whole_s)))
        times = {size: step_s(recipe, wrapped(size), batch, count) for size in sizes}
    best = min(times, key=lambda size: times[size])
    said = ", ".join(f"{size}: {1000 * seconds:.1f} ms" for size, seconds in times.items())
    return best, f"buckets of {best} MiB ({said} a forward and backward pass)"


def step_s(recipe: Recipe, wrap: Wrap, batch: Batch, count: int) -> float:
    """Seconds of a forward and backward pass: the median over some, of the slowest rank.  # all ranks

    One pass before them is not timed, since DDP lays its buckets out by it.
    """
    net = wrap(copy_of(recipe.model).to(recipe.device).train())
    found = []
    for _ in range(1 + count):
        recipe.world.barrier()
        begin = time.perf_counter()
        recipe.forward(net, batch).loss.backward()
        if recipe.device.type == "cuda":
            torch.cuda.synchronize(recipe.device)  # waits for the device
        found.append(time.perf_counter() - begin)
        net.zero_grad()
    return max(recipe.world.gathered(median(found[1:])))


@contextmanager
def _undrawn(device: torch.device) -> Iterator[None]:
    """Within it dropout and a user's items may draw: the generators are put back behind it."""
    before = drawn()
    on_gpu = torch.cuda.get_rng_state(device) if device.type == "cuda" else None  # waits for the device
    try:
        yield
    finally:
        put_back_drawn(before)
        if on_gpu is not None:
            torch.cuda.set_rng_state(on_gpu, device)
