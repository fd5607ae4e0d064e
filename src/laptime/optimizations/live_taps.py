"""Which taps of a kernel ever meet a pixel, and a convolution of those alone; torch is all that it needs.

`laptime explain --code` prints these definitions as they stand here.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

Size = tuple[int, int]


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


class LiveConv2d(nn.Conv2d):
    """A convolution with the live taps of another.

    Attributes:
        live: index of the live taps in the whole kernel.
        border: zero padding as F.pad takes it: left, right, above, below; a negative one takes pixels away.
    """

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
        self.live = (..., slice(rows.first, rows.last + 1), slice(columns.first, columns.last + 1))
        self.border = (columns.before, columns.after, rows.before, rows.after)
        self.weight = nn.Parameter(conv.weight.detach()[self.live].clone(), requires_grad=conv.weight.requires_grad)
        self.bias = conv.bias
        self.train(conv.training)

    def forward(self, images: Tensor) -> Tensor:
        """[B, C, H, W] to the whole convolution's output."""
        padded = F.pad(images, self.border) if any(self.border) else images
        return super().forward(padded)
