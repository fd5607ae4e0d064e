"""What a workload keeps beside its net and no loss of training shows, an average of the weights above all."""

import sys
from pathlib import Path

import pytest
from tests.own_files import TUPLE, own_spec, write

from laptime import worker
from laptime.preflight.inspecting import inspect

_STILL = TUPLE.replace("nn.Dropout(), ", "")
_LOSS = "        return F.cross_entropy(scores, y)"
_JUDGED = """
    higher_is_better = False

    def evaluate(self, model, batches):
        return sum(F.cross_entropy(self.averaged(model, x), y).item() for x, y in batches)
"""
_MADE = (
    "    def model(self):\n        return nn.Sequential(",
    "    def model(self):\n        return self.beside(nn.Sequential(",
)
_CLOSED = ("nn.Linear(256, 2))", "nn.Linear(256, 2)))")
_MODULE = """
    def beside(self, net):
        self.average = torch.optim.swa_utils.AveragedModel(net)
        return net

    def averaged(self, model, x):
        return self.average(x)
"""
_TENSORS = """
    def beside(self, net):
        self.average = {name: p.detach().clone() for name, p in net.named_parameters()}
        return net

    def averaged(self, model, x):
        return torch.func.functional_call(model, self.average, (x,))
"""
_HOOKED = """
    def optimizer(self, model, lr):
        made = torch.optim.SGD(model.parameters(), lr=lr)
        made.register_step_post_hook(lambda *_: self.average.update_parameters(model))
        return made
"""
_MOVED = """        if model.training:
            self.average = {n: 0.9 * self.average[n] + 0.1 * p.detach() for n, p in model.named_parameters()}
"""
_ENTRIES = """        for name, p in model.named_parameters() if model.training else ():
            self.average[name] = 0.9 * self.average[name] + 0.1 * p.detach()
"""
_LISTED = """
    def beside(self, net):
        self.average = [p.detach().clone() for p in net.parameters()]
        return net

    def averaged(self, model, x):
        named = zip(dict(model.named_parameters()), self.average)
        return torch.func.functional_call(model, dict(named), (x,))
"""
_APPENDED = """        for place, p in enumerate(model.parameters() if model.training else ()):
            self.average[place] = 0.9 * self.average[place] + 0.1 * p.detach()
"""
_EMPTY = """
    def beside(self, net):
        self.average = {}
        return net

    def averaged(self, model, x):
        return torch.func.functional_call(model, self.average, (x,))
"""
_FILLED = """        for name, p in model.named_parameters() if model.training else ():
            before = self.average.get(name, p.detach())
            self.average[name] = 0.9 * before + 0.1 * p.detach()
"""
_NONE = _MODULE.replace("torch.optim.swa_utils.AveragedModel(net)", "None").replace("self.average(", "self.now(model)(")
_LATER = """
    def now(self, model):
        if self.average is None:
            self.average = torch.optim.swa_utils.AveragedModel(model)
        return self.average
"""
_UPDATED = "        self.average.update_parameters(model) if model.training else None\n"
_BY_TESTS = ("scores = model(x)", "scores = model(x) if model.training else self.average(x)")
_BEGIN = "\n    def loss(self, model, batch):\n"
_WAYS = {
    "in the loss": [(_BEGIN, f"{_MODULE}{_JUDGED}{_BEGIN}{_UPDATED}")],
    "by a hook of the optimizer": [(_BEGIN, f"{_MODULE}{_JUDGED}{_HOOKED}{_BEGIN}")],
    "as a new dictionary": [(_BEGIN, f"{_TENSORS}{_JUDGED}{_BEGIN}{_MOVED}")],
    "as new tensors": [(_BEGIN, f"{_TENSORS}{_JUDGED}{_BEGIN}{_ENTRIES}")],
    "as parts of a list": [(_BEGIN, f"{_LISTED}{_JUDGED}{_BEGIN}{_APPENDED}")],
    "in a dictionary that the first step fills": [(_BEGIN, f"{_EMPTY}{_JUDGED}{_BEGIN}{_FILLED}")],
    "made by the first step": [
        (_BEGIN, f"{_NONE}{_LATER}{_JUDGED}{_BEGIN}{_UPDATED.replace('average.up', 'now(model).up')}")
    ],
    "read by the loss of tests": [(_BEGIN, f"{_MODULE}{_BEGIN}{_UPDATED}"), _BY_TESTS],
}


def run(data, folder, **fields):
    sys.modules.pop(Path(data.path).stem, None)
    return worker.run(own_spec(data, epochs=2, check=False, learning_rate=0.1, **fields), folder)


@pytest.mark.parametrize("changes", _WAYS.values(), ids=_WAYS)
def test_an_average_is_that_of_a_run_without_a_warm_up(changes, file, tmp_path):
    data = inspect(write(file, _STILL, _MADE, _CLOSED, *changes))
    without, with_one = (run(data, tmp_path / str(n), warmup_epochs=n) for n in (0, 1))
    assert (without.error, with_one.error) == (None, None)
    assert _judged(with_one) == _judged(without)
    assert len(set(_judged(without))) == 2


def _judged(record):
    return [e.test_loss if e.test_error is None else e.test_error for e in record.epochs]


_CENTRED = """
    def model(self):
        self.center = torch.zeros(2)
        return super().model()

    def schedule(self, optimizer, steps_per_epoch, epochs):
        return torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=steps_per_epoch * epochs)

    def loss(self, model, batch):
        scores = model(batch[0])
        if model.training:
            self.center = 0.9 * self.center + 0.1 * scores.detach().mean(dim=0)
        return F.cross_entropy(scores - self.center, batch[1])
"""


def test_what_a_loss_keeps_is_put_back_where_a_schedule_moves_the_rates(file, tmp_path):
    """The warm-up has none, so the losses behind it are those of its rates, too."""
    data = inspect(write(file, _STILL.replace("class Workload:", "class Net:") + f"\n\nclass Workload(Net):{_CENTRED}"))
    without, with_one = (run(data, tmp_path / str(n), warmup_epochs=n) for n in (0, 1))
    assert (with_one.error, with_one.notes) == (None, without.notes)
    assert [e.train_loss for e in with_one.epochs] == [e.train_loss for e in without.epochs]


_ONCE = """
class Workload:
    def __init__(self):
        self.bank, self.seen = {}, torch.zeros(1)
        self.tickets = iter(range(2))  # one is taken on shapes alone
"""
_FILL = """        if "lib" not in self.bank:  # as a library does that can be set up once in a process
            next(self.tickets)
            self.bank["lib"] = object()
        self.seen += model.training
        return F.cross_entropy(scores, y)"""


def test_all_goes_on_as_it_was_where_a_step_fails_behind_what_is_put_back(file, tmp_path):
    data = inspect(write(file, _STILL, ("\nclass Workload:\n", _ONCE), (_LOSS, _FILL)))
    record = run(data, tmp_path, warmup_epochs=1)
    assert (record.error, len(record.epochs)) == (None, 2)
    assert not any("step of the warm-up" in note for note in record.notes)
