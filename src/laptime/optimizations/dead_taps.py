"""Stage model, dead taps: kernel taps that only ever meet padding are cropped away.

Where a feature map is smaller than the kernel, some taps never see a pixel: in torchvision's ResNet-18 on 32x32 images
layer4 works on 1x1 maps, so eight of the nine taps of its kernels multiply zeros. Their gradient is exactly zero, but
convolution, backward and optimizer pay for them. The cropped net computes the same function.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.optimizations.base import Options, Recipe


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


def live_axis(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> Axis | None:
    """Finds the live taps of one axis.

    Output o of tap t reads position `o * stride - padding + t * dilation`, so a tap lives when that falls into
    [0, size) for some output.

    Returns:
        None where no crop is exact: no tap lives, or the cropped kernel would start inside the map.
    """
    outputs = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    live = [t for t in range(kernel) if any(0 <= o * stride - padding + t * dilation < size for o in range(outputs))]
    if not live:
        return None
    first, last = live[0], live[-1]
    before = padding - first * dilation
    reach = (outputs - 1) * stride + dilation * (last - first) + 1
    after = max(0, reach - before - size)
    return Axis(first, last, before, after) if before >= 0 else None


@dataclass(frozen=True)
class Crop:
    """What was taken out of a kernel, to give it back.

    Attributes:
        full: the whole kernel at the start [out, in / groups, kh, kw], on the CPU.
        live: index of the live taps in it.
    """

    full: Tensor
    live: tuple[Any, ...]

    def whole(self, weight: Tensor) -> Tensor:
        """The whole kernel: dead taps as they were at the start, as the baseline leaves them."""
        return self._filled(self.full.clone(), weight.detach())

    def whole_gradient(self, gradient: Tensor) -> Tensor:
        """The gradient of the whole kernel: zero for dead taps."""
        return self._filled(torch.zeros_like(self.full), gradient)

    def _filled(self, whole: Tensor, part: Tensor) -> Tensor:
        whole = whole.to(part.dtype)
        whole[self.live] = part.cpu()
        return whole


class CroppedConv2d(nn.Conv2d):
    """A convolution with the live taps of another."""

    def __init__(self, conv: nn.Conv2d, rows: Axis, columns: Axis) -> None:
        super().__init__(
            conv.in_channels,
            conv.out_channels,
            (rows.last - rows.first + 1, columns.last - columns.first + 1),
            stride=conv.stride,  # type: ignore[arg-type]
            dilation=conv.dilation,  # type: ignore[arg-type]
            groups=conv.groups,
            bias=conv.bias is not None,
            device="meta",
        )
        live = (..., slice(rows.first, rows.last + 1), slice(columns.first, columns.last + 1))
        self.border = (columns.before, columns.after, rows.before, rows.after)
        self.crop = Crop(conv.weight.detach().cpu().clone(), live)
        self.weight = nn.Parameter(conv.weight.detach()[live].clone())
        self.bias = conv.bias

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] to the whole convolution's output."""
        padded = F.pad(images, self.border) if any(self.border) else images
        return super().forward(padded)

    def plain_weight(self, weight: Tensor) -> Tensor:
        """See `PlainLayout`."""
        return self.crop.whole(weight)

    def plain_gradient(self, gradient: Tensor) -> Tensor:
        """See `PlainLayout`."""
        return self.crop.whole_gradient(gradient)


def conv_inputs(model: nn.Module, image_size: tuple[int, int]) -> dict[str, list[tuple[int, int]]]:
    """Finds the input sizes (height, width) of each convolution by running the model on shapes alone.

    Returns:
        Module name to the sizes of all its calls in one forward pass.
    """
    shadow = copy.deepcopy(model).to("meta")
    sizes: dict[str, list[tuple[int, int]]] = {}
    hooks = [
        module.register_forward_pre_hook(_note_size(sizes.setdefault(name, [])))
        for name, module in shadow.named_modules()
        if isinstance(module, nn.Conv2d)
    ]
    with torch.no_grad():
        shadow(torch.empty(2, 3, *image_size, device="meta"))
    for hook in hooks:
        hook.remove()
    return sizes


def _note_size(seen: list[tuple[int, int]]) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def note(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen.append((inputs[0].shape[-2], inputs[0].shape[-1]))

    return note


def refusal(conv: nn.Conv2d, calls: int, shared: bool) -> str | None:
    """Why a convolution can't be cropped exactly; None when it can."""
    if shared or calls != 1:
        return "shared or called more than once"
    if conv.padding_mode != "zeros" or isinstance(conv.padding, str):
        return f"padding {conv.padding_mode!r} {conv.padding!r} is not a number of zeros"
    return None


def crop(conv: nn.Conv2d, size: tuple[int, int]) -> CroppedConv2d | None:
    """Crops one convolution for a map of (height, width); None where nothing is dead."""
    rows, columns = (
        live_axis(size[i], conv.kernel_size[i], conv.stride[i], int(conv.padding[i]), conv.dilation[i]) for i in (0, 1)
    )
    if rows is None or columns is None:
        return None
    if (rows.last - rows.first + 1, columns.last - columns.first + 1) == tuple(conv.kernel_size):
        return None
    return CroppedConv2d(conv, rows, columns)


def dead_taps(recipe: Recipe, options: Options) -> Recipe:
    """Crops every convolution that has dead taps; says how many parameters went."""
    model = copy.deepcopy(recipe.model)
    weight_decay = recipe.optimizer_options.get("weight_decay", 0)
    if weight_decay:
        # Weight decay moves dead taps too, so the plain state dict would differ from the baseline's.
        note = f"dead taps left in: weight decay {weight_decay} moves them"
        return replace(recipe, notes=(*recipe.notes, note))
    owners = Counter(id(p) for m in model.modules() for p in m.parameters(recurse=False))
    removed, notes = 0, []
    for name, calls in conv_inputs(model, recipe.image_size).items():
        conv = model.get_submodule(name)
        assert isinstance(conv, nn.Conv2d)
        reason = refusal(conv, len(calls), owners[id(conv.weight)] > 1)
        if reason:
            notes.append(f"dead taps of {name} left in: {reason}")
            continue
        cropped = crop(conv, calls[0])
        if cropped is not None:
            model.set_submodule(name, cropped)
            removed += conv.weight.numel() - cropped.weight.numel()
    total = sum(p.numel() for p in recipe.model.parameters())
    notes.append(f"{removed:,} of {total:,} parameters were dead taps")
    return replace(recipe, model=model, notes=(*recipe.notes, *notes))
