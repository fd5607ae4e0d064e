"""Reading operators of a trace: which are matrix work, and what their shapes say."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from laptime.records.trace import OperatorRow

LEAST_RATE = 1.1
_MATRIX = re.compile(r"conv|(^|[:_])(b?addb?mm|mm|bmm|matmul|linear|gemm)\b|scaled_dot|_mm$", re.IGNORECASE)
_CONVOLUTION = re.compile(r"conv", re.IGNORECASE)
_LAYOUT = re.compile(r"reorder|nchwtonhwc|nhwctonchw|convert_layout", re.IGNORECASE)
_LIST = re.compile(r"\[([\d,\s]+)\]")


def is_matrix_work(row: OperatorRow) -> bool:
    """Convolutions and matrix products: what matrix units and short precisions are for."""
    return bool(_MATRIX.search(row.name))


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


def map_and_kernel(row: OperatorRow) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Sides of a 2-D convolution's feature map and of its kernel, from the shapes of its inputs.

    The kernel is the four-dimensional input behind the map; backward has the gradient before both.
    """
    found = [[int(n) for n in text.split(",") if n.strip()] for text in _LIST.findall(row.shapes)]
    four = [sizes for sizes in found if len(sizes) == 4]
    if len(four) < 2:
        return None
    *_, pixels, kernel = four[: 3 if "backward" in row.name else 2]
    return (pixels[2], pixels[3]), (kernel[2], kernel[3])


def dead_parameters(rows: Iterable[OperatorRow]) -> float | None:
    """Share of the weights of all convolutions and linear layers that are dead taps; None where no shapes are known."""
    whole, dead = 0.0, 0.0
    for row in _forward(rows):
        found = [[int(n) for n in text.split(",") if n.strip()] for text in _LIST.findall(row.shapes)]
        weights = [sizes for sizes in found if len(sizes) == (2 if row.name.endswith("addmm") else 4)]
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
    """Share of a kernel's taps that only ever meet padding, at stride 1 with the padding that keeps the map's size.

    Output o of tap t reads o + t - k // 2, so of k taps on a side of n pixels min(k, 2n - 1) meet a pixel. 0 where the
    shapes don't say.
    """
    found = map_and_kernel(row)
    if found is None:
        return 0.0
    live = 1.0
    for side, taps in zip(*found, strict=True):
        live *= min(taps, 2 * side - 1) / taps if side > 0 and taps > 0 else 1.0
    return 1 - live
