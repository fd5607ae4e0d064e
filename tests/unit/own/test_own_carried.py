"""What steps carry along and nothing puts back, and weights that no optimizer is given, are told before a ladder."""

import sys

import pytest
from tests.own_files import TUPLE, write

from laptime.errors import RunError
from laptime.preflight.inspecting import inspect
from laptime.workloads.own_carried import moved_by_tests

_LOSS = "return F.cross_entropy(scores, y)"
_PLAIN = TUPLE.replace("nn.Dropout(), ", "")
_NET = """
class Carrying(nn.Sequential):
    def __init__(self, *layers):
        super().__init__(*layers)
        self.center, self.seen, self.last = torch.zeros(2), [], None
        self.register_buffer("shown", torch.ones(1).expand(2))  # nobody can write there
        self.register_buffer("sparse", torch.eye(2).to_sparse())

    def forward(self, x):
        scores = super().forward(x)
        KEPT
        return scores


class Workload:
"""
_LAST = "getattr(Workload, 'last', 0)"  # of the class, where nothing is looked for
_COUNTER = """
class Annealed:
    steps = 0

    def __call__(self):
        self.steps = self.steps + 1
        return 1 - 1e-9 * self.steps


class Workload:
"""


def carrying(file, kept):
    changes = (("\nclass Workload:\n", _NET.replace("KEPT", kept)), ("return nn.Sequential(", "return Carrying("))
    return inspect(write(file, _PLAIN, *changes))


@pytest.mark.parametrize(
    ("kept", "name"),
    [
        ("scores, self.center = scores - self.center, 0.9 * self.center + scores.detach().mean(0)", "center"),
        ("self.center += scores.detach().mean(0); scores = scores - self.center", "center"),
        ("scores = scores - (0 if self.last is None else self.last) / 2; self.last = scores.detach()", "last"),
        ("scores = scores - getattr(self, '_h', (0,))[0] / 2; self._h = (scores.detach(),)", "_h"),
        (f"scores = scores - {_LAST} / 2; Workload.last = scores.detach()", "what it keeps"),
        # Of one batch and the same weights it is what it was: only other samples tell.
        (
            "m = scores.detach().mean(); scores = scores * (m if self.last is None else self.last); self.last = m",
            "last",
        ),
        ("self.last = scores.detach().mean() if self.last is None else self.last; scores = scores / self.last", "last"),
    ],
)
def test_what_a_net_keeps_beside_buffers_goes_on_from_the_warm_up_and_is_told(file, kept, name):
    found = carrying(file, kept)
    line = next(i for i, text in enumerate(file.read_text().splitlines(), 1) if "def loss" in text)
    assert f"({file.name}, line {line}: def loss" in found.notice
    held = f"{name} from step to step" if name == "what it keeps" else f"what it changes in {name}"
    goes_on = "goes on from the warm-up unless the losses of the first batches show it, and is in no checkpoint"
    assert f"; {held} {goes_on}: keep tensors as buffers" in found.notice
    assert name in found.own.refused["graph"]  # whose replays would always read what was there when it was recorded


def test_of_several_attributes_that_change_the_notice_says_that_it_may_be_one(file):
    """Two are made anew in each step here, and one makes the difference."""
    kept = "scores, self.center = scores - self.center, 0.9 * self.center + scores.detach().mean(0); "
    notice = carrying(file, f"{kept}self.seen.append(len(x)); self.last = scores.detach()").notice
    assert "; what it changes in center, seen, last, or in one of these, goes on from the warm-up" in notice


@pytest.mark.parametrize(
    "kept",
    [
        "self.center = scores.detach().mean(0)",  # made anew in each step, as features are that hooks leave there
        "self.last = scores",
        "self.last = torch.ones(2) if self.last is None else self.last; scores = scores * self.last",
        "scores = scores + 0.1 * torch.randn_like(scores)",
        "self[0].weight.data.div_(self[0].weight.data.norm())",  # put back with the weights
    ],
)
def test_what_the_next_step_does_not_see_is_no_matter(file, kept):
    found = carrying(file, kept)
    assert found.notice == ""
    assert "graph" not in found.own.refused


