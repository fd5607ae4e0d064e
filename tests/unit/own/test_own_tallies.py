"""What a net or a workload counts in attributes begins anew after the warm-up and on each side of a comparison."""

import random

import numpy as np
import pytest
import torch
from tests.breaking_off import broken_off, figures
from tests.own_files import TUPLE, own_spec, write

from laptime import worker
from laptime.catalogue.own import place_of
from laptime.data.own.opened import open_own
from laptime.preflight.inspecting import inspect
from laptime.spec import RunSpec
from laptime.values.draws import seed_all
from laptime.values.tallies import numbers_of, put_back_numbers
from laptime.values.trees import sent
from laptime.workloads.base import Batch
from laptime.workloads.own import OwnWorkload

_LOSS = "return F.cross_entropy(scores, y)"
_BY_WORKLOAD = [
    ("    batch_size = 16\n", "    batch_size = 16\n    steps = 0\n"),
    (_LOSS, "self.steps += model.training\n        return min(1.0, (self.steps + 1) / 8) * F.cross_entropy(scores, y)"),
]
_NET = """
class Warmed(nn.Sequential):
    started = False

    def forward(self, x):
        if not self.started:  # as layers do that are set from their first batch
            self.started, self.steps = True, 0
            self[0].weight.data.div_(x.std())
        self.steps += self.training
        return super().forward(x) * min(1.0, (self.steps + 1) / 8)


class Workload:
"""
# As torch's observers do that see each channel: empty before the first batch.
_FILLED = """
class Observed(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self.register_buffer("steps", torch.empty(0))

    def forward(self, x):
        scores = super().forward(x)
        if not self.steps.numel():
            self.steps.resize_(2).copy_(scores.detach().mean(0))
        elif self.training:
            self.steps.lerp_(scores.detach().mean(0), 0.1)
        return scores - self.steps


class Workload:
"""
# Freezes the first layer with the third step.
_FREEZING = (
    "self.steps += model.training\n        if self.steps == 3:\n            model[0].requires_grad_(False)\n        "
)
_FROZEN = [_BY_WORKLOAD[0], (_LOSS, f"{_FREEZING}{_LOSS}")]
BY_FIRST = [("\nclass Workload:\n", _FILLED), ("return nn.Sequential(", "return Observed(")]
_BY_NET = [("\nclass Workload:\n", _NET), ("return nn.Sequential(", "return Warmed(")]


def spec_of(data, **changes) -> RunSpec:
    return own_spec(data, "cpu-baseline+no-reads+channels-last", **{"warmup_epochs": 1, **changes})


@pytest.mark.parametrize("changes", [_BY_WORKLOAD, _BY_NET, BY_FIRST, _FROZEN])
def test_the_warm_up_leaves_no_trace_and_both_sides_are_compared_at_the_same_count(file, tmp_path, changes):
    data = inspect(write(file, TUPLE.replace("nn.Dropout(), ", ""), *changes))

    def run(warmup: int):
        return worker.run(spec_of(data, warmup_epochs=warmup), tmp_path / str(warmup))

    without, with_one = run(0), run(1)
    assert (without.error, with_one.error) == (None, None)
    assert with_one.epochs[-1].train_loss == without.epochs[-1].train_loss
    assert with_one.check.passed


@pytest.mark.parametrize(
    ("changes", "refused"), [(_BY_WORKLOAD, True), (_BY_NET, True), (BY_FIRST, True), (_FROZEN, True), ((), False)]
)
def test_a_step_that_counts_is_not_recorded_since_a_replay_would_not_count(file, changes, refused):
    found = inspect(write(file, TUPLE, *changes)).own.refused
    assert ("changes steps in each step" in found.get("graph", "")) == refused


@pytest.mark.parametrize("changes", [_BY_WORKLOAD, _BY_NET, BY_FIRST, _FROZEN])
def test_a_resumed_run_goes_on_counting(file, tmp_path, changes):
    data = inspect(write(file, TUPLE, *changes))
    whole = worker.run(spec_of(data, epochs=3, check=False), tmp_path / "whole")
    spec = spec_of(data, epochs=3, check=False, checkpoints=str(tmp_path / "kept"))
    broken_off(spec, tmp_path / "first", after=2)
    resumed = worker.run(spec, tmp_path / "second")
    assert (whole.error, resumed.error, len(resumed.starts)) == (None, None, 2)
    assert figures(resumed) == figures(whole)


_MEAN = "self.mean = 0.9 * self.mean + 0.1 * scores.detach().mean()\n        scores = scores - self.mean\n        "
_LIST = "self.seen.append(scores.detach().mean())\n        scores = scores - torch.stack(self.seen).mean()\n        "


@pytest.mark.parametrize("kept", [_MEAN, _LIST])
def test_what_the_loss_keeps_has_values_behind_a_pass_on_shapes(kept, file, tmp_path):
    """Operations are counted on shapes alone before a run, and the sizes of maps found."""
    made = "    mean = torch.zeros(())\n\n    def __init__(self):\n        self.seen = []\n"
    begun = ("    batch_size = 16\n", f"    batch_size = 16\n{made}")
    data = inspect(write(file, TUPLE, begun, (_LOSS, kept + _LOSS)))
    record = worker.run(own_spec(data, check=False), tmp_path)
    assert record.status == "done", record.error
    assert record.flops_per_sample


def test_a_pass_on_shapes_draws_nothing(file):
    drawing = "random.random(), np.random.beta(1, 1), torch.randperm(len(x))\n        scores = model(x)"
    name = write(file, "import random\nimport numpy as np\n" + TUPLE, ("scores = model(x)", drawing))
    data = open_own(*place_of(name))
    workload, net = OwnWorkload("own", data), data.workload.model().to("meta")
    batch = sent(data.train.batch(range(4)), torch.device("meta"), torch.contiguous_format)
    seed_all(5)
    expected = (random.random(), np.random.rand(), torch.rand(1))
    seed_all(5)
    workload.forward(net, Batch(batch))
    assert (random.random(), np.random.rand(), torch.rand(1)) == expected


def test_a_number_that_hides_its_classes_goes_again():
    class Counter:
        steps = 0

        def __init__(self):
            self.limit, self.name = 8, "annealed"

    counter = Counter()
    kept = numbers_of(counter)
    counter.steps, counter.limit, counter.name, counter.later = 5, 9, "other", 1
    put_back_numbers(kept)
    assert vars(counter) == {"limit": 8, "name": "annealed"}
