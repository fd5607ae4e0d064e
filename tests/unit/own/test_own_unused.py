"""Methods and attributes under names that nobody asks for are told, and helpers of the user's own are not."""

import inspect as looking
import re

import pytest
from tests.own_files import TUPLE, write

from laptime.own.protocol import ASKED, Workload
from laptime.preflight.inspecting import inspect

_LOSS = "    def loss("


def _noticed(file, members, *changes):
    return inspect(write(file, TUPLE, (_LOSS, members + _LOSS), *changes)).notice


@pytest.mark.parametrize(
    ("members", "told"),
    [
        (
            "    def metric(self, model, batch):\n        return 1.0\n\n",
            ("metric() of ", "line 18", "evaluate(model, batches)"),
        ),
        ("    def scheduler(self, optimizer):\n        return None\n\n", ("scheduler() of ", "schedule is asked for")),
        (
            "    def optimiser(self, parameters, lr):\n        return None\n\n",
            ("optimiser() of ", "optimizer is asked"),
        ),
        ("    def warm(self):\n        return None\n\n", ("warm() of ", "nothing calls it")),
        ("    warm = staticmethod(lambda: None)\n\n", ("warm() of ", "nothing calls it")),
        ("    lr = 0.1\n\n", ("lr of ", "learning_rate is asked for")),
        ("    epochs = 30\n\n", ("epochs of ", "--epochs")),
        ("    batch_sampler = None\n\n", ("batch_sampler of ", "hold samples that belong together")),
        ("    def __init__(self):\n        self.grad_clip = 1.0\n\n", ("grad_clip of ", "clip_norm is asked for")),
    ],
)
def test_what_nobody_asks_for_is_told(file, members, told):
    notice = _noticed(file, members)
    assert all(part in notice for part in (*told, "is never asked for")), notice


@pytest.mark.parametrize(
    ("members", "change"),
    [
        ("    def metric(self):\n        return 1.0\n\n", ("x, y = batch", "x, y = batch\n        self.metric()")),
        (
            "    def metric(self):\n        return 1.0\n\n",
            ("x, y = batch", "x, y = batch\n        getattr(self, 'metric')()"),
        ),
        ("    lr = 0.1\n\n    @property\n    def learning_rate(self):\n        return self.lr\n\n", None),
        ("    def _warm(self):\n        return None\n\n    classes = 2\n\n", None),
        ("    def forward(self, x):\n        return x\n\n", ("class Workload:", "class Workload(nn.Module):")),
    ],
)
def test_helpers_and_what_others_call_are_not_told(file, members, change):
    assert not _noticed(file, members, *filter(None, [change]))


def test_an_argument_of_the_same_name_reads_no_attribute(file):
    members = (
        "    lr = 0.1\n\n    def optimizer(self, parameters, lr):\n        return torch.optim.SGD(parameters, lr)\n\n"
    )
    assert "lr of " in _noticed(file, members)


def test_a_method_of_a_base_class_in_the_file_is_told_once(file):
    base = "class Base:\n    def metric(self):\n        return 1.0\n\n\nclass Workload(Base):"
    assert _noticed(file, "", ("class Workload:", base)).count("metric()") == 1


def test_all_that_the_protocol_describes_is_asked_for():
    said = re.findall(r"^- `(\w+)[^`]*`(?: and `(\w+))?", looking.getdoc(Workload) or "", re.MULTILINE)
    described = [name for names in said for name in names if name]
    assert {*described, "data", "model", "loss", "higher_is_better", "learning_rate"} == {*ASKED}


_DATA = """
class Moving(TensorDataset):
    epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch


class Workload:"""
_SET = "self.train = Moving(X[:64], Y[:64])\n        {}\n        return self.train, TensorDataset(X[64:], Y[64:])"


@pytest.mark.parametrize(("calls", "told"), [("", True), ("self.train.set_epoch(3)", False)])
def test_a_data_set_that_wants_its_epoch_is_told(file, calls, told):
    given = "return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])"
    found = _noticed(file, "", ("\nclass Workload:", _DATA), (given, _SET.format(calls)))
    assert ("set_epoch() of Moving" in found) == told
    assert ("is never called: its items stay those of the first epoch" in found) == told
