"""What a trace says of operators beside shapes: the operands' type, how a kernel moves, formats of maps that meet."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from laptime.records.trace import MATRIX_WORK, MIXED, TRANSPOSED

# C++'s names for what laptime calls otherwise; any other type goes by torch's name.
_TYPES = {"float": "fp32", "double": "fp64", "c10::bfloat16": "bf16", "c10::half": "fp16"}
_SIZES = re.compile(r"\[\d+(, \d+)*\]")
_ONES = "[1, 1]"
_NAMES = (
    "add sub rsub mul div neg abs exp log sqrt rsqrt reciprocal pow square sigmoid tanh relu relu6 gelu silu mish "
    "leaky_relu elu hardswish hardsigmoid hardtanh clamp clamp_min clamp_max threshold_backward sigmoid_backward "
    "tanh_backward gelu_backward silu_backward leaky_relu_backward elu_backward hardswish_backward hardtanh_backward "
    "where maximum minimum eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or addcmul addcdiv "
    "lerp masked_fill native_dropout bernoulli sin cos erf fill"
)
_ELEMENTWISE = frozenset(_NAMES.split())


@lru_cache(maxsize=4096)
def is_matrix_work(name: str) -> bool:
    return MATRIX_WORK.search(name) is not None


@lru_cache(maxsize=4096)
def is_elementwise(name: str) -> bool:
    return name.startswith("aten::") and name[6:].rstrip("_") in _ELEMENTWISE


class Places(NamedTuple):
    """Where an operator takes its arguments, counted from 0, as in its schema; None for what it does not take."""

    stride: int
    padding: int
    dilation: int | None = None
    transposed: int | None = None


PLACES = {
    "aten::conv2d": Places(3, 4, 5),
    "aten::convolution": Places(3, 4, 5, 6),
    "aten::_convolution": Places(3, 4, 5, 6),
    "aten::convolution_overrideable": Places(3, 4, 5, 6),
    "aten::convolution_backward": Places(4, 5, 6, 7),
    "aten::convolution_backward_overrideable": Places(3, 4, 5, 6),
    "aten::cudnn_convolution": Places(3, 2, 4),
    "aten::cudnn_convolution_relu": Places(3, 4, 5),
    "aten::cudnn_convolution_add_relu": Places(5, 6, 7),
    "aten::miopen_convolution": Places(4, 3, 5),
    "aten::miopen_depthwise_convolution": Places(4, 3, 5),
    "aten::mkldnn_convolution": Places(4, 3, 5),
    "aten::_conv_depthwise2d": Places(4, 5, 6),
    "aten::slow_conv_dilated2d": Places(4, 5, 6),
    "aten::thnn_conv2d": Places(4, 5),
    "aten::_slow_conv2d_forward": Places(4, 5),
    "aten::_slow_conv2d_backward": Places(4, 5),
    "aten::_nnpack_spatial_convolution": Places(4, 3),
}


def dtype_of(dims: Any, types: Any) -> str:
    """The type of the first operand that is a matrix or more, in laptime's words; empty where the trace has none."""
    for sizes, name in zip(dims, types or (), strict=False):
        if isinstance(sizes, list) and len(sizes) > 1 and isinstance(sizes[0], int):
            return _TYPES.get(str(name).lower(), str(name))
    return ""


def window_of(name: str, concrete: Any) -> str:
    """How the kernel of a convolution moves over its map, such as `stride [2, 2] padding [1, 1] dilation [1, 1]`.

    Args:
        name: the operator's.
        concrete: its arguments as text, tensors empty; None where the trace has none.

    Returns:
        TRANSPOSED for a transposed one; empty where it is not known.
    """
    places = PLACES.get(name)
    if places is None or not isinstance(concrete, list) or len(concrete) <= max(p or 0 for p in places):
        return ""
    if places.transposed is not None and concrete[places.transposed] == "True":
        return TRANSPOSED
    stride, padding, dilation = (_ONES if place is None else str(concrete[place]) for place in places[:3])
    if not all(_SIZES.fullmatch(sizes) for sizes in (stride, padding, dilation)):
        return ""
    return f"stride {stride} padding {padding} dilation {dilation}"


def formats_of(dims: Any, strides: Any) -> str:
    """MIXED where maps [B, C, H, W] that an operator takes are in NCHW and in NHWC; empty otherwise.

    What is spread by strides of 0, and a map of one value or one channel, is in every format.
    """
    met = {_format(d, s) for d, s in zip(dims, strides, strict=False) if len(d) == len(s) == 4}
    return MIXED if {"NCHW", "NHWC"} <= met else ""


def _format(dims: list[int], strides: list[int]) -> str:
    _, channel, row, column = strides
    if dims[1] == 1 or dims[2] * dims[3] == 1 or 0 in strides:
        return ""
    return "NHWC" if channel < min(row, column) else "NCHW" if channel > max(row, column) else ""
