"""What a user's code keeps where only the second step shows it, or too large to be copied, behind the warm-up."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import STEPPED, by_hand, run

from laptime.engine import kept
from laptime.engine.kept import Kept
from laptime.preflight.inspecting import inspect

_STILL = TUPLE.replace("nn.Dropout(), ", "")
_CLASS = "\nclass Workload:\n"
_LOSS = "        return F.cross_entropy(scores, y)"
_HEAVY = """
import numpy as np

MOMENTS, TABLE, MADE = {}, [], []

class Heavy(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                MOMENTS[p] = 0.9 * MOMENTS.get(p, 0) + p.grad
                p.sub_(group["lr"] * MOMENTS[p])

class Bank:
    def __init__(self):
        self.rows, self.filled = np.zeros((16, 16), np.float32), 0

class Workload:
    def __init__(self):
        self.bank, self.large, self.small = Bank(), {"rows": torch.zeros(64)}, torch.zeros(2)

"""
_STEPPED = STEPPED.replace("torch.optim.SGD(parameters, lr=lr, momentum=0.9)", "Heavy(parameters, lr)")


def _file(file, step: str, stepped: str = STEPPED, *more: tuple[str, str]):
    counted = f"        by, loss = int(model.training), F.cross_entropy(scores, y)\n        {step}\n        return loss"
    return inspect(write(file, _STILL, (_CLASS, _HEAVY), ("    def loss(", stepped), (_LOSS, counted), *more))


def _held(data, file, tmp_path, variants=("cpu-baseline", "cpu-baseline+no-reads")):
    truth = by_hand(file, 2)
    for variant in variants:
        found = run(
            own_spec(data, variant, learning_rate=0.1, epochs=2, check=False, warmup_epochs=1), tmp_path / variant
        )
        assert found.error is None
        assert [e.train_loss for e in found.epochs] == pytest.approx(
            truth, rel=0 if variant == variants[0] else 1e-6, abs=0
        )
        yield found


def test_moments_in_a_global_begin_anew(file, tmp_path):
    for found in _held(_file(file, "pass", _STEPPED), file, tmp_path):
        assert not any("of the warm-up" in note for note in found.notes)


_HELD = ("super().__init__(params", "self.moments = MOMENTS\n        super().__init__(params")
_OF_CLASS = (
    ("class Heavy(torch.optim.Optimizer):\n", "class Heavy(torch.optim.Optimizer):\n    moments = {}\n\n"),
    ("MOMENTS[p] = 0.9 * MOMENTS.get(p, 0)", "self.moments[p] = 0.9 * self.moments.get(p, 0)"),
    ("* MOMENTS[p])", "* self.moments[p])"),
)


def test_moments_that_the_optimizer_holds_begin_anew(file, tmp_path):
    for found in _held(_file(file, "pass", _STEPPED, _HELD), file, tmp_path):
        assert not any("of the warm-up" in note for note in found.notes)


def test_moments_that_nothing_reaches_are_told(file, tmp_path):
    data = _file(file, "pass", _STEPPED, *_OF_CLASS)
    record = run(own_spec(data, learning_rate=0.1, epochs=1, check=False, warmup_epochs=1), tmp_path)
    assert any("the second step of the warm-up had a loss of" in note for note in record.notes)


_QUEUE = """rows = self.bank.rows
        if by:
            loss = loss * (1 + float(rows.mean()))
            rows[:-1], rows[-1] = rows[1:].copy(), scores.detach().flatten()[:16]"""
_MEANS = "rows = self.bank.rows; rows += 0.1 * by * (loss.item() - rows); loss = loss * (1 + float(rows.mean()))"
_NEW = f"{_MEANS}; self.bank.rows = rows.copy()"


@pytest.mark.parametrize("step", [_QUEUE, _MEANS, _NEW], ids=["queue", "means", "copy"])
def test_arrays_begin_anew_where_the_loss_shows_them(step, file, tmp_path):
    for found in _held(_file(file, step), file, tmp_path):
        assert not any("of the warm-up" in note for note in found.notes)


def test_what_a_global_has_of_what_was_made_once_is_kept(file, tmp_path):
    step = """if not x.is_meta:
            TABLE[:] = TABLE or [MADE.append("made") or torch.ones(())]
            loss = loss * TABLE[0]"""
    for found in _held(_file(file, step, _STEPPED), file, tmp_path, ("cpu-baseline",)):
        assert not any("of the warm-up" in note for note in found.notes)
    made, table = sys.modules[file.stem].MADE, sys.modules[file.stem].TABLE
    assert (made, len(table)) == (["made"], 1)


def test_what_is_too_large_and_written_to_is_told(file, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "_SMALL", 16)
    data = _file(file, "self.large['rows'] += by; loss = loss + 0 * self.large['rows'].sum()")
    record = run(own_spec(data, epochs=1, check=False, warmup_epochs=1), tmp_path)
    assert any("the warm-up has written to large, too large to be put back" in note for note in record.notes)


def test_the_smallest_are_copied_as_long_as_there_is_room(monkeypatch):
    monkeypatch.setattr(kept, "_SMALL", 100)
    own = SimpleNamespace(large=torch.zeros(20), small=torch.zeros(5), middle=torch.zeros(10), last=torch.zeros(15))
    both = Kept(own)
    assert not both.moved()
    for tensor in vars(own).values():
        tensor.add_(1)
    assert both.moved()
    assert both.lost() == ("last", "large")
    both.back()
    assert {name: int(tensor[0]) for name, tensor in vars(own).items()} == {
        "large": 1,
        "small": 0,
        "middle": 0,
        "last": 1,
    }


def test_arrays_of_all_kinds_are_put_back_or_left():
    still, strings = np.ones(3), np.array(["a"])
    still.flags.writeable = False
    own = SimpleNamespace(still=still, strings=strings, turned=np.zeros(3)[::-1], array=np.zeros(3))
    both = Kept(own)
    own.array += 1
    assert both.moved()
    own.turned += 1
    strings[0] = "b"
    both.back()
    assert (own.array.tolist(), own.turned.tolist(), strings.tolist()) == ([0, 0, 0], [1, 1, 1], ["b"])


def test_globals_are_put_back_one_by_one():
    module = ModuleType("made_by_hand")
    module.CENTER, module.FOUND, module.__cached__ = torch.zeros(2), {}, "a"
    both = Kept(None, modules=(module,))
    module.CENTER, module.LATER, module.__cached__ = torch.ones(2), 1, "b"
    assert both.moved()
    module.FOUND["a"] = 1
    both.back()
    assert (module.CENTER.tolist(), module.FOUND, hasattr(module, "LATER"), module.__cached__) == (
        [0, 0],
        {},
        False,
        "b",
    )
    assert not both.moved()
