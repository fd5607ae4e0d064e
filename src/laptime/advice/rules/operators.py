"""Reading operators of a trace: which are matrix work, and what their shapes say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from laptime.records.trace import MATRIX_WORK, TRANSPOSED, OperatorRow

LEAST_RATE = 1.1
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)
_LAYOUT = re.compile(r"reorder|nchwtonhwc|nhwctonchw|convert_layout", re.IGNORECASE)
_LIST = re.compile(r"\[\s*(\d{1,18}(?:\s*,\s*\d{1,18})*)\s*\]")
# No kernel has as many taps on a side: what a trace says that does is not gone through tap by tap.
_MOST_TAPS = 4096


def is_matrix_work(row: OperatorRow) -> bool:
    """Convolutions and matrix products: what matrix units and short precisions are for."""
    return bool(MATRIX_WORK.search(row.name))


def is_convolution(row: OperatorRow) -> bool:
    """A convolution, forward or backward."""
    return bool(_CONVOLUTION.search(row.name))


def reorders_memory(row: OperatorRow) -> bool:
    """Only brings a tensor into another layout."""
    return bool(_LAYOUT.search(row.name))


def spent(rows: Iterable[OperatorRow], on_device: bool) -> float:
    """Self milliseconds of a step, on the device or on the host."""
    return sum(r.device_self_ms if on_device else r.self_ms for r in rows)


def in_bf16(work: float, rates: float) -> tuple[float, float]:
    """Milliseconds that go at a rate of bf16 over fp32; small shapes reach half of what large ones gain."""
    return work * (1 - 1 / (1 + 0.5 * (rates - 1))), work * (1 - 1 / rates)


def map_and_kernel(row: OperatorRow) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Sides of a convolution's feature map and of its kernel, as (height, width), from the shapes of its inputs.

    The kernel is the input behind the map, of as many dimensions; backward has the gradient before both.
    """
    found = _maps(row)
    if len(found) < 2:
        return None
    *_, pixels, kernel = found[: 3 if "backward" in row.name else 2]
    return tuple(pixels[2:]), tuple(kernel[2:])


def _maps(row: OperatorRow) -> list[list[int]]:
    """Shapes of a convolution's inputs [B, C, ...] along one to three axes."""
    found = shapes_of(row)
    return [sizes for sizes in found if len(sizes) == len(found[0]) and 3 <= len(sizes) <= 5]


def dead_parameters(rows: Iterable[OperatorRow]) -> float | None:
    """Share of the weights of all convolutions and linear layers that are dead taps; None where no shapes are known."""
    whole, dead = 0.0, 0.0
    for row in _forward(rows):
        linear = row.name.endswith("addmm")
        weights = [sizes for sizes in shapes_of(row) if len(sizes) == 2] if linear else _maps(row)
        if len(weights) >= 2:
            size = row.calls * math.prod(weights[1])
            whole, dead = whole + size, dead + size * dead_taps_of(row)
    return dead / whole if whole else None


def _forward(rows: Iterable[OperatorRow]) -> list[OperatorRow]:
    """Rows of linear layers and of forward convolutions, these under the one of their names that does the work."""
    rows = list(rows)
    convolutions = [r for r in rows if is_convolution(r) and "backward" not in r.name]
    names = {r.name for r in convolutions}
    worker = max(
        names, key=lambda n: sum(r.self_ms + r.device_self_ms for r in convolutions if r.name == n), default=""
    )
    return [r for r in rows if r.name == worker or r.name.endswith("addmm")]


def dead_taps_of(row: OperatorRow) -> float:
    """Share of a kernel's taps that a crop takes away, since they only ever meet padding; 0 where shapes don't say.

    Where the trace has neither stride nor padding, the stride is taken for 1 and the map for one that keeps its size.
    """
    found = map_and_kernel(row)
    if found is None or "transpose" in row.name or row.window == TRANSPOSED:
        return 0.0
    live = [_live_taps(side, taps, *_window(row, axis)) for axis, (side, taps) in enumerate(zip(*found, strict=True))]
    left = math.prod(taps or 0 for taps in live)
    return 1 - left / math.prod(found[1]) if left else 0.0


def _window(row: OperatorRow, axis: int) -> tuple[int, int | None, int]:
    """Stride, padding and dilation along an axis; the padding None where the trace does not say."""
    found = _lists(row.window)
    if len(found) != 3:
        return 1, None, 1
    stride, padding, dilation = (sizes[axis] if axis < len(sizes) else sizes[0] for sizes in found)
    return stride, padding, dilation


def _live_taps(side: int, taps: int, stride: int, padding: int | None, dilation: int) -> int | None:
    """Taps that a crop leaves along an axis, as `live_axis` of `laptime.optimizations` counts them; None for no crop.

    Output o of tap t reads `o * stride - before + t * dilation`.
    """
    if not (0 < taps <= _MOST_TAPS and side > 0 < stride and dilation > 0):
        return None
    before, after = ((taps - 1) // 2, taps // 2) if padding is None else (padding, padding)
    outputs = (side + before + after - dilation * (taps - 1) - 1) // stride + 1
    live = []
    for tap in range(taps):
        offset = tap * dilation - before
        first = max(0, -(offset // stride))
        if first < outputs and first * stride + offset < side:
            live.append(tap)
    return live[-1] - live[0] + 1 if live and live[0] * dilation <= before else None


def shapes_of(row: OperatorRow) -> list[list[int]]:
    """Of its inputs, as far as they are tensors with sides."""
    return _lists(row.shapes)


def _lists(text: str) -> list[list[int]]:
    return [[int(n) for n in sizes.split(",")] for sizes in _LIST.findall(text)]
