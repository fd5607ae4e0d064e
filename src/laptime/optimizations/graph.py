"""Stage step: the whole training step as one CUDA graph.

A step of a small net is hundreds of kernels of a few microseconds each, and the host needs longer to launch them than
the device to run them. A graph is launched once for all of them. What it needs: inputs and results that stay where they
are, an optimizer whose state and learning rate are on the device, no reads, one shape.

Source: "CUDA graphs", whole-network capture, in torch's documentation (notes/cuda.html).
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from laptime.host.memory import uncollected
from laptime.optimizations.average import Averaged
from laptime.optimizations.base import Options, Parts, Recipe, shares, unmarked
from laptime.values.trees import mapped, tensors
from laptime.workloads.base import Batch, Counts

# Eager steps before the capture: lazy state of optimizer, cuDNN and allocator has to be there by then.
_EAGER_STEPS = 3

T = TypeVar("T")
Work = Callable[[], Counts]
Record = Callable[[Work], Work]
"""Records work that reads and writes fixed tensors, without doing it; calling the result does it."""


def device_work(p: Parts, batch: Batch) -> Counts:
    """All of a step that the device does; the schedule, which the host counts, is left to the caller.

    Gradients are dropped at the end, so that the next backward writes them instead of adding to them.
    """
    output = p.passes(replace(p, mark=unmarked), batch)  # the borders within are no part of a recording
    p.exchange(p.model)
    p.clip(p)
    p.scaler.step(p.optimizer)
    p.scaler.update()
    p.optimizer.zero_grad(set_to_none=True)
    return output.detached()


@dataclass
class Tape:
    """One recorded shape: its buffers and how to run it again.

    Attributes:
        batch: whose tensors are the buffers.
        replay: runs the step on the buffers; its result is overwritten by the next replay.
    """

    batch: Batch
    replay: Work


class GraphStep:
    """A training step that records itself after a few eager ones, and is replayed from then on.

    Only the run's batch size (a rank's share of it) is recorded, in the shapes that it had then: the epoch's last,
    smaller batch runs eagerly on the same parameters. Steps before the recording are ordinary steps, so the result does
    not depend on when it happens.
    """

    def __init__(self, kind: tuple[int, float], record: Record, beside: Callable[[Work], Counts]) -> None:
        """Takes size and weight of the batches that are recorded, how, and how an eager step is run before that."""
        self._kind, self._record, self._beside = kind, record, beside
        self._parts: weakref.ref[Parts] | None = None
        self._eager, self._tape = 0, None  # type: int, Tape | None

    @property
    def recorded(self) -> bool:
        """Whether steps are replayed by now."""
        return self._tape is not None

    def forget(self) -> None:
        """Gives the recording up, with the memory that it works in."""
        self._parts, self._eager, self._tape = None, 0, None

    def __call__(self, p: Parts, batch: Batch) -> Counts:
        """One step; the counts are copies that no later step overwrites."""
        if self._parts is None or self._parts() is not p:
            self.forget()
            self._parts = weakref.ref(p)
        if (len(batch), batch.weight) != self._kind or not _fits(self._tape, batch):
            counts = device_work(p, batch)
        elif self._tape is None and self._eager < _EAGER_STEPS:
            self._eager += 1
            counts = self._beside(lambda: device_work(p, batch))
        else:
            self._tape = self._tape or self._recorded(p, batch)
            counts = _played(self._tape, batch)
            # A schedule warns unless it saw the optimizer step, which a replay does without Python.
            p.optimizer._opt_called = True  # type: ignore[attr-defined]
        p.schedule.step()
        p.mark("step")
        return counts

    def _recorded(self, p: Parts, batch: Batch) -> Tape:
        # Dense copies in the same memory format.
        static = replace(batch, inputs=mapped(batch.inputs, torch.clone), labels=mapped(batch.labels, torch.clone))
        return Tape(static, self._record(lambda: device_work(p, static)))


def _fits(tape: Tape | None, batch: Batch) -> bool:
    """Whether a batch has the shapes that were recorded: copying into a buffer of another one fails or broadcasts."""
    if tape is None:
        return True
    return [t.shape for t in tensors(tape.batch.content)] == [t.shape for t in tensors(batch.content)]


def _played(tape: Tape, batch: Batch) -> Counts:
    for buffer, given in zip(tensors(tape.batch.content), tensors(batch.content), strict=True):
        buffer.copy_(given)
    found = tape.replay()
    correct = None if found.correct is None else torch.as_tensor(found.correct).clone()
    return Counts(torch.as_tensor(found.loss_sum).clone(), correct, found.count)


def recording_of(step: Callable[[Parts, Batch], Counts]) -> GraphStep | None:
    """The recording within a run's step; None where none is replayed."""
    inner = step.step if isinstance(step, Averaged) else step
    return inner if isinstance(inner, GraphStep) else None


def eager_record(work: Work) -> Work:
    """Where there are no graphs: the work itself, on the same buffers."""
    return work


def cuda_record(work: Callable[[], T]) -> Callable[[], T]:
    """Captures work into a CUDA graph; each call runs it, into the same result."""
    torch.cuda.synchronize()  # waits for the device
    graph = torch.cuda.CUDAGraph()
    # Other threads may go on: a loader's thread that pins memory would end a capture that watches all of them.
    result = captured(torch.cuda.graph(graph, capture_error_mode="thread_local"), work)

    def replay() -> T:
        graph.replay()
        return result

    return replay


def captured(capture: AbstractContextManager[object, None], work: Callable[[], T]) -> T:
    """Does work within a capture; raises what broke it as it was raised.

    The end of a broken capture raises an error of its own, which says no more than that there was one before. A dead
    recording that the garbage collector destroyed meanwhile would break it (torch collected before each capture itself
    up to 2.8, see https://github.com/pytorch/pytorch/pull/161037).
    """
    broken: BaseException | None = None
    try:
        with uncollected(), capture:
            try:
                return work()
            except BaseException as error:
                broken = error
                raise
    except Exception as follow_up:
        if broken is None or follow_up is broken:
            raise
        raise broken from broken.__cause__


def directly(work: Work) -> Counts:
    """Runs work as it is."""
    return work()


@functools.cache
def _side_stream() -> torch.cuda.Stream:
    """One for all: cuBLAS keeps a workspace for each stream that it was used on."""
    return torch.cuda.Stream()


def on_side_stream(work: Callable[[], T]) -> T:
    """Runs work on another stream, as the steps before a capture must be; neither waits on the host."""
    side, current = _side_stream(), torch.cuda.current_stream()
    side.wait_stream(current)
    with torch.cuda.stream(side), warnings.catch_warnings():
        # Meant: an optimizer that can be captured has to have stepped before.
        warnings.filterwarnings("ignore", "This instance was constructed with capturable=True", UserWarning)
        result = work()
    current.wait_stream(side)
    return result


def graph(recipe: Recipe, options: Options) -> Recipe:
    """Replays the whole step: forward, backward, exchange, optimizer."""
    on_cuda = recipe.device.type == "cuda"
    record, beside = (cuda_record, on_side_stream) if on_cuda else (eager_record, directly)
    whole = shares(torch.arange(recipe.batch_size), recipe.batch_size, recipe.world)[0]
    return replace(
        recipe,
        step=GraphStep((len(whole.indices), whole.weight), record, beside),
        rate_on_device=True,
        # Recorded before the clock runs, even where an epoch has fewer steps.
        warmup_calls=max(recipe.warmup_calls, _EAGER_STEPS + 1),
        optimizer_options={**recipe.optimizer_options, "fused": True, "capturable": True},
    )
