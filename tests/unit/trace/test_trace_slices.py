"""Gradients of slices in traces that torch records of small nets; and nets close to them without such a loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.trace.recorded_steps import recorded_steps
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from laptime.advice import signals_of
from laptime.advice.outcome import Proposal
from laptime.advice.rules.hot import hot_operator
from laptime.advice.rules.slices import written_slices
from laptime.records import TraceSummary

_STEPS, _BATCH, _LENGTH, _WIDTH = 3, 32, 64, 64
_LENGTHS = torch.randint(5, _LENGTH + 1, (_BATCH,), generator=torch.Generator().manual_seed(0)).index_fill_(
    0, torch.tensor(0), _LENGTH
)
_WHOLE = f"[{_BATCH}, {_LENGTH}, {_WIDTH}]"


class Net(nn.Module):
    """Layers of all nets here."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.cell = nn.Linear(_WIDTH, _WIDTH), nn.GRUCell(_WIDTH, _WIDTH)
        self.gru = nn.GRU(_WIDTH, _WIDTH, batch_first=True)
        self.gates, self.conv = nn.Linear(_WIDTH, 4 * _WIDTH), nn.Conv1d(_LENGTH, _LENGTH, 3)


Forward = Callable[[Net, torch.Tensor], torch.Tensor]


def indexed(net: Net, x: torch.Tensor) -> torch.Tensor:
    x, state = net.first(x), x.new_zeros(_BATCH, _WIDTH)
    for t in range(_LENGTH):
        state = net.cell(x[:, t], state)
    return state


def taken_apart(net: Net, x: torch.Tensor) -> torch.Tensor:
    state = x.new_zeros(_BATCH, _WIDTH)
    for part in net.first(x).unbind(1):
        state = net.cell(part, state)
    return state


def written(net: Net, x: torch.Tensor) -> torch.Tensor:
    out, state = x.new_zeros(_BATCH, _LENGTH, _WIDTH), x.new_zeros(_BATCH, _WIDTH)
    for t, part in enumerate(net.first(x).unbind(1)):
        state = net.cell(part, state)
        out[:, t] = state
    return out


def stacked(net: Net, x: torch.Tensor) -> torch.Tensor:
    states, state = [], x.new_zeros(_BATCH, _WIDTH)
    for part in net.first(x).unbind(1):
        state = net.cell(part, state)
        states.append(state)
    return torch.stack(states, 1)


def first_written(net: Net, x: torch.Tensor) -> torch.Tensor:
    """Into many tensors one place each."""
    for _ in range(12):
        x = net.first(x)
        x[:, 0] = x[:, 1].tanh()
    return x


def gated(net: Net, x: torch.Tensor) -> torch.Tensor:
    gates = net.gates(x)
    a, b, c, d = (gates[..., _WIDTH * n : _WIDTH * (n + 1)] for n in range(4))
    return a.sigmoid() * b + c.sigmoid() * d


def chunked(net: Net, x: torch.Tensor) -> torch.Tensor:
    a, b, c, d = net.gates(x).chunk(4, dim=-1)
    return a.sigmoid() * b + c.sigmoid() * d


def packed(net: Net, x: torch.Tensor) -> torch.Tensor:
    sequence = pack_padded_sequence(net.first(x), _LENGTHS, batch_first=True, enforce_sorted=False)
    return net.gru(sequence)[1]


