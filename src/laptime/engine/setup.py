"""What decides where a run's time goes, read off what was built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.optim import Optimizer

from laptime.data.decoded import share_of
from laptime.data.own.opened import OwnSplit
from laptime.engine.room import memory_of
from laptime.optimizations.base import Parts, Recipe, shares
from laptime.optimizations.boxes import BoxResidentLoader
from laptime.optimizations.data import ItemLoader, innermost
from laptime.optimizations.dead_taps import dead_parameters
from laptime.optimizations.passes import passes_of, samples_of_a_pass
from laptime.optimizations.resident import NormalizedLoader, OwnResidentLoader, ResidentLoader
from laptime.optimizations.shapes import ShapesUnknownError, guarded, runs_of, shadow_of
from laptime.records import SetupRecord

_LOADERS = {
    ItemLoader: "items",
    **dict.fromkeys((ResidentLoader, NormalizedLoader, OwnResidentLoader, BoxResidentLoader), "resident"),
}


def describe(recipe: Recipe, parts: Parts, marks: set[str]) -> SetupRecord:
    """Describes a built run.

    Args:
        recipe: what it was built from.
        parts: what it was built into.
        marks: names of the parts that its steps have marked; a step that is one graph or reads values shows there.
    """
    split, loader = recipe.data.train, innermost(parts.loader)
    by_items = isinstance(loader, ItemLoader)
    return SetupRecord(
        batch_size=samples_of_a_rank(recipe),
        passes=passes_of(recipe),
        loader=_LOADERS.get(type(loader), type(loader).__name__),
        workers=recipe.loading.workers if by_items else 0,
        threads=torch.get_num_threads(),
        pinned=recipe.loading.pinned and by_items and parts.device.type == "cuda",
        optimizer=type(parts.optimizer).__name__,
        optimizer_kernel=_kernel(parts.optimizer, parts.device),
        parameter_tensors=sum(len(group["params"]) for group in parts.optimizer.param_groups),
        channels_last=recipe.channels_last,
        compiled=recipe.compiled,
        graphed="step" in marks,
        reads="read" in marks,
        train_mib=split.nbytes / 2**20,
        decoding_share=share_of(split.dataset) if by_items and isinstance(split, OwnSplit) else None,
        steps=len(parts.loader),
        biased_before_norm=biased_before_norm(recipe),
        dead_parameters=dead_parameters(recipe),
        device_memory_mib=memory_of(parts.device) / 2**20,
    )


def samples_of_a_rank(recipe: Recipe) -> int:
    """Samples that this rank takes of a whole batch."""
    return len(shares(torch.arange(recipe.batch_size), recipe.batch_size, recipe.world)[0].indices)


def samples_at_once(recipe: Recipe) -> int:
    """Samples of this rank's part of a whole batch that go through the net at once."""
    return min(samples_of_a_rank(recipe), samples_of_a_pass(recipe))


def biased_before_norm(recipe: Recipe) -> int:
    """Convolutions whose bias the BatchNorm right behind them takes away again, found by a run on shapes.

    Returns:
        0 where the net can't be run on shapes.
    """
    try:
        model = shadow_of(recipe.model)
    except ShapesUnknownError:
        return 0
    made: dict[int, tuple[str, object]] = {}  # the tensors are kept, so that no id is given twice
    found: set[str] = set()
    for name, module in model.named_modules():
        if isinstance(module, _ConvNd) and module.bias is not None:
            module.register_forward_hook(_note_output(made, name))
        elif isinstance(module, _BatchNorm):
            module.register_forward_pre_hook(_note_input(made, found))
    try:
        with torch.no_grad():
            guarded(lambda: runs_of(recipe)[0](model))
    except ShapesUnknownError:
        return 0
    return len(found)


def _note_output(made: dict[int, tuple[str, object]], name: str) -> Callable[..., None]:
    def note(_module: nn.Module, _inputs: Any, output: object) -> None:
        made[id(output)] = (name, output)

    return note


def _note_input(made: dict[int, tuple[str, object]], found: set[str]) -> Callable[..., None]:
    def note(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs and id(inputs[0]) in made:
            found.add(made[id(inputs[0])][0])

    return note


def _kernel(optimizer: Optimizer, device: torch.device) -> str:
    """How the optimizer's update runs; left to itself, torch takes `foreach` on a GPU and single tensors on a CPU."""
    group = optimizer.param_groups[0]
    if group.get("fused"):
        return "fused"
    foreach = group.get("foreach")
    return "foreach" if foreach or (foreach is None and device.type == "cuda") else "single"