def test_what_an_object_of_the_users_counts_begins_anew_and_is_not_recorded(file):
    held = (
        "    batch_size = 16\n",
        "    batch_size = 16\n    def __init__(self):\n        self.weight = Annealed()\n\n",
    )
    found = inspect(
        write(
            file,
            TUPLE,
            ("\nclass Workload:\n", _COUNTER),
            held,
            (_LOSS, f"{_LOSS.replace('F.', 'self.weight() * F.')}"),
        )
    )
    assert "counts in objects" not in found.notice
    assert "changes steps with test data, too" in found.notice
    assert found.own.refused["graph"].endswith("which changes steps in each step")


@pytest.mark.parametrize("then", ["", "; scores = scores / torch.stack(self.seen).sum(0)"])
def test_a_list_that_each_step_makes_longer_begins_anew_and_is_not_recorded(file, then):
    found = carrying(file, f"self.seen.append(scores.detach().mean(0)){then}")
    assert "goes on from the warm-up" not in found.notice
    assert found.own.refused["graph"].endswith("which changes seen in each step")


_GLOBAL = """
scale = nn.Parameter(torch.zeros(()))
teacher = nn.Linear(2, 2).requires_grad_(False)

def zero_of(net):
    if not hasattr(net, "zero"):
        net.register_buffer("zero", torch.zeros(()))
    return net.zero.requires_grad_()

class Workload:
"""


@pytest.mark.parametrize(
    ("loss", "told"),
    [
        (
            _LOSS.replace("F.", "scale.exp() * F."),
            "goes through 1 tensor with gradient that is not in the net, so it is",
        ),
        (_LOSS.replace("scores, y", "teacher(scores), y"), ""),
        (_LOSS.replace("scores, y", "scores + torch.zeros(2, requires_grad=True), y"), ""),  # an input, made anew
        (_LOSS.replace("F.", "zero_of(model) + F."), ""),  # as VectorQuantize has one
    ],
)
def test_a_weight_that_no_optimizer_is_given_is_told(file, loss, told):
    notice = inspect(write(file, TUPLE, ("\nclass Workload:\n", _GLOBAL), (_LOSS, loss))).notice
    assert bool(notice) == bool(told)
    assert told in notice


_EQUATION = """\
x.requires_grad_()
        scores = model(x)
        slope, = torch.autograd.grad(scores.sum(), x, create_graph=True)"""


def test_a_loss_that_asks_for_gradients_in_evaluation_is_told_what_lets_it(file):
    name = write(file, TUPLE, ("scores = model(x)", _EQUATION), (_LOSS, f"{_LOSS} + slope.square().mean()"))
    with pytest.raises(
        RunError, match=r"without gradients: torch\.enable_grad\(\) lets them be asked for \(.*line 2\d"
    ):
        inspect(name)
    asked = ("    def loss(self, model, batch):\n", "    @torch.enable_grad()\n    def loss(self, model, batch):\n")
    sys.modules.pop(file.stem)
    assert inspect(write(file, file.read_text(), asked)).own.quality == "accuracy"


_COUNTED = """
class Counted(nn.Sequential):
    steps = 0

    def __init__(self, *layers):
        super().__init__(*layers)
        self.register_buffer("center", torch.zeros(2))

    def forward(self, x):
        scores = super().forward(x)
        CHANGED
        return scores


class Workload:
"""


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ("self.steps += 1", "steps"),
        ("self.center.lerp_(scores.detach().mean(0), 0.5)", "center"),
        ("self.center = scores.detach().mean(0); self.steps += self.training", "center"),
        ("self[4].bias.data = self[4].bias.data * 0.5 + 1", "4.bias"),
        ("self.steps += self.training", ""),
        ("if self.training:\n            self.center.lerp_(scores.detach().mean(0), 0.5)", ""),
    ],
)
def test_what_test_data_change_of_a_net_is_told(file, changed, names):
    made = (("\nclass Workload:\n", _COUNTED.replace("CHANGED", changed)), ("return nn.Sequential(", "return Counted("))
    told = inspect(write(file, TUPLE, *made)).notice
    assert (f"changes {names} with test data, too, which training then goes on with" in told) == bool(names)


def test_of_many_names_a_few_are_told():
    assert "changes a, b, c, d, e and 2 more with test data" in moved_by_tests("loss()", tuple("abcdefg"))
    assert "changes a, b, c, d, e with test data" in moved_by_tests("loss()", tuple("abcde"))
