"""A penalty on weights and a GELU that are written out, in traces that torch records; and what is like them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.trace.recorded_steps import recorded_steps
from torch import nn
from torch.nn.functional import gelu, linear

from laptime.advice import signals_of
from laptime.advice.outcome import Outcome, Proposal, Rule
from laptime.advice.rules.gelu import written_gelu
from laptime.advice.rules.weights import weight_penalty

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


def covariance(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """As VICReg has it, of a last layer as wide as the others."""
    y = net[:2](x)
    return plain(net, x) + (y.T @ y / len(y)).pow(2).sum()


def of_one(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The last layer's alone, which is a small part of all weights."""
    return plain(net, x) + 1e-4 * net[-1].weight.square().sum()


def by_tanh(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """As GPT-2 wrote it."""
    for layer in net:
        x = layer(x)
        x = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    return x.square().mean()


def by_erf(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    for layer in net:
        x = layer(x)
        x = x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))
    return x.square().mean()


def in_one(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    for layer in net:
        x = gelu(layer(x), approximate="tanh")
    return x.square().mean()


def of_tanh(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """A squared error of what went through tanh."""
    for layer in net:
        x = torch.tanh(layer(x))
    return (x**2).mean()


def told(rule: Rule, loss: Loss, to: Path, samples: int = 8) -> Outcome:
    net, x = nn.Sequential(*(nn.Linear(_WIDTH, n) for n in (_WIDTH, _WIDTH, 64))), torch.randn(samples, _WIDTH)
    trace = recorded_steps(lambda: loss(net, x).backward(), to, _STEPS, record_shapes=True)
    return rule(signals_of(trace=trace))


@pytest.mark.parametrize("loss", [powers, products], ids=lambda f: f.__name__)
def test_a_sum_of_squares_in_the_loss_is_told(loss: Loss, tmp_path: Path) -> None:
    found = told(weight_penalty, loss, tmp_path / "t.json")
    assert isinstance(found, Proposal)
    assert "weight_decay" in found.code
    assert found.gain_ms[0] > 0


@pytest.mark.parametrize("loss", [plain, standardized, of_length_one, covariance, of_one], ids=lambda f: f.__name__)
def test_other_passes_over_weights_are_not(loss: Loss, tmp_path: Path) -> None:
    assert told(weight_penalty, loss, tmp_path / "t.json") is None


@pytest.mark.parametrize(("loss", "code"), [(by_tanh, 'F.gelu(x, approximate="tanh")'), (by_erf, "F.gelu(x)")])
def test_a_gelu_in_many_operators_is_told(loss: Loss, code: str, tmp_path: Path) -> None:
    found = told(written_gelu, loss, tmp_path / "t.json", samples=1024)
    assert isinstance(found, Proposal)
    assert found.code == code


@pytest.mark.parametrize("loss", [in_one, of_tanh, powers], ids=lambda f: f.__name__)
def test_what_is_no_such_gelu_is_not(loss: Loss, tmp_path: Path) -> None:
    assert told(written_gelu, loss, tmp_path / "t.json", samples=1024) is None
