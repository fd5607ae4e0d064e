"""Nets that fit themselves to the first batch that they meet, hold hooks, or name their weights their own way."""

import pytest
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import STEPPED, by_hand, run

from laptime.preflight.inspecting import inspect

_SEQUENTIAL = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"
_FITTED = """
class Fitted(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.head = nn.Parameter(torch.ones(192)), nn.Linear(192, 2)
        self.register_buffer("fitted", torch.tensor(0.0))

    def forward(self, x):
        x = x.flatten(1)
        if self.fitted == 0:
            self.scale.data = 1 / (x.std(dim=0) + 1e-6)
            self.fitted.fill_(1)
        return self.head(x * self.scale)


class Workload:
"""
_STEPPED = ("    def loss(", STEPPED)
_OWN_NET = (_SEQUENTIAL, "Fitted()")


def test_one_that_an_evaluation_fits_trains_as_by_hand_and_without_a_note(file, tmp_path):
    data = inspect(write(file, TUPLE, ("\nclass Workload:\n", _FITTED), _OWN_NET, _STEPPED))
    fields = {"learning_rate": 0.1, "epochs": 2, "warmup_epochs": 1}
    spec = own_spec(data, "cpu-baseline", **fields)
    assert spec.begins_own  # so its quality is looked at before the first step
    found = run(spec, tmp_path / "run")
    assert found.error is None
    assert not any("step of the warm-up" in note for note in found.notes)
    assert [e.train_loss for e in found.epochs] == pytest.approx(by_hand(file, 2), rel=1e-6)


_HOOKED = """
class Hooked(nn.Linear):
    hook = None

    def forward(self, x):
        scores = super().forward(x.flatten(1))
        if scores.requires_grad:  # as nets of an equilibrium solve for their gradient
            if self.hook is not None:
                self.hook.remove()
            self.hook = scores.register_hook(lambda gradient: 0.5 * gradient)
        return scores


class Workload:
"""


def test_the_handle_of_a_hook_is_nothing_that_steps_carry_along(file):
    net = (_SEQUENTIAL, "Hooked(192, 2)")
    assert inspect(write(file, TUPLE, ("\nclass Workload:\n", _HOOKED), net, _STEPPED)).notice == ""


_NAMED = """
class Named(nn.Sequential):
    def named_parameters(self, prefix="", recurse=True):  # as torchrl's losses
        yield from super().named_parameters(prefix, recurse)


class Workload:
"""


def test_a_net_whose_named_parameters_takes_fewer_arguments_is_described(file, tmp_path):
    net = ("nn.Sequential(", "Named(")
    found = run(own_spec(inspect(write(file, TUPLE, ("\nclass Workload:\n", _NAMED), net))), tmp_path / "run")
    assert found.error is None
    assert not any("was not described" in note for note in found.notes)


_STORED = """
STORE = {}


class Stored(nn.Linear):
    def forward(self, x):
        weight = STORE.setdefault("weight", self.weight)
        if weight is not self.weight:
            self.weight = weight
        return super().forward(x.flatten(1))


class Workload:
"""
_CLEARED = (f"return {_SEQUENTIAL}", "STORE.clear()\n        return Stored(192, 2)")


@pytest.mark.parametrize("variant", ["cpu-baseline", "cpu-baseline+resident", "cpu-baseline+fused-optimizer"])
def test_weights_that_a_library_knows_by_name_are_those_of_the_net_that_trains(file, variant, tmp_path):
    """As pyro keeps them for the process: model() clears its store, and no net is made behind the one that trains."""
    data = inspect(write(file, TUPLE, ("\nclass Workload:\n", _STORED), _CLEARED, _STEPPED))
    found = run(own_spec(data, variant, learning_rate=0.1, epochs=2, warmup_epochs=1), tmp_path / "run")
    assert found.error is None
    assert [e.train_loss for e in found.epochs] == pytest.approx(by_hand(file, 2), rel=1e-6)
