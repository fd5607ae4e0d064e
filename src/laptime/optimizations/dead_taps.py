"""Stage model, dead taps: kernel taps that only ever meet padding are cropped away.

Where a feature map is smaller than the kernel, some taps never see a pixel: in torchvision's ResNet-18 on 32x32 images
layer4 works on 1x1 maps, so eight of the nine taps of its kernels multiply zeros. Their gradient is exactly zero, but
convolution, backward and optimizer pay for them. The cropped net computes the same function.

Weight decay is the one thing that still moves them. Decoupled decay (AdamW) and SGD's L2, with momentum or without, act
on a weight without gradient as the same linear recurrence for all of them, so each such tap is its initial value times
one factor. A cropped layer holds that factor as a buffer, and the optimizer updates it beside the layer's weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from laptime.errors import RunError
from laptime.optimizations.base import Options, Recipe
from laptime.optimizations.live_taps import LIVE, Axis, Convolution, LiveConv, Size, live_axes, refusal, several_names
from laptime.optimizations.shapes import (
    META,
    Passes,
    Run,
    ShapesUnknownError,
    guarded,
    input_shapes,
    passes_of,
    read_elsewhere,
    runs_of,
    seen,
)
from laptime.values.copies import copy_of
from laptime.workloads.own_optimizer import hooked


class Crop(nn.Module):
    """What was taken out of a kernel, to give it back.

    Attributes:
        full: the whole kernel at the start [out, in / groups, *size], on the CPU.
        live: index of the live taps in it.
        factor: what weight decay has made of the dead taps so far, as a share of `full` [1]; a buffer, so that a reset
            puts it back, and not persistent, so that state dicts don't hold it.
    """

    factor: Tensor

    def __init__(self, full: Tensor, live: tuple[Any, ...]) -> None:
        super().__init__()
        self.full, self.live = full, live
        self.register_buffer("factor", torch.ones(1, dtype=full.dtype), persistent=False)

    def whole(self, weight: Tensor) -> Tensor:
        """The whole kernel: dead taps as the baseline's optimizer would have left them."""
        return self.filled(weight.detach(), self.factor)

    def filled(self, part: Tensor, factor: Tensor | float) -> Tensor:
        """The whole kernel's layout with `part` at the live taps and `factor` times their start at the dead ones."""
        whole = self.full.to(part.dtype) * torch.as_tensor(factor).detach().to("cpu", part.dtype)
        whole[self.live] = part.detach().cpu()
        return whole


def crops(model: nn.Module) -> dict[str, tuple[nn.Parameter, Crop]]:
    """Name to weight and crop of each module whose kernel was cropped, whatever computes it now.

    Nothing of any other module is read: a weight may be computed by reading it, and spectral_norm's moves as it is.
    """
    found = {}
    for name, module in model.named_modules():
        cut = dict(module.named_children()).get("crop")
        if isinstance(cut, Crop) and isinstance(weight := module.weight, nn.Parameter):
            found[name] = (weight, cut)
    return found


def conv_sizes(model: nn.Module, runs: Sequence[Run], device: torch.device = META) -> dict[str, list[Size]]:
    """Finds the sizes, as (height, width), of the maps that each convolution of a model meets.

    Takes the net, the runs and their device as `input_shapes` does.

    Returns:
        Module name to its sizes, without doubles. Empty where it is called never or more than once in a forward pass.

    Raises:
        ShapesUnknownError: the net can't be run on shapes alone.
    """
    found = {}
    for name, met in input_shapes(model, runs, tuple(LIVE), device).items():
        axes = len(convolution(model, name).kernel_size)
        once = all(len(calls) == 1 for calls in met)
        found[name] = list(dict.fromkeys(calls[0][-axes:] for calls in met)) if once else []
    return found


def convolution(model: nn.Module, name: str) -> Convolution:
    """A convolution of a net by its name."""
    conv = model.get_submodule(name)
    assert isinstance(conv, Convolution)
    return conv


@dataclass(frozen=True)
class Cut:
    """How a convolution can be cropped.

    Attributes:
        axes: its live taps, of rows and columns.
        sizes: of the maps that it meets, as (height, width).
    """

    axes: tuple[Axis, ...]
    sizes: list[Size]


def cropped(conv: Convolution, cut: Cut) -> LiveConv:
    """A convolution with the live taps of another, and what it takes to give the whole kernel back."""
    live = LIVE[type(conv)](conv, cut.axes, cut.sizes)
    live.error, live.crop = RunError, Crop(conv.weight.detach().cpu().clone(), live.live)
    return live


