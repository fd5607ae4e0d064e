"""Which taps of a kernel ever meet a pixel, and a convolution of those alone; torch is all that it needs.

`laptime explain --code` prints these definitions as they stand here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torch.overrides import TorchFunctionMode

Size = tuple[int, ...]
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# What nets ask of their weights to place and to cast their inputs: a cropped weight gives the same answer.
HARMLESS = tuple(getattr(Tensor, name).__get__ for name in ("device", "dtype", "is_cuda", "requires_grad"))


@dataclass(frozen=True)
class Axis:
    """One axis of a convolution.

    Attributes:
        first, last: the live taps, inclusive; dead ones between them are kept.
        before: zero padding that the cropped kernel needs; never negative.
        after: the same on the other side; negative where as many pixels there would give outputs too many.
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
    after = reach - before - size
    unread = -taps.stride < after < 0  # pixels that are too few for one more output may stay
    return Axis(first, last, before, 0 if unread else after) if before >= 0 else None


def axes_of(conv: Convolution) -> tuple[Taps, ...]:
    """The taps of each axis, as rows and columns; the paddings `same` and `valid` in numbers."""
    return tuple(_taps(conv, axis) for axis in range(len(conv.kernel_size)))


def _taps(conv: Convolution, axis: int) -> Taps:
    kernel, dilation = conv.kernel_size[axis], conv.dilation[axis]
    if conv.padding == "same":
        whole = dilation * (kernel - 1)
        before, after = whole // 2, whole - whole // 2  # torch puts the odd one behind
    else:
        before = after = 0 if conv.padding == "valid" else int(conv.padding[axis])
    return Taps(kernel, conv.stride[axis], before, after, dilation)


def live_axes(conv: Convolution, size: Size) -> tuple[Axis, ...] | None:
    """The live taps of each axis on a map of `size`; None where nothing is dead or no crop is exact."""
    axes = [live_axis(length, taps) for length, taps in zip(size, axes_of(conv), strict=True)]
    found = tuple(axis for axis in axes if axis is not None)
    whole = tuple(axis.kernel for axis in found) == conv.kernel_size
    return None if whole or len(found) < len(axes) else found


def in_words(size: Size) -> str:
    """A size as people write it, such as 1x3."""
    return "x".join(map(str, size))


def several_names(model: nn.Module) -> set[int]:
    """Ids of the parameters that a net has under several names: tied ones, those of a module held twice."""
    # By torch's own method: torchrl's losses have one that takes no such argument.
    held = Counter(id(p) for _, p in nn.Module.named_parameters(model, remove_duplicate=False))
    return {key for key, names in held.items() if names > 1}


def refusal(conv: Convolution, sizes: list[Size], several: set[int]) -> str | None:
    """Why a convolution can't be cropped exactly; None when it can.

    Args:
        conv: of the net.
        sizes: of the maps that it meets; none where a pass in training or in evaluation does not call it exactly once.
        several: `several_names` of the net.
    """
    weight = conv._parameters.get("weight")  # none where a parametrization computes it
    met = ", ".join(map(in_words, sizes))
    reasons = {
        "its class or its weight's parametrization is its own": type(conv) not in LIVE or weight is None,
        "its forward was replaced": not vars(conv).keys().isdisjoint(("forward", "_conv_forward")),
        "it has hooks": any(vars(conv)[kind] for kind in HOOKS),
        "it or its weight is shared, under several names": id(weight) in several,
        "training and evaluation do not both call it exactly once": not sizes,
        f"padding mode {conv.padding_mode!r} pads with something else than zeros": conv.padding_mode != "zeros",
        f"other taps are dead at other sizes ({met})": len({live_axes(conv, size) for size in sizes}) > 1,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


class ForeignReads(TorchFunctionMode):
    """Within it, convolutions are found whose weight is read by something else than their own call.

    A cropped weight would give it another value: a penalty on all weights, a norm, a second convolution.

    Attributes:
        found: their names.
    """

    def __init__(self, convs: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.found: set[str] = set()
        self._names = {id(conv._parameters.get("weight")): name for name, conv in convs.items()}
        self._inside = ""
        for name, conv in convs.items():
            conv.register_forward_pre_hook(lambda *_, name=name: self._enter(name))
            conv.register_forward_hook(lambda *_: self._enter(""))

    def _enter(self, name: str) -> None:
        self._inside = name

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = [*args, *(kwargs or {}).values()]
        parts = [part for value in given for part in (value if isinstance(value, list | tuple) else (value,))]
        names = {self._names[id(part)] for part in parts if isinstance(part, Tensor) and id(part) in self._names}
        if func not in HARMLESS:
            self.found |= names - {self._inside}
        return func(*args, **(kwargs or {}))


class LiveConv(nn.Module):
    """A convolution with the live taps of another, of as many dimensions as the class of torch's beside it in `LIVE`.

    Attributes:
        live: index of the live taps in the whole kernel.
        border: zero padding as F.pad takes it: left, right, above, below; a negative one takes pixels away.
        sizes: of the maps that it was made for, as (height, width).
        error: what is raised where it meets a map on which other taps live.
    """

    error: type[Exception] = ValueError
    weight: Tensor
    bias: Tensor | None

    def __init__(self, conv: Convolution, axes: tuple[Axis, ...], sizes: Iterable[Size]) -> None:
        super().__init__(
            conv.in_channels,
            conv.out_channels,
            tuple(axis.kernel for axis in axes),
            stride=conv.stride,
            dilation=conv.dilation,
            groups=conv.groups,
            bias=conv.bias is not None,
            device="meta",
        )
        self.sizes, self._axes, self._taps = tuple(sizes), axes, axes_of(conv)
        self.live: tuple[Any, ...] = (..., *(slice(axis.first, axis.last + 1) for axis in axes))
        self.border = tuple(zeros for axis in reversed(axes) for zeros in (axis.before, axis.after))
        self.weight = nn.Parameter(conv.weight.detach()[self.live].clone(), requires_grad=conv.weight.requires_grad)
        self.bias = conv.bias
        self.train(conv.training)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, *size] to the whole convolution's output; raises `error` where that would be another one."""
        size = tuple(images.shape[-len(self._axes) :])
        if size not in self.sizes:
            self._check(size)
        padded = F.pad(images, self.border) if any(self.border) else images
        found: Tensor = super().forward(padded)
        return found

    def _check(self, size: Size) -> None:
        if tuple(map(live_axis, size, self._taps)) != self._axes:
            known = ", ".join(map(in_words, self.sizes))
            raise self.error(
                f"a kernel that was cropped for maps of {known} met one of {in_words(size)}, on which other taps "
                "live: leave dead-taps out, or give images of one size."
            )


class LiveConv1d(LiveConv, nn.Conv1d):
    """Along a line."""


class LiveConv2d(LiveConv, nn.Conv2d):
    """Over an image."""


class LiveConv3d(LiveConv, nn.Conv3d):
    """Through a volume or a film."""


LIVE: dict[type, type[LiveConv]] = {nn.Conv1d: LiveConv1d, nn.Conv2d: LiveConv2d, nn.Conv3d: LiveConv3d}
