"""What code of a user's keeps in objects, containers and closures begins anew behind the warm-up, or is told."""

import sys
from collections import Counter, deque
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from tests.breaking_off import broken_off, figures
from tests.own_files import TUPLE, own_spec, write
from torch.utils.data import Dataset

from laptime import worker
from laptime.preflight.inspecting import inspect
from laptime.values.counting import Place
from laptime.values.tallies import changed, numbers_of, put_back_numbers

_STILL = TUPLE.replace("nn.Dropout(), ", "")
_LOSS = "        return F.cross_entropy(scores, y)"
_CLASS = "\nclass Workload:\n"
_HELD = """
import copy
import itertools
from collections import deque
from types import SimpleNamespace

import numpy as np

class Config:
    def __init__(self):
        self.steps, self.late, self.net = 0, False, None

def annealed():
    n = 0
    def factor(by):
        nonlocal n
        n += by
        return 0.5 if n > 5 else 1.0
    return factor

def ramp(by, seen=[0]):
    ramp.n += by
    seen[0] += by
    return 0.5 if min(ramp.n, seen[0]) > 5 else 1.0
ramp.n = 0

@torch.no_grad()
def slope(by):
    slope.n += by
    return 0.5 if slope.n > 5 else 1.0
slope.n = 0

STATE, REGISTERED = {"step": 0}, []

class Workload:
    seen = []
    def __init__(self):
        self.cfg, self.factor, self.state, self.losses, self.rows = Config(), annealed(), {}, deque(maxlen=3), []
        self.bank, self.array, self.count = {}, np.zeros(1), itertools.count()

"""
# What a step of a training does; `by` is 1 in training.
PLAIN = {
    "object": "self.cfg.steps += by; loss = loss * (0.5 if self.cfg.steps > 5 else 1)",
    "flag": "self.cfg.steps += by; self.cfg.late |= self.cfg.steps > 2; loss = loss * (0.5 if self.cfg.late else 1)",
    "closure": "loss = loss * self.factor(by)",
    "function": "loss = loss * ramp(by)",
    "decorated": "loss = loss * slope(by)",
    "entry": "self.state['n'] = self.state.get('n', 0) + by; loss = loss * (0.5 if self.state['n'] > 5 else 1)",
    "global": "STATE['step'] += by; loss = loss * (0.5 if STATE['step'] > 5 else 1)",
    "of the class": "self.seen.extend([1] * by); loss = loss * (0.5 if len(self.seen) > 5 else 1)",
    "deque": "self.losses.extend([loss.item()] * by); loss = loss / (sum(self.losses) if len(self.losses) > 2 else 1)",
}
TENSORS = {
    "list": "self.rows += [loss.detach()] * by; loss = loss / (sum(self.rows[-6:]) if len(self.rows) > 5 else 1)",
    "bank": "was = self.bank.get(0, loss.detach()); loss = loss / was; self.bank[0] = 0.9 * was + 0.1 * loss.detach()",
    "teacher": (
        "c = self.cfg; c.net = c.net or copy.deepcopy(model).requires_grad_(False)\n"
        "        loss = loss + F.mse_loss(scores, c.net(x))\n"
        "        if by:\n"
        "            c.net[0].weight.lerp_(model[0].weight.detach(), 0.5)"
    ),
}
UNREACHED = {
    "iterator": "loss = loss * (0.5 if next(self.count) > 3 else 1)",
}


def _file(file, step: str):
    counted = f"        by, loss = int(model.training), F.cross_entropy(scores, y)\n        {step}\n        return loss"
    return inspect(write(file, _STILL, (_CLASS, _HELD), (_LOSS, counted)))


def _run(spec, folder):
    sys.modules.pop(Path(spec.data.path).stem, None)
    return worker.run(spec, folder)


@pytest.mark.parametrize("step", [*PLAIN.values(), *TENSORS.values()], ids=[*PLAIN, *TENSORS])
def test_the_counted_epochs_are_those_of_a_run_without_a_warm_up(step, file, tmp_path):
    data = _file(file, step)
    runs = (_run(own_spec(data, epochs=2, check=False, warmup_epochs=n), tmp_path / str(n)) for n in (0, 1))
    without, with_one = runs
    assert (without.error, with_one.error) == (None, None)
    assert [e.train_loss for e in with_one.epochs] == [e.train_loss for e in without.epochs]
    assert not any("first step of the warm-up" in note for note in with_one.notes)


@pytest.mark.parametrize("step", PLAIN.values(), ids=PLAIN)
def test_a_resumed_run_goes_on_with_plain_values(step, file, tmp_path):
    data = _file(file, step)
    whole = _run(own_spec(data, epochs=3, check=False, warmup_epochs=1), tmp_path / "whole")
    spec = own_spec(data, epochs=3, check=False, warmup_epochs=1, checkpoints=str(tmp_path / "kept"))
    sys.modules.pop(file.stem)
    broken_off(spec, tmp_path / "first", after=1)
    resumed = _run(spec, tmp_path / "second")
    assert (whole.error, resumed.error, len(resumed.starts)) == (None, None, 2)
    assert figures(resumed) == figures(whole)


