"""A loss whose terms cancel is rounding in half precision, and no sign of a wrong kernel; any other one is."""

import pytest
import torch
from tests.own_files import IMPORTS, write
from tests.unit.conftest import make_spec
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses

from laptime.catalogue import parse_optimization
from laptime.engine.build import open_data
from laptime.engine.check import TOLERANCES, check_one_step
from laptime.engine.loss_noise import loss_noise
from laptime.engine.one_step import Steps
from laptime.preflight.inspecting import inspect

DISTILLING = (
    IMPORTS
    + """
def net():
    convolutions = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()
    return nn.Sequential(*convolutions, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))

class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher, self.student = net().requires_grad_(False), net()

    def forward(self, x):
        with torch.no_grad():
            told = self.teacher(x)
        return self.student(x), told

class Workload:
    name = "distilling"

    def data(self):
        return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])

    def model(self):
        return Both()

    def loss(self, model, batch):
        x, y = batch
        scores, told = model(x)
        return DIVERGENCE
"""
)
DIVERGENCES = {
    "torch": "F.kl_div(F.log_softmax(scores / 4, 1), F.softmax(told / 4, 1), reduction='batchmean')",
    "logs": "F.kl_div((scores / 4).log_softmax(1), (told / 4).log_softmax(1), None, None, 'batchmean', True)",
    "by hand": "(told.softmax(1) * (told.log_softmax(1) - scores.log_softmax(1))).sum(1).mean()",
}
ENTROPY = "F.cross_entropy(scores, y)"
# Terms of half precision that do not cancel.
HALVED = "-(told.softmax(1) * scores.log_softmax(1)).sum(1).mean()"


def prepared(file, loss, *names):
    chosen = tuple(map(parse_optimization, names or ("bf16",)))
    data = inspect(write(file, DISTILLING, ("DIVERGENCE", loss)))
    return make_spec(data=data, workload="distilling", batch_size=32, optimizations=chosen)


@pytest.mark.parametrize("divergence", DIVERGENCES)
def test_a_loss_near_zero_is_right_as_far_as_rounding_its_terms_moves_it(file, divergence):
    spec = prepared(file, DIVERGENCES[divergence])
    found = check_one_step(spec, open_data(spec), 32)
    assert found.loss_error > TOLERANCES["numeric"].loss
    assert found.loss_error < found.loss_tolerance
    assert found.gradient_tolerance == TOLERANCES["numeric"].gradient
    assert found.passed


@pytest.mark.parametrize("loss", [ENTROPY, HALVED])
def test_any_other_loss_has_no_more_of_it_than_its_tolerance(file, loss):
    spec = prepared(file, loss)
    assert loss_noise(Steps(spec, open_data(spec)), spec.optimizations) <= TOLERANCES["numeric"].loss


def test_in_full_precision_there_is_none(file):
    spec = prepared(file, DIVERGENCES["torch"], "channels-last")
    assert loss_noise(Steps(spec, open_data(spec)), spec.optimizations) == 0


def wrong(monkeypatch, function):
    """A kernel that in bf16 alone gives something else."""
    own = getattr(F, function)

    def twisted(given, *arguments, **options):
        found = own(given, *arguments, **options)
        return found * 1.6 if found.dtype is torch.bfloat16 else found

    monkeypatch.setattr(F, function, twisted)


@pytest.mark.parametrize("loss", [DIVERGENCES["torch"], HALVED])
def test_a_wrong_kernel_of_the_loss_is_refused_all_the_same(file, monkeypatch, loss):
    spec = prepared(file, loss.replace("scores.log_softmax(1)", "F.log_softmax(scores, 1)"))
    data = open_data(spec)
    wrong(monkeypatch, "log_softmax")
    assert not check_one_step(spec, data, 32).passed


def test_a_wrong_kernel_of_the_net_is_refused_all_the_same(file, monkeypatch):
    spec = prepared(file, DIVERGENCES["torch"])
    data = open_data(spec)
    wrong(monkeypatch, "relu")
    assert not check_one_step(spec, data, 32).passed
