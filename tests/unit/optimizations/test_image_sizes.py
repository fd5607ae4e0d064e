"""The CPU ladder on images of other sizes than CIFAR's: each rung is right, or says what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.conftest import make_data, make_spec

from laptime.catalogue import options_of
from laptime.data.tensors import ImageData, Split
from laptime.engine.build import make_recipe
from laptime.engine.check import check_one_step
from laptime.optimizations.dead_taps import dead_taps
from laptime.spec import OptimizationSpec
from laptime.variants import resolve

LADDER = resolve("cpu-optimized+products:layers=all+progressive-resizing+flip+crop+decay+ema")
COMPILED = resolve("cpu-optimized+progressive-resizing+flip+decay+ema+compile:backend=eager")


def sized(height: int, width: int) -> ImageData:
    data = make_data(train=18, test=6, size=max(height, width))

    def cut(split: Split) -> Split:
        return Split(split.images[:, :height, :width].contiguous(), split.labels)

    return replace(data, train=cut(data.train), test=cut(data.test))


@pytest.mark.parametrize("variant", [LADDER, COMPILED], ids=["products", "compile"])
@pytest.mark.parametrize(
    "size",
    [
        (40, 48),
        pytest.param((64, 64), marks=pytest.mark.long),
        pytest.param((96, 96), marks=pytest.mark.long),
        pytest.param((90, 17), marks=pytest.mark.long),
    ],
)
def test_one_step_of_the_whole_ladder(size, variant):
    found = check_one_step(make_spec(optimizations=variant.optimizations, epochs=2), sized(*size), 8)
    assert found.passed, found.findings()


# On 17x90 the last maps are 1x3: two rows of taps in three kernels of 512x512, one in that of 256x512 before them.
THIN = 3 * 512 * 512 * 6 + 256 * 512 * 3


@pytest.mark.parametrize(
    ("size", "parameters"),
    [((32, 32), 6_946_816), ((40, 48), 0), ((64, 64), 0), ((96, 96), 0), ((17, 90), THIN)],
)
def test_dead_taps_by_size(size, parameters):
    recipe = make_recipe(make_spec(), sized(*size), ())
    changed = dead_taps(recipe, options_of(OptimizationSpec(name="dead-taps")))
    assert changed.notes[-1].startswith(f"{parameters:,} of 11,178,051 parameters were dead taps")
