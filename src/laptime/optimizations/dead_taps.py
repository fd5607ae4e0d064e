"""Stage model, dead taps: kernel taps that only ever meet padding are cropped away.

Where a feature map is smaller than the kernel, some taps never see a pixel: in torchvision's ResNet-18 on 32x32 images
layer4 works on 1x1 maps, so eight of the nine taps of its kernels multiply zeros. Their gradient is exactly zero, but
convolution, backward and optimizer pay for them. The cropped net computes the same function.

Weight decay is the one thing that still moves them. Decoupled decay (AdamW) and SGD's L2, with momentum or without, act
on a weight without gradient as the same linear recurrence for all of them, so each such tap is its initial value times
one factor. A cropped layer holds that factor as a buffer, and the optimizer updates it beside the layer's weight.
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torch.optim import Optimizer

from laptime.optimizations.base import Options, Recipe
from laptime.optimizations.shapes import ShapesUnknownError, guarded, input_shapes, runs_of

Size = tuple[int, int]


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution.

    Attributes:
        first, last: the live taps, inclusive; dead ones between them are kept.
        before, after: zero padding that the cropped kernel needs; never negative.
    """

    first: int
    last: int
    before: int
    after: int

    @property
    def kernel(self) -> int:
        """Taps of the cropped kernel."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Taps:
    """The taps of one axis of a convolution as it stands.

    Attributes:
        before, after: zero padding on either side; they differ for `same` with an even kernel.
    """

    kernel: int
    stride: int
    before: int
    after: int
    dilation: int = 1


def live_axis(size: int, taps: Taps) -> Axis | None:
    """Finds the live taps of one axis on a map of `size`.

    Output o of tap t reads position `o * stride - before + t * dilation`, so a tap lives when that falls into
    [0, size) for some output.

    Returns:
        None where no crop is exact: no tap lives, or the cropped kernel would start inside the map.
    """
    outputs = (size + taps.before + taps.after - taps.dilation * (taps.kernel - 1) - 1) // taps.stride + 1
    starts = range(-taps.before, -taps.before + outputs * taps.stride, taps.stride)
    live = [t for t in range(taps.kernel) if any(0 <= start + t * taps.dilation < size for start in starts)]
    if not live:
        return None
    first, last = live[0], live[-1]
    before = taps.before - first * taps.dilation
    reach = (outputs - 1) * taps.stride + taps.dilation * (last - first) + 1
    return Axis(first, last, before, max(0, reach - before - size)) if before >= 0 else None


def axes_of(conv: nn.Conv2d) -> tuple[Taps, Taps]:
    """The taps of rows and columns; the paddings `same` and `valid` in numbers."""
    rows, columns = (_taps(conv, i) for i in (0, 1))
    return rows, columns


def _taps(conv: nn.Conv2d, axis: int) -> Taps:
    kernel, dilation = conv.kernel_size[axis], conv.dilation[axis]
    if conv.padding == "same":
        whole = dilation * (kernel - 1)
        before, after = whole // 2, whole - whole // 2  # torch puts the odd one behind
    else:
        before = after = 0 if conv.padding == "valid" else int(conv.padding[axis])
    return Taps(kernel, conv.stride[axis], before, after, dilation)


class Crop(nn.Module):
    """What was taken out of a kernel, to give it back.

    Attributes:
        full: the whole kernel at the start [out, in / groups, kh, kw], on the CPU.
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

    def dead(self) -> Tensor:
        """Mask of the dead taps, of the whole kernel's shape."""
        mask = torch.ones_like(self.full, dtype=torch.bool)
        mask[self.live] = False
        return mask


class CroppedConv2d(nn.Conv2d):
    """A convolution with the live taps of another."""

    def __init__(self, conv: nn.Conv2d, rows: Axis, columns: Axis) -> None:
        super().__init__(
            conv.in_channels,
            conv.out_channels,
            (rows.kernel, columns.kernel),
            stride=conv.stride,  # type: ignore[arg-type]
            dilation=conv.dilation,  # type: ignore[arg-type]
            groups=conv.groups,
            bias=conv.bias is not None,
            device="meta",
        )
        live = (..., slice(rows.first, rows.last + 1), slice(columns.first, columns.last + 1))
        self.border = (columns.before, columns.after, rows.before, rows.after)
        self.crop = Crop(conv.weight.detach().cpu().clone(), live)
        self.weight = nn.Parameter(conv.weight.detach()[live].clone(), requires_grad=conv.weight.requires_grad)
        self.bias = conv.bias
        self.train(conv.training)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] to the whole convolution's output."""
        padded = F.pad(images, self.border) if any(self.border) else images
        return super().forward(padded)


def crops(model: nn.Module) -> dict[str, tuple[nn.Parameter, Crop]]:
    """Name to weight and crop of each module whose kernel was cropped, whatever computes it now."""
    found = {}
    for name, module in model.named_modules():
        cut, weight = getattr(module, "crop", None), getattr(module, "weight", None)
        if isinstance(cut, Crop) and isinstance(weight, nn.Parameter):
            found[name] = (weight, cut)
    return found