def padded(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.gru(net.first(x))[0][torch.arange(_BATCH), _LENGTHS - 1]


def first_places(net: Net, x: torch.Tensor) -> torch.Tensor:
    """Of many tensors one place each, as a class token is read."""
    total = x.new_zeros(_BATCH, _WIDTH)
    for _ in range(12):
        x = net.first(x)
        total = total + x[:, 0]
    return total


def of_cells(net: Net, x: torch.Tensor) -> torch.Tensor:
    """As `indexed`, by the cell of an LSTM."""
    x, cell = net.first(x), nn.LSTMCell(_WIDTH, _WIDTH)
    state = None
    for t in range(_LENGTH):
        state = cell(x[:, t], state)
    return state[0]


def masked(net: Net, x: torch.Tensor) -> torch.Tensor:
    """Fills a large mask in each step."""
    for _ in range(8):
        x = net.first(x) + torch.full((_BATCH, _LENGTH, _WIDTH), 0.5).fill_(0.1)
    return x


def convolved(net: Net, x: torch.Tensor) -> torch.Tensor:
    return net.conv(net.first(x))


def sliced_data(net: Net, x: torch.Tensor) -> torch.Tensor:
    """What has no gradient may be indexed in a loop."""
    return torch.stack([net.first(x[:, t]) for t in range(_LENGTH)])


def recorded(forward: Forward, to: Path, **options: bool) -> TraceSummary:
    net, x = Net(), torch.randn(_BATCH, _LENGTH, _WIDTH)
    return recorded_steps(lambda: forward(net, x).square().mean().backward(), to, _STEPS, record_shapes=True, **options)


def told(found: TraceSummary) -> Proposal | None:
    """What advice says of slices."""
    said = hot_operator(signals_of(trace=found))
    return said if isinstance(said, Proposal) and said.id in ("hot-operator/slices", "hot-operator/packed") else None


@pytest.mark.parametrize(
    ("forward", "slices", "whole", "command"),
    [
        (indexed, _LENGTH, _WHOLE, "unbind(1)"),
        (gated, 4, f"[{_BATCH}, {_LENGTH}, {4 * _WIDTH}]", "split("),
        (packed, _LENGTH, f"[{_LENGTHS.sum()}, {3 * _WIDTH}]", "lengths - 1"),
    ],
)
def test_a_loop_over_slices_is_told_with_its_gain(forward, slices, whole, command, tmp_path):
    found = recorded(forward, tmp_path / "t.json")
    row = found.slices[0]
    assert (row.calls, row.slices, row.shapes) == (slices, slices, whole)
    assert row.within == ("aten::gru" if forward is packed else "")
    # The whole function of the backward: no less than its operators, which are those that the time goes into.
    assert sum(row.parts_ms.values()) == pytest.approx(row.ms, rel=1e-3)
    assert {"aten::fill_", "aten::copy_", "aten::add_"} <= {*row.parts_ms}
    said = told(found)
    assert said is not None
    assert command in said.code
    low, high = said.gain_ms
    assert low <= row.ms * (1 - 1 / slices) <= high


@pytest.mark.parametrize(("forward", "least"), [(indexed, 0.9), (of_cells, 0.6)])
def test_of_a_loop_of_lstm_cells_less_is_certain(forward, least, tmp_path):
    found = recorded(forward, tmp_path / "t.json")
    (row,) = signals_of(trace=found).slices
    assert told(found).gain_ms[0] == pytest.approx(least * row.ms * (1 - 1 / _LENGTH))


@pytest.mark.parametrize(
    "forward", [taken_apart, chunked, padded, first_places, masked, convolved, sliced_data], ids=lambda f: f.__name__
)
def test_a_net_without_such_a_loop_is_not(forward, tmp_path):
    found = recorded(forward, tmp_path / "t.json")
    assert told(found) is None
    # Of a tensor's many places one alone is no loop, however many tensors there are.
    expected = [(12, 1)] if forward is first_places else []
    assert [(row.calls, row.slices) for row in found.slices] == expected


def test_a_loop_of_writes_is_told_with_its_gain(tmp_path):
    found = recorded(written, tmp_path / "t.json", with_stack=True)
    (row,) = found.slices
    assert (row.name, row.calls, row.slices, row.shapes) == ("CopySlices", _LENGTH, _LENGTH, _WHOLE)
    assert sum(row.parts_ms.values()) == pytest.approx(row.ms, rel=1e-3)
    assert row.parts_ms["aten::copy_"] > 0.2 * row.ms
    assert row.source.endswith(f"test_trace_slices.py:{written.__code__.co_firstlineno}")
    said = written_slices(signals_of(trace=found))
    assert isinstance(said, Proposal)
    assert "torch.stack(states, 1)" in said.code
    assert said.gain_ms[0] <= row.ms <= said.gain_ms[1]
    assert told(found) is None  # nothing is indexed in a loop


@pytest.mark.parametrize("forward", [stacked, first_written, indexed], ids=lambda f: f.__name__)
def test_a_net_without_such_writes_is_not(forward, tmp_path):
    assert written_slices(signals_of(trace=recorded(forward, tmp_path / "t.json"))) is None


def test_with_stacks_it_names_the_line(tmp_path):
    (row,) = recorded(indexed, tmp_path / "t.json", with_stack=True).slices
    assert row.source.endswith(f"test_trace_slices.py:{indexed.__code__.co_firstlineno}")


def test_a_recurrent_net_of_torchs_that_asks_for_cudnn_is_no_gpus(tmp_path):
    found = recorded(packed, tmp_path / "t.json")
    assert "cudnn_is_acceptable" in (tmp_path / "t.json").read_text()
    assert "device" not in found.missing
