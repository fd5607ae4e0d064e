"""Dead taps by what a trace says of a convolution, held to the count of those who crop them."""

from __future__ import annotations

import itertools
import math

import pytest

from laptime.advice.rules.operators import dead_parameters, dead_taps_of
from laptime.optimizations.live_taps import Taps, live_axis
from laptime.records.trace import OperatorRow

_WINDOWS = [
    (kernel, stride, padding, dilation)
    for kernel, stride, padding, dilation in itertools.product(range(1, 8), (1, 2, 3), range(4), (1, 2))
]


def _row(side: int, kernel: int, window: str, name: str = "aten::conv2d") -> OperatorRow:
    return OperatorRow(name=name, shapes=f"[8, 4, {side}, {side}] [4, 4, {kernel}, {kernel}]", window=window, calls=1.0)


@pytest.mark.parametrize("side", [1, 2, 3, 4, 7, 16])
def test_the_count_is_that_of_the_crop(side: int) -> None:
    seen = 0
    for kernel, stride, padding, dilation in _WINDOWS:
        if side + 2 * padding < dilation * (kernel - 1) + 1:
            continue  # no convolution of such a map
        axis = live_axis(side, Taps(kernel, stride, padding, padding, dilation))
        left = 1.0 if axis is None else (axis.kernel / kernel) ** 2
        window = f"stride [{stride}, {stride}] padding [{padding}, {padding}] dilation [{dilation}, {dilation}]"
        assert dead_taps_of(_row(side, kernel, window)) == pytest.approx(1 - left), (kernel, window)
        seen += left < 1
    assert seen > 0 or side == 16


@pytest.mark.parametrize(
    ("window", "dead"),
    [
        ("stride [2, 2] padding [1, 1] dilation [1, 1]", 5 / 9),
        ("stride [1, 1] padding [1, 1] dilation [1, 1]", 0.0),
        ("stride [2, 1] padding [1, 1] dilation [1, 1]", 1 / 3),
        ("stride [2] padding [1] dilation [1]", 5 / 9),
        ("", 0.0),
        ("transposed", 0.0),
        ("stride [0, 0] padding [1, 1] dilation [1, 1]", 0.0),
        ("stride [ , ] padding [] dilation [1]", 0.0),
    ],
)
def test_resnets_convolution_with_stride_2_on_a_map_of_2x2(window: str, dead: float) -> None:
    assert dead_taps_of(_row(2, 3, window)) == pytest.approx(dead)


@pytest.mark.parametrize(("side", "kernel"), list(itertools.product((1, 2, 3, 5), (1, 2, 3, 4, 5, 7))))
def test_without_a_window_the_map_keeps_its_size(side: int, kernel: int) -> None:
    assert dead_taps_of(_row(side, kernel, "")) == pytest.approx(1 - (min(kernel, 2 * side - 1) / kernel) ** 2)


def test_a_transposed_convolution_has_none() -> None:
    assert dead_taps_of(_row(1, 4, "", name="aten::cudnn_convolution_transpose")) == 0.0


def test_absurd_sizes_are_not_gone_through() -> None:
    window = f"stride [1, 1] padding [{10**17}, 1] dilation [1, 1]"
    assert dead_taps_of(_row(10**17, 3, window)) == 0.0
    assert dead_taps_of(_row(1, 10**17, "")) == 0.0


def test_the_share_of_the_parameters_follows_the_stride() -> None:
    window = "stride [2, 2] padding [1, 1] dilation [1, 1]"
    rows = (_row(2, 3, window), _row(8, 3, "stride [1, 1] padding [1, 1] dilation [1, 1]"))
    assert dead_parameters(rows) == pytest.approx(5 / 18)
    assert math.isclose(dead_parameters((_row(2, 3, "transposed"),)) or 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "shapes", "window", "dead"),
    [
        ("aten::conv1d", "[8, 3, 2] [4, 3, 5] [4]", "stride [1] padding [2] dilation [1]", 2 / 5),
        (
            "aten::mkldnn_convolution",
            "[8, 3, 1, 2] [4, 3, 1, 5] [4]",
            "stride [1, 1] padding [0, 2] dilation [1, 1]",
            2 / 5,
        ),
        ("aten::convolution_backward", "[8, 4, 2] [8, 3, 2] [4, 3, 5]", "", 2 / 5),
        (
            "aten::conv3d",
            "[8, 3, 1, 2, 4] [4, 3, 3, 3, 3]",
            "stride [1, 1, 1] padding [1, 1, 1] dilation [1, 1, 1]",
            2 / 3,
        ),
        ("aten::conv1d", "[3, 2] [4, 3, 5] [4]", "stride [1] padding [2] dilation [1]", 0.0),
    ],
)
def test_lines_and_films_are_counted_too(name: str, shapes: str, window: str, dead: float) -> None:
    row = OperatorRow(name=name, shapes=shapes, window=window, calls=1.0)
    assert dead_taps_of(row) == pytest.approx(dead)
    if "backward" not in name:
        assert (dead_parameters((row,)) or 0.0) == pytest.approx(dead)
