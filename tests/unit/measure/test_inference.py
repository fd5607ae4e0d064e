"""Forward passes alone: which sizes, how many passes, and that nothing is changed."""

from dataclasses import replace

import pytest
import torch
from measure_examples import tiny_recipe
from tests.unit.conftest import make_data

from laptime.engine.build import build
from laptime.measure.inference import measure_inference


class Slow:
    """A clock that moves on by a fixed time whenever it is read."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now, self.reads = seconds, 0.0, 0

    def __call__(self) -> float:
        self.now += self.seconds
        self.reads += 1
        return self.now


def built(*names: str, test: int = 40, **changes):
    recipe = replace(tiny_recipe(*names), data=make_data(train=28, test=test, size=8), **changes)
    return build(recipe, mark=lambda _: None), recipe


def test_sizes_are_one_the_usual_one_and_the_run_s_own():
    parts, recipe = built()
    found = measure_inference(parts, recipe, budget_s=0.01)
    assert [f.batch_size for f in found] == [1, 8, 32]
    for one in found:
        assert 0 < one.pass_ms.low <= one.pass_ms.median <= one.pass_ms.high
        assert one.samples_per_s == pytest.approx(1000 * one.batch_size / one.pass_ms.median)


def test_sizes_without_test_images_are_left_out():
    parts, recipe = built(test=6)
    assert [f.batch_size for f in measure_inference(parts, recipe, budget_s=0.01)] == [1]


@pytest.mark.parametrize(("seconds", "passes"), [(2**-10, 50), (0.125, 3), (0.5, 1), (9.0, 1)])
def test_passes_are_as_many_as_fit_into_the_budget(seconds, passes):
    parts, recipe = built(test=1)
    clock = Slow(seconds)
    (one,) = measure_inference(parts, recipe, clock, budget_s=0.5)
    assert clock.reads == 2 * (1 + passes)
    assert one.pass_ms.median == pytest.approx(1000 * seconds)


def test_model_and_random_state_are_left_as_they_were():
    class Noisy(torch.nn.Module):
        def forward(self, images):
            assert not self.training
            assert torch.is_inference_mode_enabled()
            return images.new_ones(len(images), 3) * torch.rand(())

    recipe = replace(tiny_recipe(), model=torch.nn.Sequential(torch.nn.BatchNorm2d(3), Noisy(), torch.nn.Linear(3, 3)))
    parts = build(recipe, mark=lambda _: None)
    before = {name: value.clone() for name, value in parts.model.state_dict().items()}
    random = torch.get_rng_state()
    assert measure_inference(parts, recipe, budget_s=0.01)
    assert parts.model.training
    assert torch.get_rng_state().equal(random)
    assert all(value.equal(before[name]) for name, value in parts.model.state_dict().items())
    assert all(p.grad is None for p in parts.model.parameters())


def test_it_measures_the_average_in_the_run_s_precision():
    parts, recipe = built("ema", "bf16")
    seen = []
    forward = parts.forward

    def spied(model, batch):
        output = forward(model, batch)
        seen.append((model is parts.average.model, batch.inputs.dtype))
        return output

    parts.forward = spied
    measure_inference(parts, recipe, budget_s=0.01)
    assert set(seen) == {(True, torch.float32)}
    assert forward is recipe.forward
