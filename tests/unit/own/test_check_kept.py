"""Both sides of the one-step check begin with what the user's object holds, wherever it hangs."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from torch import nn

from laptime.engine import kept, one_step
from laptime.engine.build import open_data
from laptime.engine.check import check_one_step
from laptime.engine.kept import Kept
from laptime.preflight.inspecting import inspect

_STILL = TUPLE.replace("nn.Dropout(), ", "")
_QUEUE = (
    "\n\nclass Queue:\n    def __init__(self):\n        self.rows, self.count, self.last = torch.ones(2), 1, None\n"
)
_BATCH = "    batch_size = 16\n"
_INIT = f"{_BATCH}\n    def __init__(self):\n        self."
_SCORES = "scores = model(x)"
# What holds a state, and what a step makes of it.
WAYS = {
    "a tensor in an object": ("queue = Queue()", "self.queue.rows.data.mul_(2); scores = scores * self.queue.rows"),
    "another tensor in an object": (
        "queue = Queue()",
        "self.queue.rows = self.queue.rows * 2; scores *= self.queue.rows",
    ),
    "a count in an object": ("queue = Queue()", "self.queue.count += 1; scores = scores * self.queue.count"),
    "a first value": (
        "queue = Queue()",
        "q = self.queue; q.last = 1 if q.last is None else 9; scores = scores * q.last",
    ),
    "a list in a dictionary": (
        "found = {'seen': []}",
        "self.found['seen'].append(x); scores *= len(self.found['seen'])",
    ),
    "a tensor in lists": (
        "found = [[torch.ones(2)]]",
        "self.found[0][0] = self.found[0][0] * 2; scores *= self.found[0][0]",
    ),
}


def checked(file, begin: str, step: str):
    scores = (_SCORES, f"{_SCORES}\n        {step.replace('scores *=', 'scores = scores *')}")
    text = _STILL.replace("\n\nclass Workload", f"{_QUEUE}\n\nclass Workload")
    data = inspect(write(file, text, (_BATCH, f"{_INIT}{begin}\n"), scores))
    spec = own_spec(data, "cpu-baseline+fused-optimizer")
    return check_one_step(spec, open_data(spec), 16)


@pytest.mark.parametrize("way", WAYS)
def test_an_exact_variant_is_right_whatever_holds_the_state_of_a_step(way, file):
    found = checked(file, *WAYS[way])
    assert found.passed, found
    assert found.loss_error < 1e-6
    assert not found.lost


def test_what_is_too_large_to_be_put_back_is_named(file, monkeypatch):
    monkeypatch.setattr(kept, "_SMALL", 4)
    found = checked(file, "large, untouched = torch.ones(2), torch.ones(2)", "self.large *= 2; scores *= self.large")
    assert found.lost == ("large",)
    assert "loss() writes to what the workload holds as large, which is too large" in found.findings()


class _Strict(OrderedDict):
    def update(self, *_):  # as the outputs of transformers' nets do
        raise TypeError("fixed")


@dataclass(slots=True)
class _Slots:
    rows: torch.Tensor


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:FutureWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # as torch 2.13 has it
def test_containers_nets_and_objects_have_the_very_parts_that_they_had():
    net, shown = nn.Linear(2, 2), torch.ones(1).expand(3)
    owner = SimpleNamespace(
        net=net,
        shown=shown,
        parts=_Strict(a=[1, {2}], b=deque([3], maxlen=1)),
        slots=_Slots(torch.zeros(2)),
        scripted=torch.jit.script(nn.Linear(2, 2)),
    )
    owner.itself = [owner]
    weight, bias, before = net.weight, net.bias.clone(), dict(vars(owner))
    scripted = owner.scripted.weight.clone()
    both = Kept(owner)
    for _ in range(2):
        net.weight, net.training = nn.Parameter(torch.zeros(2, 2)), False
        with torch.no_grad():
            net.bias.add_(1)
            owner.scripted.weight.add_(1)
        owner.parts["a"][1].add(4)
        owner.parts["b"].append(5)
        owner.parts["c"] = 6
        owner.slots.rows += 1
        owner.more, owner.shown = 7, None
        both.back()
        assert vars(owner) == before
        assert net.weight is weight
        assert net.training
        assert torch.equal(net.bias, bias)
        assert torch.equal(owner.scripted.weight, scripted)
        assert owner.parts == OrderedDict(a=[1, {2}], b=deque([3], maxlen=1))
        assert not owner.slots.rows.any()
    assert both.lost() == ()


def test_what_no_step_touches_is_not_written_to_and_copied_once(file, monkeypatch):
    made = []
    monkeypatch.setattr(one_step, "Kept", lambda owner: made.append(Kept(owner)) or made[-1])
    begin, step = "samples = torch.ones(64)", "scores *= self.samples[0]"
    assert checked(file, begin, step).passed
    (both,) = made
    ((samples, _),) = both._copies
    assert samples._version == 0
    assert Kept(None).lost() == ()
