"""Traces that torch records of small nets which waste time in a way of their own, and of the same nets put right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import dropout, scaled_dot_product_attention
from torch.profiler import ProfilerActivity, profile, schedule

from laptime.advice import signals_of
from laptime.advice.outcome import Proposal
from laptime.advice.rules import RULES
from laptime.trace import summarize

_BATCH, _PLACES, _HEADS, _WIDTH, _ROWS = 8, 128, 4, 32, 40_000
_INDEX = torch.randint(0, 1000, (64_000,), generator=torch.Generator().manual_seed(0))
_READ = torch.arange(64)


class Net(nn.Module):
    """Layers of all nets here."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.rows = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.table, self.sparse = nn.Embedding(_ROWS, 16), nn.Embedding(_ROWS, 16, sparse=True)
        self.bias = nn.Parameter(torch.zeros(_HEADS, _PLACES, _PLACES))
        self.in_double = nn.Linear(256, 256, dtype=torch.float64)

    def split(self) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values [B, heads, T, d]."""
        x = self.parts(torch.randn(_BATCH, _PLACES, _WIDTH))
        return x.view(_BATCH, _PLACES, 3, _HEADS, -1).permute(2, 0, 3, 1, 4).unbind(0)


def by_hand(pairs: torch.Tensor) -> torch.Tensor:
    pairs = (pairs - pairs.amax(-1, keepdim=True)).exp()
    return pairs / pairs.sum(-1, keepdim=True)


def written(
    net: Net,
    share: float = 0.0,
    bias: bool = False,
    soft: Callable[[torch.Tensor], torch.Tensor] = lambda pairs: pairs.softmax(-1),
) -> torch.Tensor:
    queries, keys, values = net.split()
    pairs = queries @ keys.transpose(-2, -1) / 3.0
    weights = soft((pairs + net.bias if bias else pairs).masked_fill(torch.ones(_PLACES, _PLACES).triu(1) > 0, -1e9))
    return dropout(weights, share) @ values if share else weights @ values


def fused(net: Net, share: float = 0.0) -> torch.Tensor:
    return scaled_dot_product_attention(*net.split(), is_causal=True, dropout_p=share)


def gathered(net: Net) -> torch.Tensor:
    return net.rows(torch.randn(1000, _WIDTH))[_INDEX].sum(0)


def selected(net: Net) -> torch.Tensor:
    return net.rows(torch.randn(1000, _WIDTH)).index_select(0, _INDEX).sum(0)


def doubled(net: Net) -> torch.Tensor:
    return net.in_double(torch.randn(512, 256, dtype=torch.float64))


def whole(net: Net) -> torch.Tensor:
    return net.rows(torch.randn(512, _WIDTH))


def told(forward: Callable[[Net], torch.Tensor], to: Path) -> set[str]:
    """The proposals' names."""
    net = Net()
    dense = torch.optim.Adam([p for name, p in net.named_parameters() if "sparse" not in name])
    sparse = torch.optim.SparseAdam(net.sparse.parameters())
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=2, repeat=1),
        record_shapes=True,
        on_trace_ready=lambda p: p.export_chrome_trace(str(to)),
    ) as profiler:
        for _ in range(3):
            forward(net).square().mean().backward()
            for optimizer in (dense, sparse):
                optimizer.step()
                optimizer.zero_grad()
            profiler.step()
    s = signals_of(trace=summarize(to))
    names = ("attention", "dense-embeddings", "hot-operator", "precision")
    return {said.id for name, rule in RULES if name in names and isinstance(said := rule(s), Proposal)}


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        (written, "attention"),
        (lambda net: written(net, soft=by_hand), "attention"),
        (lambda net: written(net, share=0.1), "attention/dropout"),
        (lambda net: fused(net, share=0.1), "attention/dropout"),
        (lambda net: net.table(_READ), "dense-embeddings"),
        (gathered, "hot-operator/_index_put_impl_"),
        (doubled, "precision/double"),
    ],
    ids=["attention", "softmax by hand", "dropout", "dropout in torch's own", "table", "index", "fp64"],
)
def test_it_is_told(forward, expected, tmp_path):
    assert expected in told(forward, tmp_path / "t.json")


@pytest.mark.parametrize(
    "forward",
    [
        fused,
        lambda net: written(net, bias=True),
        lambda net: written(net, bias=True, soft=by_hand),
        lambda net: net.sparse(_READ),
        selected,
        whole,
    ],
    ids=["fused", "a learnt bias", "both", "sparse", "index_select", "fp32"],
)
def test_put_right_it_is_not(forward, tmp_path):
    assert told(forward, tmp_path / "t.json") == set()
