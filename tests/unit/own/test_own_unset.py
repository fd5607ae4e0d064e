"""What one function of a workload reads and another, which is called later, sets: told with both lines."""

import pytest
from tests.own_files import TUPLE, place, write

from laptime.errors import LaptimeError
from laptime.preflight.inspecting import inspect

_BEFORE = "    def loss(self"
_MADE = "self.opt = torch.optim.Adam(parameters, lr=lr)"
_OPTIMIZER = f"    def optimizer(self, parameters, lr):\n        {_MADE}\n        return self.opt\n\n"
_MOVED = "self.moved = torch.optim.lr_scheduler.StepLR(optimizer, 9)"
_SCHEDULE = (
    f"    def schedule(self, optimizer, steps_per_epoch, epochs):\n        {_MOVED}\n        return self.moved\n\n"
)
_WIDTH = "self.width = 2"
_READ = "self.opt.param_groups[0]['lr']"
_LOSS = "scores = model(x)"


def told(file, *changes) -> str:
    with pytest.raises(LaptimeError) as caught:
        inspect(write(file, TUPLE, *changes))
    return str(caught.value)


def line_of(file, code: str) -> int:
    return next(i for i, line in enumerate(file.read_text().splitlines(), 1) if line.strip() == code)


@pytest.mark.parametrize("begin", ["", "    opt = moved = None\n"])
@pytest.mark.parametrize(
    ("functions", "sets", "read"),
    [
        (_OPTIMIZER, ("optimizer", "opt", _MADE), f"scores = model(x) * {_READ}"),
        (_SCHEDULE, ("schedule", "moved", _MOVED), "scores = model(x) * self.moved.get_last_lr()[0]"),
    ],
)
def test_a_loss_that_reads_what_the_optimizer_sets_is_told_what_to_do(file, begin, functions, sets, read):
    said = told(file, (_BEFORE, f"{begin}{functions}{_BEFORE}"), (_LOSS, read))
    function, name, code = sets
    assert said.startswith("loss() failed: AttributeError: ")
    assert f"; {function}() sets self.{name} (line {line_of(file, code)}), and is called later, and again" in said
    assert "set what loss() reads in __init__(), and for a rate let it count its steps" in said
    assert place(file, read) in said


def test_data_that_read_what_the_net_sets_are_told_what_to_do(file):
    changes = [("return nn.Sequential", f"{_WIDTH}\n        return nn.Sequential"), ("X[:64]", "X[:64 * self.width]")]
    said = told(file, *changes)
    number = line_of(file, _WIDTH)
    assert f"; model() sets self.width (line {number}), and is called later: set it in __init__() (" in said


@pytest.mark.parametrize("read", ["self.steps += 1", "self.opt = self.steps", "x = x.opt", "x = None.opt"])
def test_what_no_other_function_sets_is_told_as_it_is(file, read):
    said = told(file, (_BEFORE, f"{_OPTIMIZER}{_BEFORE}"), (_LOSS, f"{read}; {_LOSS}"))
    assert "attribute" in said
    assert " sets " not in said
