"""Convolutions in NCHW and in NHWC: which are timed, how often they count, and that nothing is changed."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from measure_examples import tiny_recipe
from torch import nn

from laptime.measure import layouts
from laptime.measure.layouts import measure_layouts
from laptime.optimizations.shapes import ShapesUnknownError

LOCAL = 6


class Net(nn.Module):
    """A small convolution, and a large one that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 3)

    def forward(self, images):
        return self.head(self.large(self.large(self.small(images))).mean((2, 3)))


def recipe(**changes):
    return replace(tiny_recipe(), model=Net(), **changes)


@pytest.fixture
def timed(monkeypatch):
    """Layers that take 4 ms in NCHW and 3 ms in NHWC, the one on the images themselves half of that."""
    seen: list[tuple[tuple[int, ...], bool]] = []

    def layer_s(conv, images, _recipe):
        nhwc = images.is_contiguous(memory_format=torch.channels_last)
        assert conv.weight.is_contiguous(memory_format=torch.channels_last if nhwc else torch.contiguous_format)
        seen.append((tuple(images.shape), images.requires_grad))
        return (0.003 if nhwc else 0.004) / (1 if images.requires_grad else 2)

    monkeypatch.setattr(layouts, "layer_s", layer_s)
    return seen


def test_each_call_counts_and_the_batch_is_the_runs_own(timed):
    found = measure_layouts(recipe(), LOCAL)
    assert found is not None
    assert (found.nchw_ms, found.nhwc_ms, found.share) == (pytest.approx(10.0), pytest.approx(7.5), 1.0)
    side = recipe().image_size
    # Images are differentiated by nobody; two layers that are alike are timed once.
    assert set(timed) == {((LOCAL, 3, *side), False), ((LOCAL, 8, *side), True)}
    assert len(timed) == 2 * 2 * 4


def test_the_largest_goes_first_and_stands_for_the_rest_where_time_is_short(timed):
    ticks = iter(range(100))
    found = measure_layouts(recipe(), LOCAL, lambda: float(next(ticks)), budget_s=0.5)
    assert found is not None
    assert {shape[1] for shape, _ in timed} == {8}
    work = (2 * 8 * 8 * 9, 8 * 3)
    assert found.share == pytest.approx(work[0] / sum(work))
    assert found.nchw_ms == pytest.approx(8.0 / found.share)


def test_net_and_random_numbers_are_left_as_they_were():
    own = recipe()
    before, state = copy.deepcopy(own.model.state_dict()), torch.random.get_rng_state()
    found = measure_layouts(own, LOCAL)
    assert found is not None
    assert found.nchw_ms > 0
    assert found.nhwc_ms > 0
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in own.model.state_dict().items())
    assert not own.model.large.weight.is_contiguous(memory_format=torch.channels_last)


def test_frozen_layers_are_timed_without_their_gradient():
    own = recipe()
    own.model.requires_grad_(requires_grad=False)
    assert measure_layouts(own, LOCAL) is not None


def test_where_there_is_nothing_to_compare(monkeypatch):
    assert measure_layouts(recipe(channels_last=True), LOCAL) is None
    assert measure_layouts(recipe(compiled=True), LOCAL) is None
    assert measure_layouts(replace(recipe(), model=nn.Sequential(nn.Flatten(), nn.LazyLinear(3))), LOCAL) is None

    def unknown(*_):
        raise ShapesUnknownError("it looks at values")

    monkeypatch.setattr(layouts, "input_shapes", unknown)
    assert measure_layouts(recipe(), LOCAL) is None
