"""Buffers that a net sets to what it has just computed, as snntorch's neurons keep their membranes."""

import sys
from pathlib import Path

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from torch import nn

from laptime import worker
from laptime.optimizations.base import permutation
from laptime.preflight.inspecting import inspect

_SEQUENTIAL = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(256, 2))"
_NEURON = """
class Neuron(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("membrane", torch.zeros(0), persistent=False)

    def begin(self):
        self.membrane = torch.zeros_like(self.membrane)

    def forward(self, current):
        if self.membrane.shape != current.shape:
            self.membrane = torch.zeros_like(current)
        self.membrane = 0.9 * self.membrane + current
        return torch.sigmoid(self.membrane)

class Spiking(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.neuron, self.head = nn.Conv2d(3, 4, 3, padding=1), Neuron(), nn.Linear(256, 2)

    def forward(self, x):
        self.neuron.begin()
        return torch.stack([self.head(self.neuron(self.conv(x)).flatten(1)) for _ in range(3)]).mean(0)

class Workload:
"""
# A view, which torch takes no history from in place.
_VIEWED = ("self.membrane = 0.9 * self.membrane + current", "self.membrane = (0.9 * self.membrane + current)[:]")


SPIKING = ((_SEQUENTIAL, "Spiking()"), ("\nclass Workload:\n", _NEURON))


def _data(file, *changes):
    return inspect(write(file, TUPLE, *SPIKING, *changes))


def _by_hand(module):
    torch.manual_seed(0)
    net, losses = module.Spiking(), []
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for epoch in range(2):
        of_epoch = []
        for chosen in permutation(64, 0, epoch).split(16):
            loss = nn.functional.cross_entropy(net(module.X[:64][chosen]), module.Y[:64][chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            of_epoch.append(loss.item())
        losses.append(sum(of_epoch) / len(of_epoch))
    return losses


@pytest.mark.parametrize("changes", [(), (_VIEWED,)], ids=["own", "a view"])
@pytest.mark.parametrize("more", ["", "+channels-last+fused-optimizer+no-reads+ema"])
def test_it_trains_behind_a_warm_up_as_by_hand(changes, more, file, tmp_path):
    data = _data(file, *changes)
    sys.modules.pop(Path(data.path).stem, None)
    record = worker.run(own_spec(data, f"cpu-baseline{more}", epochs=2, warmup_epochs=1), tmp_path)
    assert record.error is None
    assert [e.train_loss for e in record.epochs] == pytest.approx(_by_hand(sys.modules[file.stem]), rel=1e-5)