def conv_sizes(recipe: Recipe) -> dict[str, list[Size]]:
    """Finds the sizes (height, width) of the maps that each convolution of the recipe's model meets.

    Returns:
        Module name to its sizes, without doubles. Empty where it is called never or more than once in a forward pass.

    Raises:
        ShapesUnknownError: the net can't be run on shapes alone.
    """
    found = {}
    for name, runs in input_shapes(recipe.model, runs_of(recipe), nn.Conv2d).items():
        once = all(len(calls) == 1 for calls in runs)
        sizes = [(calls[0][-2], calls[0][-1]) for calls in runs] if once else []
        found[name] = list(dict.fromkeys(sizes))
    return found


def live_axes(conv: nn.Conv2d, size: Size) -> tuple[Axis, Axis] | None:
    """The live taps of rows and columns on a map of (height, width); None where nothing is dead or no crop is exact."""
    taps = axes_of(conv)
    rows, columns = live_axis(size[0], taps[0]), live_axis(size[1], taps[1])
    if rows is None or columns is None or (rows.kernel, columns.kernel) == conv.kernel_size:
        return None
    return rows, columns


def refusal(conv: nn.Conv2d, sizes: list[Size], shared: bool) -> str | None:
    """Why a convolution can't be cropped exactly; None when it can."""
    if shared or not sizes:
        return "its weight is shared, or it is not called exactly once"
    if type(conv) is not nn.Conv2d or not isinstance(conv.weight, nn.Parameter):
        return "its class or its weight's parametrization is its own"
    if conv._forward_hooks or conv._forward_pre_hooks or conv._backward_hooks:
        return "it has hooks"
    if conv.padding_mode != "zeros":
        return f"padding mode {conv.padding_mode!r} pads with something else than zeros"
    if len({live_axes(conv, size) for size in sizes}) > 1:
        return f"other taps are dead at other sizes ({', '.join(f'{h}x{w}' for h, w in sizes)})"
    return None


def crop(conv: nn.Conv2d, size: Size) -> CroppedConv2d | None:
    """Crops one convolution for a map of (height, width); None where nothing is dead."""
    axes = live_axes(conv, size)
    return CroppedConv2d(conv, *axes) if axes else None


def dead_parameters(recipe: Recipe) -> int | None:
    """Parameters in taps of the model that no map reaches and that could go; None where shapes tell nothing."""
    try:
        sizes = conv_sizes(recipe)
    except ShapesUnknownError:
        return None
    owners = Counter(id(p) for m in recipe.model.modules() for p in m.parameters(recurse=False))
    dead = 0
    for name, met in sizes.items():
        conv = recipe.model.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        axes = None if refusal(conv, met, owners[id(conv.weight)] > 1) else live_axes(conv, met[0])
        if axes is not None:
            taps = conv.kernel_size[0] * conv.kernel_size[1]
            dead += conv.weight.numel() // taps * (taps - axes[0].kernel * axes[1].kernel)
    return dead


def update_refusal(optimizer: Optimizer) -> str | None:
    """Why an optimizer would not leave all dead taps the same share of their start; None where it does.

    A weight whose gradient is always zero moves by weight decay alone. AdamW and SGD shrink all such weights alike.
    Adam's L2 goes through the moments, which divide each weight's decay by that weight's own size.
    """
    name = type(optimizer).__name__
    if type(optimizer) not in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        return f"what {name} does to weights without gradient is not known"
    coupled = type(optimizer) is not torch.optim.SGD
    for group in optimizer.param_groups:
        if coupled and group["weight_decay"] and not group["decoupled_weight_decay"]:
            return f"{name} with L2 in the gradient ({group['weight_decay']:g}) moves each dead tap at its own rate"
    return None


def dead_taps(recipe: Recipe, options: Options) -> Recipe:
    """Crops every convolution that has dead taps; says how many parameters went, and why where none did."""
    groups = recipe.make_groups(recipe.model)
    reason = update_refusal(recipe.make_optimizer(groups, recipe.learning_rate, **recipe.optimizer_options))
    if reason:
        return replace(recipe, notes=(*recipe.notes, f"dead taps left in: {reason}"))
    try:
        sizes, model = conv_sizes(recipe), guarded(lambda: copy.deepcopy(recipe.model))
    except ShapesUnknownError as unknown:
        return replace(recipe, notes=(*recipe.notes, f"dead taps left in: {unknown}"))
    owners = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    removed, notes = 0, []
    for name, met in sizes.items():
        conv = model.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        why = refusal(conv, met, owners[id(conv.weight)] > 1)
        if why:
            notes.append(f"dead taps of {name} left in: {why}")
            continue
        cropped = crop(conv, met[0])
        if cropped is not None:
            model.set_submodule(name, cropped)
            removed += conv.weight.numel() - cropped.weight.numel()
    total = sum(p.numel() for p in recipe.model.parameters())
    notes.append(f"{removed:,} of {total:,} parameters were dead taps")
    return replace(recipe, model=model, notes=(*recipe.notes, *notes))
