"""A cross-entropy that is written out, in traces that torch records; and what is like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.trace.recorded_steps import recorded_steps
from torch import nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss, one_hot

from laptime.advice import signals_of
from laptime.advice.outcome import Outcome, Proposal
from laptime.advice.rules.cross_entropy import written_cross_entropy

_ROWS, _CLASSES, _STEPS = 64, 4000, 7  # of so many one that the machine holds up moves no median

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def soft(z: torch.Tensor) -> torch.Tensor:
    z = (z - z.max(-1, keepdim=True).values).exp()
    return z / z.sum(-1, keepdim=True)


def by_exp(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -soft(z)[torch.arange(len(y)), y].log().mean()


def by_exp_and_log(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -soft(z).log().gather(1, y[:, None]).mean()


def of_softmax(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -(z.softmax(-1) + 1e-9).log().gather(1, y[:, None]).mean()


def given_to_nll(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nll_loss(z.softmax(-1).log(), y)


def by_one_hot(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -(one_hot(y, _CLASSES) * log_softmax(z, -1)).sum(-1).mean()


def of_both(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -(one_hot(y, _CLASSES) * z.softmax(-1).log()).sum(-1).mean()


def by_exp_and_one_hot(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -(one_hot(y, _CLASSES) * soft(z).log()).sum(-1).mean()


def torchs_own(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return cross_entropy(z, y, label_smoothing=0.1)


def picked(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return -log_softmax(z, -1).gather(1, y[:, None]).mean()


def entropy(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    p = z.softmax(-1)
    return picked(z, y) + (p * p.log()).sum(-1).mean()


def distilled(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return cross_entropy(z, y) - (z.detach().roll(1).softmax(-1) * log_softmax(z, -1)).sum(-1).mean()


def of_overlap(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Dice's, beside torch's own cross-entropy."""
    p, truth = z.softmax(-1), one_hot(y, _CLASSES).float()
    return cross_entropy(z, y) + 1 - 2 * (p * truth).sum() / (p + truth).sum()


def gated(z: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """A softmax by hand that is no loss."""
    return soft(z).square().mean()


def told(loss: Loss, to: Path, **options: bool) -> Outcome:
    net, x, y = nn.Linear(8, _CLASSES), torch.randn(_ROWS, 8), torch.randint(_CLASSES, (_ROWS,))
    trace = recorded_steps(lambda: loss(net(x), y).backward(), to, _STEPS, record_shapes=True, **options)
    return written_cross_entropy(signals_of(trace=trace))


_WRITTEN = (by_exp, by_exp_and_log, of_softmax, given_to_nll, by_one_hot, of_both, by_exp_and_one_hot)


@pytest.mark.parametrize("loss", _WRITTEN, ids=lambda f: f.__name__)
def test_each_spelling_is_told_with_its_line(loss: Loss, tmp_path: Path) -> None:
    found = told(loss, tmp_path / "t.json", with_stack=True)
    assert isinstance(found, Proposal)
    assert found.code == "F.cross_entropy(scores, labels)"
    assert any(Path(__file__).name in line for line in found.lines)


@pytest.mark.parametrize("loss", _WRITTEN, ids=lambda f: f.__name__)
def test_what_is_told_computes_the_same(loss: Loss) -> None:
    y = torch.randint(_CLASSES, (4,))
    z = torch.randn(4, _CLASSES, dtype=torch.float64, requires_grad=True)
    losses = [loss(z, y), cross_entropy(z, y)]
    torch.testing.assert_close(*losses, rtol=1e-4, atol=0)  # one of them adds a small number
    torch.testing.assert_close(*(torch.autograd.grad(x, z)[0] for x in losses), rtol=1e-3, atol=1e-8)


@pytest.mark.parametrize("loss", [torchs_own, picked, entropy, distilled, of_overlap, gated], ids=lambda f: f.__name__)
def test_what_is_like_it_is_not(loss: Loss, tmp_path: Path) -> None:
    assert told(loss, tmp_path / "t.json") is None
