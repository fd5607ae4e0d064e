"""A penalty on weights in traces that torch records of a small net, and what also goes through weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import linear
from torch.profiler import ProfilerActivity, profile, schedule

from laptime.advice import signals_of
from laptime.advice.outcome import Proposal
from laptime.advice.rules.weights import weight_penalty
from laptime.trace import summarize

_STEPS, _WIDTH = 3, 512

Loss = Callable[[nn.Sequential, torch.Tensor], torch.Tensor]


def plain(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    return net(x).square().mean()


def powers(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    return plain(net, x) + 1e-4 * sum((w**2).sum() for w in net.parameters())


def products(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    return plain(net, x) + 1e-4 * sum((w * w).sum() for w in net.parameters())


def standardized(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """Weights less their mean, over their deviation."""
    for layer in net:
        w = layer.weight - layer.weight.mean(1, keepdim=True)
        x = linear(x, w / (w.square().mean(1, keepdim=True) + 1e-5).sqrt(), layer.bias)
    return x.square().mean()


def of_length_one(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """Weights over their length, as cosine heads have them."""
    for layer in net:
        x = linear(x, layer.weight / layer.weight.pow(2).sum(1, keepdim=True).sqrt(), layer.bias)
    return x.square().mean()


def of_one(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The last layer's alone, which is a small part of all weights."""
    return plain(net, x) + 1e-4 * net[-1].weight.square().sum()


def told(loss: Loss, to: Path) -> object:
    net, x = nn.Sequential(*(nn.Linear(_WIDTH, n) for n in (_WIDTH, _WIDTH, 64))), torch.randn(8, _WIDTH)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=_STEPS, repeat=1),
        record_shapes=True,
        on_trace_ready=lambda p: p.export_chrome_trace(str(to)),
    ) as profiler:
        for _ in range(_STEPS + 1):
            loss(net, x).backward()
            profiler.step()
    return weight_penalty(signals_of(trace=summarize(to)))


@pytest.mark.parametrize("loss", [powers, products], ids=lambda f: f.__name__)
def test_a_sum_of_squares_in_the_loss_is_told(loss: Loss, tmp_path: Path) -> None:
    found = told(loss, tmp_path / "t.json")
    assert isinstance(found, Proposal)
    assert "weight_decay" in found.code
    assert found.gain_ms[0] > 0


@pytest.mark.parametrize("loss", [plain, standardized, of_length_one, of_one], ids=lambda f: f.__name__)
def test_other_passes_over_weights_are_not(loss: Loss, tmp_path: Path) -> None:
    assert told(loss, tmp_path / "t.json") is None
