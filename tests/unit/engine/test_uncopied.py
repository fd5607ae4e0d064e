"""A net that can't be copied trains all the same: what looks at copies of it leaves it alone and says why."""

import threading
from dataclasses import replace

from torch import nn

from laptime.engine.flops import flops_per_sample
from laptime.engine.setup import biased_before_norm
from laptime.optimizations.dead_taps import dead_parameters, dead_taps


class Locked(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Flatten(), nn.LazyLinear(3))
        self.lock = threading.Lock()


def test_what_needs_a_copy_leaves_it_alone(recipe):
    recipe = replace(recipe, model=Locked())
    assert flops_per_sample(recipe) is None
    assert dead_parameters(recipe) is None
    assert biased_before_norm(recipe) == 0
    found = dead_taps(recipe, {})
    assert found.model is recipe.model
    assert "cannot pickle '_thread.lock'" in found.notes[-1]
