"""How far one step is from another, of nets whose gradients fill a good part of the memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from laptime.engine import distances
from laptime.engine.distances import comparable_gradient, layer_errors, relative_error
from laptime.engine.one_step import compared
from laptime.records import CheckRecord


class _Largest(TorchDispatchMode):
    """Notes the largest tensor in float64 that comes out of any operator."""

    def __init__(self):
        super().__init__()
        self.doubles = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for each in found if isinstance(found, tuple | list) else [found]:
            if isinstance(each, torch.Tensor) and each.dtype == torch.float64:
                self.doubles = max(self.doubles, each.numel())
        return found


def test_a_large_layer_is_never_in_float64_as_a_whole():
    """A net of 300 million parameters took 48 bytes for each: a ladder on 16 GB was killed after it had trained."""
    values = torch.randn(3 * 2**22 + 1)
    with _Largest() as largest:
        one, other = {"w": compared(values)}, {"w": compared(values + 1e-3)}
        assert relative_error(one, other) == pytest.approx(1e-3, rel=1e-2)
        assert layer_errors(one, other)["w"] == pytest.approx(1e-3, rel=1e-2)
        assert comparable_gradient(1.0, one)
    assert largest.doubles <= distances._AT_ONCE
    assert compared(values).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_type_loses_a_bit(dtype):
    values = torch.randn(7, 3).to(dtype)
    assert compared(values).double().equal(values.double())


def test_parts_add_up_to_the_whole(monkeypatch):
    one, other = (torch.randn(5, 4, dtype=torch.float64) for _ in range(2))
    whole = relative_error({"w": one, "b": one[0]}, {"w": other, "b": other[0]})
    monkeypatch.setattr(distances, "_AT_ONCE", 3)
    # Of another memory layout: values are compared by their place, not by their address.
    laid_out = other.t().contiguous().t()
    assert relative_error({"w": one, "b": one[0]}, {"w": laid_out, "b": other[0]}) == pytest.approx(whole, rel=1e-12)


def test_what_is_no_number_is_never_near():
    broken, right = {"w": torch.tensor([1.0, math.nan])}, {"w": torch.ones(2)}
    assert not distances.within(relative_error(broken, right), 0.5)
    assert not distances.within(layer_errors(broken, right)["w"], 0.5)
    assert relative_error({}, {}) == relative_error({"w": torch.zeros(2)}, {"w": torch.zeros(2)}) == math.inf


@pytest.mark.parametrize(
    ("found", "expected", "said"),
    [
        ({"w": 0.0}, {"w": 0.0}, "zero in this step on both sides"),
        ({"w": 1.0}, {"w": 0.0}, "the baseline's are zero in this step, and this variant's are not"),
        ({"w": 1.0}, {"w": 1.0, "b": 1.0}, "b has one in the baseline alone"),
        ({"w": 1.0, "a": 1.0}, {"w": 1.0}, "a has one in this variant alone"),
        ({"w": 0.0}, {"w": 1.0}, ""),
        ({"w": math.nan}, {"w": 1.0}, ""),
    ],
)
def test_an_infinite_error_is_told_in_words(found, expected, said):
    """`gradients off by inf` had said nothing of a loss that has no gradient in its first step."""
    one, other = ({name: torch.full((2,), value) for name, value in side.items()} for side in (found, expected))
    why = distances.incomparable(one, other)
    assert said in why
    assert bool(why) == bool(said) == math.isinf(relative_error(one, other))
    told = CheckRecord(
        klass="exact",
        loss_baseline=1,
        loss_variant=1,
        loss_error=0,
        loss_tolerance=1,
        passed=not why,
        gradient_error=relative_error(one, other),
        gradient_tolerance=1,
        incomparable=why,
    ).refusal()
    assert "off by inf" not in told
    assert told.startswith(f"one step {'is not shown to be' if why else 'differs from'} the baseline's: loss 1 ")
    assert said in told
