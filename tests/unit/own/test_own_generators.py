"""Small arrays and generators of a user's own begin anew behind the warm-up, as a loop by hand has them, and go on."""

import random
import sys

import numpy as np
import pytest
import torch
from tests.breaking_off import broken_off, figures
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import STEPPED, by_hand, run

from laptime.preflight.inspecting import inspect
from laptime.values.tallies import changed, numbers_of, put_back_numbers, untouched

_STILL = TUPLE.replace("nn.Dropout(), ", "")
_HELD = """
import random
from collections import deque
from functools import partial

import numpy as np

RNG = np.random.default_rng(7)

class Noise:
    def __init__(self):
        self.rng, self.scale = np.random.RandomState(3), np.ones(2, np.float32)

class Workload:
    def __init__(self):
        self.noise, self.parts = Noise(), {"draws": random.Random(5), "seen": np.zeros((2, 2), np.int64)}
        self.losses, self.recent = [], deque(maxlen=3)
        self.torch, self.array = torch.Generator().manual_seed(1), np.zeros(1)
        self.draw = partial(random.Random(9).uniform, 0.5, 1.5)

"""
# What a step of a training does; `by` is 1 in training.
STEPS = {
    "torch": "loss = loss * (torch.rand((), generator=self.torch) if by else 1)",
    "numpy": "loss = loss * (self.noise.rng.rand() if by else 1)",
    "a global": "loss = loss * (RNG.random() if by else 1)",
    "random": "loss = loss * (self.parts['draws'].gauss(1, 0.1) if by else 1)",
    "a method": "loss = loss * (self.draw() if by else 1)",
    "array": "self.array += by; loss = loss * (0.5 if self.array[0] > 5 else 1)",
    "array in a dictionary": (
        "seen = self.parts['seen']; seen[0, 1] += by; loss = loss * (0.5 if seen[0, 1] > 5 else 1)"
    ),
    "a mean": "a = self.noise.scale; a[:] += 0.1 * by * (loss.item() - a); loss = loss / float(a[1])",
    "a new list": (
        "self.losses = self.losses + [loss.item()] * by; loss = loss * (0.5 if len(self.losses) > 5 else 1)"
    ),
    "a new deque": (
        "self.recent = deque([*self.recent] + [loss.item()] * by, 3)\n"
        "        loss = loss / (sum(self.recent) if len(self.recent) > 2 else 1)"
    ),
    "a new array": "self.array = self.array + by; loss = loss * (0.5 if self.array[0] > 5 else 1)",
}


def _file(file, step: str):
    counted = f"        by, loss = int(model.training), F.cross_entropy(scores, y)\n        {step}\n        return loss"
    made = (("\nclass Workload:\n", _HELD), ("    def loss(", STEPPED))
    return inspect(write(file, _STILL, *made, ("        return F.cross_entropy(scores, y)", counted)))


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_runs_train_as_a_loop_by_hand(step, file, tmp_path):
    data = _file(file, step)
    truth = by_hand(file, 2)
    assert "goes on from the warm-up" not in data.notice
    for variant, within in (("cpu-baseline", 0.0), ("cpu-baseline+no-reads+fused-optimizer", 1e-6)):
        found = run(
            own_spec(data, variant, learning_rate=0.1, epochs=2, check=False, warmup_epochs=1), tmp_path / variant
        )
        assert found.error is None
        assert [e.train_loss for e in found.epochs] == pytest.approx(truth, rel=within, abs=0)
        assert not any("of the warm-up had a loss of" in note for note in found.notes)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_resumed_run_goes_on_with_it(step, file, tmp_path):
    data = _file(file, step)
    whole = run(own_spec(data, epochs=3, check=False, warmup_epochs=1), tmp_path / "whole")
    spec = own_spec(data, epochs=3, check=False, warmup_epochs=1, checkpoints=str(tmp_path / "kept"))
    sys.modules.pop(file.stem)
    broken_off(spec, tmp_path / "first", after=1)
    resumed = run(spec, tmp_path / "second")
    assert (whole.error, resumed.error, len(resumed.starts)) == (None, None, 2)
    assert figures(resumed) == figures(whole)


class _Held:
    def __init__(self, **held):
        vars(self).update(held)


class _Own:
    def __init__(self):
        kinds = (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64)
        self.numpy = [np.random.Generator(kind(1)) for kind in kinds]
        self.old, self.python, self.torch = np.random.RandomState(1), random.Random(1), torch.Generator()
        self.array, self.empty, self.large = np.arange(6.0).reshape(2, 3), np.ones(0), np.zeros(101)

    def drawn(self):
        self.array[0, 1:] += 1
        ours = [generator.normal() for generator in (*self.numpy, self.old)]
        return [*ours, self.python.gauss(0, 1), float(torch.rand((), generator=self.torch)), *self.array.ravel()]


def test_generators_of_all_kinds_and_arrays_are_where_they_were():
    own = _Own()
    own.drawn()
    kept = numbers_of(own)
    first = own.drawn()
    assert set(changed(kept)) == {"numpy", "old", "python", "torch", "array"}
    put_back_numbers(kept)
    assert changed(kept) == ()
    assert own.drawn() == first
    put_back_numbers(kept)
    with untouched(own):
        own.drawn()
    assert own.drawn() == first


def test_what_draws_for_the_process_and_what_nobody_may_write_to_are_left_alone():
    still = np.ones(2)
    still.flags.writeable = False
    whole = (random.choice, np.random.mtrand._rand, torch.default_generator, random.SystemRandom())
    own = _Held(whole=whole, still=still, names=np.array(["a"]), part=np.ones(3).view(np.memmap))
    kept = numbers_of(own)
    before = random.random(), np.random.rand(), torch.rand(())
    put_back_numbers(kept)
    after = random.random(), np.random.rand(), torch.rand(())
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_an_array_that_has_another_size_by_now_stays():
    own = _Held(array=np.ones(2))
    kept = numbers_of(own)
    own.array.resize(3, refcheck=False)
    put_back_numbers(kept)
    assert own.array.tolist() == [1, 1, 0]