@pytest.mark.parametrize("step", UNREACHED.values(), ids=UNREACHED)
def test_what_nothing_reaches_is_told_with_both_losses(step, file, tmp_path):
    data = _file(file, step)
    assert "what it changes in count goes on from the warm-up" in data.notice
    record = _run(own_spec(data, epochs=1, check=False, warmup_epochs=1), tmp_path)
    assert record.error is None
    (told,) = (note for note in record.notes if "first step of the warm-up had a loss of" in note)
    assert "goes on into the counted epochs" in told


_ONCE = """if "lib" not in self.bank:
            assert len(REGISTERED) < 2, "registered twice"  # once on shapes alone, where operations are counted
            REGISTERED.append("lib")
            self.bank["lib"] = object()
        loss = loss * (0.5 if next(self.count) > 3 else 1)"""


def test_what_was_computed_once_is_kept(file, tmp_path):
    """What a dictionary has besides does not change the loss, so it is not thrown away: once in the warm-up."""
    step = "self.bank[0] = self.bank.get(0) if 0 in self.bank else (REGISTERED.append('made'), torch.ones(()))"
    data = _file(file, f"{step}; loss = loss * self.bank[0][1]")
    record = _run(own_spec(data, check=False, warmup_epochs=1), tmp_path)
    assert record.error is None
    assert sys.modules[file.stem].REGISTERED == ["made"] * 2  # once on shapes alone
    assert not any("first step of the warm-up" in note for note in record.notes)


def test_where_a_step_fails_behind_what_is_put_back_all_goes_on_as_it_was(file, tmp_path):
    record = _run(own_spec(_file(file, _ONCE), epochs=1, check=False, warmup_epochs=1), tmp_path)
    assert record.error is None
    assert any("first step of the warm-up had a loss of" in note for note in record.notes)


class _Items(Dataset):
    def __init__(self):
        self.read = 0


class _Own:
    def __init__(self):
        self.items, self.losses, self.large = _Items(), deque([1.0], maxlen=2), [0] * 101
        self.counts, self.nested, self.space = Counter(a=1), ([0], {1}), SimpleNamespace(step=0)
        self.call = partial(_scaled, state={"factor": 1.0})


def _scaled(value, state):
    return value * state["factor"]


def test_containers_hold_what_they_held_and_data_are_left_alone():
    own = _Own()
    kept, held = numbers_of(own), vars(own).copy()
    own.items.read, own.space.step, own.large[0] = 5, 5, 5
    own.losses.extend([2.0, 3.0])
    own.counts.update("ab")
    own.nested[0][0] = 5
    own.nested[1].add(5)
    own.call.keywords["state"]["factor"] = 0.5
    assert set(changed(kept)) == {"losses", "counts['a']", "counts['b']", "nested", "step", "call['factor']"}
    put_back_numbers(kept)
    assert vars(own) == held
    assert (own.losses, own.losses.maxlen, own.counts, own.nested) == (deque([1.0]), 2, Counter(a=1), ([0], {1}))
    assert (own.items.read, own.space.step, own.large[0], own.call(1)) == (5, 0, 5, 1.0)


def test_what_all_share_keeps_flags_and_what_are_no_numbers():
    """A library that was registered once is known by a flag, or by its name in a list."""
    shared = Place({"ready": False, "steps": 0}, "STATE", False), Place(["a"], "NAMES", False), Place([1], "N", False)
    kept = [(place, place.held(), frozenset(place.held())) for place in shared]
    shared[0].owner.update(ready=True, steps=5)
    shared[1].owner.append("b")
    shared[2].owner.append(2)
    put_back_numbers(kept)
    assert [place.owner for place in shared] == [{"ready": True, "steps": 0}, ["a", "b"], [1]]


def test_a_list_of_numbers_that_holds_tensors_by_now_stays_where_all_share_it():
    place = Place([], "CACHE", False)
    kept = [(place, place.held(), frozenset(place.held()))]
    place.owner.append(torch.ones(2))
    put_back_numbers(kept)
    assert len(place.owner) == 1


def test_a_dictionary_of_many_new_entries_is_what_was_computed_once():
    own = SimpleNamespace(memo={})
    module = ModuleType("made_by_hand")
    module.own = own
    place = Place(own.memo, "memo", True)
    for count, left in ((3, 0), (200, 200)):
        kept = [(place, place.held(), frozenset(place.held()))]
        own.memo.update(dict.fromkeys(range(count), 1.0))
        put_back_numbers(kept)
        assert len(own.memo) == left


# As diffusers' FrozenDict, for those who have copied its code.
_FROZEN = """
class Frozen(dict):
    def __init__(self, **named):
        for name, value in named.items():
            dict.__setitem__(self, name, value)

    def _refused(self, *_, **__):
        raise TypeError("this dictionary is frozen")

    __setitem__ = __delitem__ = update = pop = setdefault = clear = _refused
"""
_AS_ATTRIBUTE = ("        self.bank, ", "        self.frozen = Frozen(scale=0.5)\n        self.bank, ")


def test_a_dictionary_that_refuses_to_be_written_to_is_left(file, tmp_path):
    counted = _LOSS.replace("return", "loss =") + "\n        return loss * self.frozen['scale']"
    data = inspect(write(file, _STILL, (_CLASS, _FROZEN + _HELD.replace(*_AS_ATTRIBUTE)), (_LOSS, counted)))
    spec = own_spec(data, epochs=2, checkpoints=str(tmp_path / "kept"), warmup_epochs=1)
    record = _run(spec, tmp_path / "run")
    assert (record.error, len(record.epochs)) == (None, 2)
