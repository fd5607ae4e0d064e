"""Stage data: the loader over single items, with worker processes and copies beside the step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Protocol

import torch
from torch.cuda import Event

from laptime.errors import in_digits
from laptime.host.processes import allowed_cores
from laptime.optimizations.base import Loader, Mark, Options, Recipe, unmarked
from laptime.optimizations.loader_room import room_for_workers
from laptime.values.trees import sent, tensors
from laptime.workloads.base import Batch

# Four a GPU is the rule of thumb; more than the cores that are allowed only share them.
_CANDIDATES = (0, 2, 4, 8)
_TIMED_BATCHES = 8
_LONGEST_TRIAL_S = 4.0


class Lane(Protocol):
    """A way for batches from the host to the device."""

    def send(self, batch: Batch) -> object:
        """Starts a copy; returns what `receive` takes."""
        ...

    def receive(self, sent: object) -> Batch:
        """The batch, for use by what the current stream runs from here on."""
        ...


@dataclass
class SameStream:
    """Copies that take their turn between steps: the only kind on a CPU."""

    device: torch.device
    format: torch.memory_format

    def send(self, batch: Batch) -> object:
        """See `Lane`."""
        inputs, labels = sent(batch.content, self.device, self.format, non_blocking=True)
        return replace(batch, inputs=inputs, labels=labels)

    def receive(self, sent: object) -> Batch:
        """See `Lane`."""
        assert isinstance(sent, Batch)
        return sent


class SideStream(SameStream):
    """Copies on a stream of their own, from page-locked memory; the host waits for none of them."""

    def __init__(self, device: torch.device, format: torch.memory_format) -> None:  # noqa: A002 - torch's own word
        super().__init__(device, format)
        self.stream = torch.cuda.Stream(device)

    def send(self, batch: Batch) -> object:
        """See `Lane`."""
        with torch.cuda.stream(self.stream):
            copied = super().send(batch)
        return copied, self.stream.record_event()

    def receive(self, sent: object) -> Batch:
        """See `Lane`; the allocator must not give the memory away while the current stream still reads it."""
        assert isinstance(sent, tuple)
        copied, arrived = sent
        assert isinstance(copied, Batch)
        assert isinstance(arrived, Event)
        current = torch.cuda.current_stream(self.stream.device)
        current.wait_event(arrived)
        for tensor in tensors(copied.content):
            tensor.record_stream(current)
        return copied


class Ahead:
    """A loader whose next batch is on its way while the step runs."""

    def __init__(self, inner: Loader, lane: Lane) -> None:
        self.inner, self.lane = inner, lane

    def epoch(self, index: int, mark: Mark = unmarked) -> Iterator[Batch]:
        """See `Loader`."""
        sent: object = None
        for batch in self.inner.epoch(index, mark):
            mark("data")
            following = self.lane.send(batch)
            ready = None if sent is None else self.lane.receive(sent)
            mark("copy")
            if ready is not None:
                yield ready
            sent = following
        if sent is not None:
            yield self.lane.receive(sent)

    def __len__(self) -> int:
        return len(self.inner)


def workers(recipe: Recipe, options: Options) -> Recipe:
    """Fetches items in worker processes that live as long as the run; how many is tried out where not given.

    What was chosen is noted in `settled`, so that the check and later rounds repeat it.
    """
    asked = int(options["count"])
    most = asked if asked >= 0 else candidates(recipe)[-1]
    held, why = room_for_workers(recipe, most, recipe.batch_size // recipe.copies)
    note, count = "", held
    if asked == -1:
        rates = tried(recipe, held)
        count = int(recipe.world.agreed(max(rates, key=lambda n: rates[n])))
        note = ", ".join(f"{n}: {in_digits(rate)} samples/s" for n, rate in rates.items())
    settled: dict[str, Options] = {**recipe.settled, "workers": {"count": count}}
    notes = (*recipe.notes, *([why] if why else []), f"{count} loader workers" + (f" ({note})" if note else ""))
    return replace(recipe, loading=replace(recipe.loading, workers=count), settled=settled, notes=notes)


def candidates(recipe: Recipe) -> tuple[int, ...]:
    """The numbers of workers that are tried: those that the cores allow, and what the baseline has."""
    cores = allowed_cores() // recipe.world.here
    return tuple(sorted({n for n in _CANDIDATES if n <= cores} | {recipe.loading.workers}))


def tried(recipe: Recipe, most: int) -> dict[int, float]:
    """Samples a second by number of workers: a few batches each, timed once every worker has delivered one."""
    return {count: _rate(recipe, count) for count in candidates(recipe) if count <= most}


def _rate(recipe: Recipe, count: int) -> float:
    trial = replace(recipe, device=torch.device("cpu"), loading=replace(recipe.loading, workers=count, pinned=False))
    untimed, timed = max(1, count), max(_TIMED_BATCHES, 6 * count)
    loader = trial.make_loader(trial)
    # Of small data epoch after epoch: one batch, or as many as there are workers, would leave none that is timed.
    batches = chain.from_iterable(map(loader.epoch, range(untimed + timed)))
    for _ in islice(batches, untimed):
        pass
    done, begin = 0, time.perf_counter()
    for batch in islice(batches, timed):
        done += len(batch)
        if time.perf_counter() - begin > _LONGEST_TRIAL_S:
            break
    return done / (time.perf_counter() - begin)


def pinned(recipe: Recipe, options: Options) -> Recipe:
    """Puts batches into page-locked memory and copies the next one while the step runs."""
    return replace(recipe, loading=replace(recipe.loading, pinned=True))
