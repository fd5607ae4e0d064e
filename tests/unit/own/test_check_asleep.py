"""The one-step check of nets in which something begins at zero, so that no gradient reaches what lies before it."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from torch import nn

import laptime.optimizations
from laptime.engine.awake import wake
from laptime.engine.build import as_made, make_recipe, open_data
from laptime.engine.check import check_one_step
from laptime.optimizations.layout import channels_last
from laptime.preflight.inspecting import inspect

_NET = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"

_NETS = """

class Scaled(nn.Module):
    def __init__(self, size, start, shape):
        super().__init__()
        self.conv, self.scale = nn.Conv2d(size, size, 3, padding=1), nn.Parameter(torch.full(shape, start))

    def forward(self, x):
        return x + self.scale * torch.relu(self.conv(x))


def head():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2))
    nn.init.zeros_(net[-1].weight)
    nn.init.zeros_(net[-1].bias)
    return net


def layers_scale():
    return nn.Sequential(Scaled(3, 1e-6, (3, 1, 1)), nn.Flatten(), nn.Linear(192, 2))


def one_scale():
    return nn.Sequential(Scaled(3, 0.0, ()), nn.Flatten(), nn.Linear(192, 2))


class Workload:
"""


def training(file, made):
    changes = (_NET, f"{made}()"), ("\n\nclass Workload:\n", _NETS)
    data = inspect(write(file, TUPLE, *changes))
    return own_spec(data, "cpu-baseline+channels-last")


def spoil(monkeypatch):
    """Gives the layout's convolutions twice the gradient."""

    def changed(recipe, options):
        found = channels_last(recipe, options)
        for module in found.model.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.register_hook(lambda gradient: 2 * gradient)
        return found

    listed = tuple((n, changed if n == "channels-last" else f) for n, f in laptime.optimizations.OPTIMIZATIONS)
    monkeypatch.setattr(laptime.optimizations, "OPTIMIZATIONS", listed)


@pytest.mark.parametrize("made", ["head", "layers_scale", "one_scale"])
def test_a_wrong_gradient_before_what_begins_at_zero_is_seen(file, monkeypatch, made):
    spec = training(file, made)
    assert check_one_step(spec, open_data(spec), 16).passed
    spoil(monkeypatch)
    assert not check_one_step(spec, open_data(spec), 16).passed


def test_a_run_trains_the_weights_as_they_were_made(file):
    spec = training(file, "head")
    assert not make_recipe(spec, open_data(spec), spec.optimizations).model[-1].weight.any()


def test_what_is_small_alone_and_trained_is_woken():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrix = nn.Parameter(torch.zeros(5, 100))
            self.scale = nn.Parameter(torch.full((5, 1, 1), 1e-6))
            self.scalar = nn.Parameter(torch.zeros(()))
            self.bias = nn.Parameter(torch.zeros(5))
            self.frozen = nn.Parameter(torch.zeros(5, 5), requires_grad=False)
            self.embedding = nn.Embedding(4, 3, padding_idx=0)
            self.none = nn.Parameter(torch.zeros(0))
            self.complex = nn.Parameter(torch.zeros(3, 3, dtype=torch.complex64))
            self.bfloat = nn.Parameter(torch.zeros(3, 3, dtype=torch.bfloat16))

    one, other = Net(), Net()
    other.embedding.load_state_dict(one.embedding.state_dict())
    kept = one.embedding.weight.detach().clone()
    before = torch.get_rng_state()
    wake(one)
    wake(other)
    assert torch.equal(torch.get_rng_state(), before)
    for found, same in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(found, same)
    assert 0.05 < one.matrix.abs().max() <= 0.1
    assert one.scale.unique().tolist() == [pytest.approx(0.1)]
    assert one.scalar.item() == pytest.approx(0.1)
    assert one.complex.any()
    assert one.bfloat.any()
    assert not one.bias.any()
    assert not one.frozen.any()
    assert torch.equal(one.embedding.weight, kept)


def test_weights_stay_where_nothing_is_to_be_compared():
    net = nn.Linear(2, 2)
    nn.init.zeros_(net.weight)
    as_made(net)
    assert not net.weight.any()
