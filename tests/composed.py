"""Trainings of a user's own that are put together by chance, and the loop by hand that each has to equal.

All numbers are float64, so that what is exact differs by rounding alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import torch
from tests import composed_nets as nets
from tests import composed_parts as parts
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import default_collate

from laptime.optimizations.base import batches, permutation
from laptime.optimizations.order import draws
from laptime.values.draws import seed_all

_IMPORTS = """\
import copy
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import orthogonal, weight_norm
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LinearLR, OneCycleLR, SequentialLR
from torch.utils.checkpoint import checkpoint
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset
"""


def composed(seed: int) -> dict[str, Any]:
    """What the training that a seed stands for is made of: names of parts, and the numbers of what has some."""
    by = Random(seed)
    net, data, loss, optimizer, schedule = (
        by.choice(list(of)) for of in (nets.NETS, parts.DATA, parts.LOSSES, parts.OPTIMIZERS, parts.SCHEDULES)
    )
    if (net, loss) == ("pruned", "teacher"):  # weights that are computed can't be copied
        loss = "plain"
    return {
        "net": net,
        "data": data,
        "loss": loss,
        "optimizer": optimizer,
        "schedule": schedule,
        "count": by.choice([61, 64, 65, 70]),
        "mixed": data != "named" and by.random() < 0.15,
        "clip_norm": by.choice([None, None, 0.5]),
        "micro_batch_size": by.choice([None, None, 4, 6]),
        "weighted": by.random() < 0.15,
        "judged": by.choice(["", "", "scored", "drawn"]),
        "accuracy": by.random() < 0.6,
        "hooked": by.random() < 0.1,
    }


def text_of(chosen: dict[str, Any]) -> str:
    """The file, which defines `Workload`."""
    kind, net = nets.NETS[chosen["net"]]
    trained = parts.DATA[chosen["data"]]
    tested = "Named(x, y)" if chosen["data"] == "named" else "TensorDataset(x, y)"
    numbers = [f"    {name} = {chosen[name]}" for name in ("clip_norm", "micro_batch_size") if chosen[name]]
    made = [
        "self.teacher = copy.deepcopy(net).requires_grad_(False).eval()" * (chosen["loss"] == "teacher"),
        "self.passes = torch.zeros(())" * (chosen["loss"] == "warmed"),
        "self.past = []" * (chosen["loss"] == "history"),
        "net[0].weight.register_hook(lambda grad: grad * 0.5)" * (chosen["hooked"] and chosen["net"] == "mlp"),
    ]
    lines = "".join(f"        {line}\n" for line in made if line)
    accuracy = ", (scores.argmax(1) == y).double().mean()" * chosen["accuracy"]
    text = f"""
class Workload:
    batch_size = 16
    learning_rate = 0.01
{chr(10).join(numbers)}

    def data(self):
        halves = []
        for seed, count in enumerate(({chosen["count"]}, 30)):
            seeded = torch.Generator().manual_seed(seed)
            x = {nets.INPUTS[kind]}.double()
            y = torch.randint(0, 3, (count,), generator=seeded)
            halves.append({tested} if seed else {trained})
        return halves

    def both(self, batch):
        return (batch["inputs"], batch["labels"]) if isinstance(batch, dict) else batch[:2]

    def model(self):
        net = {net}.double()
{lines}        return net

    def loss(self, model, batch):
        x, y = self.both(batch)
        scores = model(x)
        return {parts.LOSSES[chosen["loss"]]}{accuracy}
