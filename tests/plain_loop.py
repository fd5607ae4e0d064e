"""A training of a user's own in a plain loop without laptime, in laptime's order of the samples."""

import sys
from pathlib import Path
from typing import Any

import torch

from laptime import worker
from laptime.optimizations.base import permutation
from laptime.values.draws import seed_all

# What a file must have, so that a loop knows its steps.
STEPPED = """\
    def optimizer(self, parameters, lr):
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)

    def schedule(self, optimizer, steps_per_epoch, epochs):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

    def loss("""


def run(spec, folder) -> Any:
    """A run that imports its file anew, as that of a process of its own does."""
    sys.modules.pop(Path(spec.data.path).stem, None)
    return worker.run(spec, folder)


def by_hand(path: Path, epochs: int, by_name: bool = False) -> list[float]:
    """Mean training losses of a file of `TUPLE`'s kind: 64 samples in batches of 16, seed 0.

    `by_name` gives its optimizer() the net, as one asks for that names it `model`.
    """
    sys.modules.pop(path.stem, None)
    seed_all(0)
    module: Any = __import__(path.stem)
    user = module.Workload()
    train, _ = user.data()
    seed_all(0)
    net = user.model()
    optimizer = user.optimizer(net if by_name else net.parameters(), 0.1)
    losses = []
    for epoch in range(epochs):
        total = 0.0
        for chosen in permutation(64, 0, epoch).split(16):
            loss, _ = user.loss(net, train[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += 16 * loss.detach().double().item()
        losses.append(total / 64)
    sys.modules.pop(path.stem, None)
    torch.manual_seed(0)
    return losses
