"""What shapes meet a net's modules, found by running it on shapes alone (the meta device): no data, no arithmetic."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from laptime.optimizations.base import Recipe
from laptime.optimizations.live_taps import Convolution, ForeignReads
from laptime.optimizations.samples import stand_in

# Two, since BatchNorm takes no single one.
SAMPLES = 2

T = TypeVar("T")

Run = Callable[[nn.Module], object]
Calls = dict[str, list[list[tuple[int, ...]]]]
"""Module name to the input shapes of its calls, a list for each run."""


class ShapesUnknownError(Exception):
    """A net can't be run on shapes alone; the message says why."""


def runs_of(recipe: Recipe) -> list[Run]:
    """The workload's own forward on shapes, once for each size of image that the recipe trains on."""
    return [_run(recipe, size) for size in recipe.sizes]


def _run(recipe: Recipe, size: tuple[int, int]) -> Run:
    return lambda model: recipe.workload.forward(model, stand_in(recipe, SAMPLES, size=size))


def input_shapes(model: nn.Module, runs: Sequence[Run], kinds: tuple[type[nn.Module], ...]) -> Calls:
    """Finds the shape of the first input of each module of some kinds, in training and in evaluation.

    Args:
        model: any net; it is copied.
        runs: call the net they are given; whatever they pass to it stands on the meta device.
        kinds: classes of the modules to look at.

    Raises:
        ShapesUnknownError: the forward pass needs values, not only shapes.
    """
    shadow = shadow_of(model)
    calls: Calls = {name: [] for name, module in shadow.named_modules() if isinstance(module, kinds)}
    for name in calls:
        shadow.get_submodule(name).register_forward_pre_hook(_note(calls[name]), with_kwargs=True)
    for training in (True, False):
        shadow.train(training)
        for run in runs:
            for seen in calls.values():
                seen.append([])
            with torch.no_grad():
                guarded(partial(run, shadow))
    return calls


def read_elsewhere(model: nn.Module, runs: Sequence[Run], names: Collection[str]) -> set[str]:
    """Finds which of some convolutions have a weight that something else than their own call reads.

    Takes the net and the runs as `input_shapes` does, and raises the same.
    """
    shadow = shadow_of(model)
    convs = {name: module for name in names if isinstance(module := shadow.get_submodule(name), Convolution)}
    reads = ForeignReads(convs)
    for training in (True, False):
        shadow.train(training)
        for run in runs:
            with torch.no_grad(), reads:
                guarded(partial(run, shadow))
    return reads.found


def shadow_of(model: nn.Module) -> nn.Module:
    """A copy of a net on the meta device; raises ShapesUnknownError where it can't be copied."""
    return guarded(lambda: copy.deepcopy(model).to("meta"))


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