"""
    drawn = "0.01 * torch.randn_like(x)" if chosen["judged"] == "drawn" else "0"
    methods = (
        parts.TAUGHT * (chosen["loss"] == "teacher"),
        parts.COUNTED * (chosen["loss"] == "warmed"),
        parts.REMEMBERED * (chosen["loss"] == "history"),
        parts.MIXED * chosen["mixed"],
        parts.JUDGED.replace("DRAWN", drawn) * bool(chosen["judged"]),
        _method("optimizer(self, parameters, lr)", parts.OPTIMIZERS[chosen["optimizer"]]),
        _method("schedule(self, optimizer, steps_per_epoch, epochs)", parts.SCHEDULES[chosen["schedule"]]),
        _method("sample_weights(self, train)", "torch.arange(1, len(train) + 1).double()" * chosen["weighted"]),
    )
    return _IMPORTS + nets.DEFINED + parts.ITEMS + "\n" + text + "".join(methods)


def _method(head: str, returned: str) -> str:
    return f"\n    def {head}:\n        return {returned}\n" if returned else ""


def by_hand(path: Path, epochs: int) -> list[tuple[float, float]]:
    """Mean training and test losses of a composed training in a plain loop, in laptime's order of the samples."""
    sys.modules.pop(path.stem, None)
    seed_all(0)
    user: Any = __import__(path.stem).Workload()
    train, test = user.data()
    weights = user.sample_weights(train) if hasattr(user, "sample_weights") else None
    seed_all(0)
    net = user.model()
    trained = list(net.parameters())
    optimizer = user.optimizer(trained, 0.01) if hasattr(user, "optimizer") else torch.optim.Adam(trained, lr=0.01)
    steps = len(batches(torch.arange(len(train)), 16))
    schedule = user.schedule(optimizer, steps, epochs) if hasattr(user, "schedule") else None
    losses = []
    seed_all(0)
    for epoch in range(epochs):
        order = permutation(len(train), 0, epoch) if weights is None else draws(weights, 0, epoch)
        net.train()
        total = 0.0
        for chosen in batches(order, 16):
            optimizer.zero_grad()
            total += len(chosen) * _backward(user, net, _batch(user, train, chosen.tolist()), len(chosen))
            if hasattr(user, "clip_norm"):
                clip_grad_norm_(trained, user.clip_norm)
            optimizer.step()
            if schedule is not None:
                schedule.step()
        losses.append((total / len(train), _tested(user, net, test)))
    sys.modules.pop(path.stem, None)
    return losses


def _backward(user: Any, net: torch.nn.Module, batch: Any, count: int) -> float:
    """Gradients of a batch, in the parts that `micro_batch_size` makes of it; its mean loss."""
    loss = 0.0
    for part in torch.arange(count).tensor_split(-(-count // getattr(user, "micro_batch_size", count))):
        own = _loss(user, net, _part(batch, count, slice(int(part[0]), int(part[-1]) + 1)))
        (own * (len(part) / count)).backward()
        loss += len(part) / count * float(own.detach())
    return loss


@torch.no_grad()
def _tested(user: Any, net: torch.nn.Module, test: Any) -> float:
    net.eval()
    size = getattr(user, "micro_batch_size", 16)
    cut = [part.tolist() for part in torch.arange(len(test)).split(size)]
    given = [_batch(user, test, part, "test_collate_fn") for part in cut]
    total = sum(len(part) * float(_loss(user, net, batch)) for part, batch in zip(cut, given, strict=True))
    if hasattr(user, "evaluate"):
        user.evaluate(net, given)
    return total / len(test)


def _batch(user: Any, split: Any, chosen: list[int], collate: str = "collate_fn") -> Any:
    items = split.__getitems__(chosen) if hasattr(split, "__getitems__") else [split[index] for index in chosen]
    return getattr(user, collate, getattr(user, "collate_fn", default_collate))(items)


def _loss(user: Any, net: torch.nn.Module, batch: Any) -> torch.Tensor:
    given = user.loss(net, batch)
    return given[0] if isinstance(given, tuple) else given


def _part(batch: Any, count: int, where: slice) -> Any:
    if isinstance(batch, dict):
        return {name: _part(value, count, where) for name, value in batch.items()}
    if isinstance(batch, tuple | list) and not isinstance(batch[0], str):
        return tuple(_part(value, count, where) for value in batch)
    return batch[where] if hasattr(batch, "__len__") and len(batch) == count else batch
