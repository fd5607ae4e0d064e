"""What shapes meet a net's modules, found by running it on shapes alone (the meta device): no data, no arithmetic.

A net or a loss of a user's own that reads values is run on a few samples instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from laptime.data.own.opened import OwnData
from laptime.optimizations.base import Recipe
from laptime.optimizations.live_taps import Convolution, ForeignReads
from laptime.optimizations.samples import at_end, stand_in
from laptime.own.user_code import complaint
from laptime.values.copies import copy_of
from laptime.workloads.own import looked_at

# Two, since BatchNorm takes no single one.
SAMPLES = 2
META, CPU = torch.device("meta"), torch.device("cpu")

T = TypeVar("T")

Run = Callable[[nn.Module], object]
Calls = dict[str, list[list[tuple[int, ...]]]]
"""Module name to the input shapes of its calls, a list for each run."""


class ShapesUnknownError(Exception):
    """A net can't be run on shapes alone; the message says why."""


@dataclass(frozen=True)
class Passes:
    """Forward passes that show what the modules of a net meet.

    Attributes:
        on_shapes: call the net that they are given; whatever they pass to it stands on the meta device.
        on_samples: the same with samples on the CPU, for a net or a loss of a user's own that reads values; they leave
            nothing behind but what they do to the net.
        file: the user's.
    """

    on_shapes: Sequence[Run]
    on_samples: Sequence[Run] = ()
    file: Path = Path()


def passes_of(recipe: Recipe) -> Passes:
    """The workload's own forward, on shapes and, of a user's own, on both ends of the training data."""
    data = recipe.data
    if not isinstance(data, OwnData):
        return Passes(runs_of(recipe))

    def on(end: int) -> Run:
        return lambda model: recipe.workload.forward(model, at_end(recipe, SAMPLES, end))

    return Passes(runs_of(recipe), [undone(data, on(end)) for end in (0, 1)], data.file)


def undone(data: OwnData, run: Run) -> Run:
    """A pass of which nothing is left in a user's object, in tensors and in what draws numbers."""

    def looked(model: nn.Module) -> object:
        with looked_at(data.workload):
            return run(model)

    return looked


def seen(passes: Passes, look: Callable[[Sequence[Run], torch.device], T]) -> T:
    """What a look at passes on a device finds: on shapes alone, or where these can't be run, on a few samples.

    What a net or a loss does may depend on values, so samples show less than shapes do. A map of a size that they have
    not shown ends a run, as one behind the first batches does; it makes no wrong numbers.

    Raises:
        ShapesUnknownError: neither can be run.
    """
    try:
        return look(passes.on_shapes, META)
    except ShapesUnknownError:
        if not passes.on_samples:
            raise
    try:
        return look(passes.on_samples, CPU)
    except ShapesUnknownError as failed:
        told = complaint(failed.__cause__ or failed, passes.file)
        how = "with a few samples on the CPU" + ("" if torch.is_grad_enabled() else " and without gradients")
        raise ShapesUnknownError(f"loss() fails {how}, which would show its maps ({told})") from failed


def runs_of(recipe: Recipe) -> list[Run]:
    """The workload's own forward on shapes, once for each size of image that the recipe trains on."""
    return [_run(recipe, size) for size in recipe.sizes]


def _run(recipe: Recipe, size: tuple[int, int]) -> Run:
    return lambda model: recipe.workload.forward(model, stand_in(recipe, SAMPLES, size=size))


def input_shapes(
    model: nn.Module, runs: Sequence[Run], kinds: tuple[type[nn.Module], ...], device: torch.device = META
) -> Calls:
    """Finds the shape of the first input of each module of some kinds, in training and in evaluation.

    Args:
        model: any net; it is copied.
        runs: call the net they are given; whatever they pass to it stands on the device.
        kinds: classes of the modules to look at.
        device: where the copy stands.

    Raises:
        ShapesUnknownError: the forward pass needs values, not only shapes, or fails.
    """
    shadow = shadow_of(model, device)
    calls: Calls = {name: [] for name, module in shadow.named_modules() if isinstance(module, kinds)}
    for name in calls:
        shadow.get_submodule(name).register_forward_pre_hook(_note(calls[name]), with_kwargs=True)

    def begin() -> None:
        for met in calls.values():
            met.append([])

    _run_all(shadow, runs, device, begin)
    return calls


def read_elsewhere(
    model: nn.Module, runs: Sequence[Run], names: Collection[str], device: torch.device = META
) -> set[str]:
    """Finds which of some convolutions have a weight that something else than their own call reads.

    Takes the net and the runs as `input_shapes` does, and raises the same.
    """
    shadow = shadow_of(model, device)
    convs = {name: module for name in names if isinstance(module := shadow.get_submodule(name), Convolution)}
    reads = ForeignReads(convs)
    with reads:
        _run_all(shadow, runs, device)
    return reads.found


def _run_all(
    shadow: nn.Module, runs: Sequence[Run], device: torch.device, begin: Callable[[], None] = lambda: None
) -> None:
    """Runs all in training, then in evaluation; on values with gradients in training, which a loss may ask for."""
    for training in (True, False):
        shadow.train(training)
        for run in runs:
            begin()
            with torch.set_grad_enabled(torch.is_grad_enabled() and training and device != META):
                guarded(partial(run, shadow))


def shadow_of(model: nn.Module, device: torch.device = META) -> nn.Module:
    """A copy of a net on the meta device or another; raises ShapesUnknownError where it can't be copied."""
    return guarded(lambda: copy_of(model).to(device))


def guarded(call: Callable[[], T]) -> T:
    """Calls something on the meta device; returns what it gives.

    Raises:
        ShapesUnknownError: it needs values, not only shapes.
    """
    try:
        return call()
    except (Exception, SystemExit) as error:  # whatever a net does with values that are not there
        reason = " ".join(str(error).split())[:160]
        raise ShapesUnknownError(f"the net can't be run on shapes alone ({type(error).__name__}: {reason})") from error


def _note(seen: list[list[tuple[int, ...]]]) -> Callable[..., None]:
    def note(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        first = next((v for v in (*inputs, *named.values()) if isinstance(v, Tensor)), None)
        if first is None:
            raise TypeError("a convolution was called without a tensor")
        seen[-1].append(tuple(first.shape))

    return note
