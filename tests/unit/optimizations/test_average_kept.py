"""What an average of weights takes over from the net besides them."""

import pytest
import torch
from torch import nn

from laptime.optimizations.average import Average


class Queued(nn.Linear):
    """Scores beside the mean of earlier ones, in a queue that fills, and a mask that is made where one is wanted."""

    def __init__(self):
        super().__init__(3, 2)
        self.register_buffer("queue", torch.zeros(0, 2))
        self.register_buffer("mask", None)
        self.phase = "empty"

    def forward(self, x):
        scores = super().forward(x)
        if self.training:
            self.queue = torch.cat([self.queue, scores.detach()])[-4:]
            self.mask = torch.full((2,), 0.5)
            self.phase = "filled"
        return (scores - self.queue.mean(0)) * self.mask if self.phase == "filled" else scores


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_buffers_of_another_size_and_phases_are_those_of_the_net(steps):
    net, x = nn.Sequential(Queued()), torch.randn(2, 3)
    average = Average(net, 0.0, 1)
    for _ in range(steps):
        net(x)
        average.update(net)
    assert torch.equal(average.evaluated.eval()(x), net.eval()(x))
    average.restart(net)
    assert torch.equal(average.evaluated.eval()(x), net(x))