def crop(conv: Convolution, size: Size) -> LiveConv | None:
    """Crops one convolution for a map of a size; None where nothing is dead."""
    axes = live_axes(conv, size)
    return cropped(conv, Cut(axes, [size])) if axes else None


def croppable(
    model: nn.Module, runs: Sequence[Run], device: torch.device = META
) -> tuple[dict[str, Cut], dict[str, str]]:
    """Which convolutions of a model can be cropped, and how; which others can't, and why.

    Takes the net, the runs and their device as `input_shapes` does.

    Raises:
        ShapesUnknownError: the net can't be run on shapes alone.
    """
    several, cut, left = several_names(model), dict[str, Cut](), dict[str, str]()
    for name, met in conv_sizes(model, runs, device).items():
        conv = convolution(model, name)
        why = refusal(conv, met, several)
        axes = None if why else live_axes(conv, met[0])
        if why:
            left[name] = why
        elif axes is not None:
            cut[name] = Cut(axes, met)
    for name in read_elsewhere(model, runs, cut, device) if cut else ():
        left[name] = "its weight is read by something else than its own call"
        del cut[name]
    return cut, left


def crop_refusal(model: nn.Module, passes: Passes) -> str | None:
    """Why nothing of a net can be cropped; None where something can."""
    if not any(isinstance(m, Convolution) for m in model.modules()):
        return "its model has no convolutions"
    try:
        cut, left = seen(passes, partial(croppable, model))
    except ShapesUnknownError as unknown:
        return str(unknown)
    if cut:
        return None
    whole = next((f"{name} is left whole: {why}" for name, why in left.items()), "")
    return whole or "no tap of its kernels meets padding alone"


def dead_parameters(recipe: Recipe) -> int | None:
    """Parameters in taps of the model that no map reaches and that could go; None where shapes tell nothing."""
    try:
        cut, _ = croppable(recipe.model, runs_of(recipe))
    except ShapesUnknownError:
        return None
    dead = 0
    for name, found in cut.items():
        conv = convolution(recipe.model, name)
        taps, live = math.prod(conv.kernel_size), math.prod(axis.kernel for axis in found.axes)
        dead += conv.weight.numel() // taps * (taps - live)
    return dead


def update_refusal(optimizer: Optimizer) -> str | None:
    """Why an optimizer would not leave all dead taps the same share of their start; None where it does.

    A weight whose gradient is always zero moves by weight decay alone. AdamW and SGD shrink all such weights alike.
    Adam's L2 goes through the moments, which divide each weight's decay by that weight's own size.
    """
    name = type(optimizer).__name__
    if hooked(optimizer):
        return f"what the hooks of its {name} do to weights without gradient is not known"
    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        return f"what {name} does to weights without gradient is not known"
    coupled = type(optimizer) is not torch.optim.SGD
    for group in optimizer.param_groups:
        if coupled and group["weight_decay"] and not group["decoupled_weight_decay"]:
            return f"{name} with L2 in the gradient ({group['weight_decay']:g}) moves each dead tap at its own rate"
    return None


def dead_taps(recipe: Recipe, options: Options) -> Recipe:
    """Crops every convolution that has dead taps; says how many parameters went, and why where none did."""
    reason = update_refusal(recipe.make_optimizer(recipe.model, recipe.learning_rate, **recipe.optimizer_options))
    if reason:
        return replace(recipe, notes=(*recipe.notes, f"dead taps left in: {reason}"))
    try:
        cut, left = seen(passes_of(recipe), partial(croppable, recipe.model))
        model = guarded(lambda: copy_of(recipe.model))
    except ShapesUnknownError as unknown:
        return replace(recipe, notes=(*recipe.notes, f"dead taps left in: {unknown}"))
    removed = 0
    for name, found in cut.items():
        conv = convolution(model, name)
        live = cropped(conv, found)
        model.set_submodule(name, live)
        removed += conv.weight.numel() - live.weight.numel()
    total = sum(p.numel() for p in recipe.model.parameters())
    notes = [f"dead taps of {name} left in: {why}" for name, why in left.items()]
    notes.append(f"{removed:,} of {total:,} parameters were dead taps")
    return replace(recipe, model=model, notes=(*recipe.notes, *notes))
