"""Graphs that no backward uses, in traces that torch records of a small net; and trainings close to it without any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.unit.trace.recorded_steps import recorded_steps
from tests.unit.trace.trace_builder import training
from torch import nn
from torch.autograd.profiler import record_function
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

from laptime.advice import advise, signals_of
from laptime.advice.outcome import Note
from laptime.advice.rules.gradients import kept_gradients
from laptime.records import TraceSummary
from laptime.trace import summarize

_STEPS = 3
Batch = tuple[torch.Tensor, torch.Tensor]
Part = Callable[["Loop", Batch], None]


class Net(nn.Module):
    """Nine operators with parameters or without."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU())
        self.head = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).flatten(1))


class Doubled(torch.autograd.Function):
    """Takes a number of autograd's even where nothing is recorded."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Loop:
    """A student with its optimizer, a teacher, and what happens in a step."""

    def __init__(self, step: Part) -> None:
        self.net, self.teacher, self.step, self.done = Net(), Net(), step, 0
        self.optimizer = torch.optim.SGD([*self.net.parameters()], 0.1)

    def update(self, loss: torch.Tensor, **options: bool) -> None:
        self.optimizer.zero_grad()
        loss.backward(**options)
        self.optimizer.step()


def recorded(step: Part, to: Path, stacks: bool = False) -> TraceSummary:
    loop = Loop(step)

    def one() -> None:
        step(loop, (torch.randn(2, 3, 8, 8), torch.randint(0, 5, (2,))))
        loop.done += 1

    return recorded_steps(one, to, _STEPS, with_stack=stacks)


def alone(loop: Loop, batch: Batch) -> None:
    loop.update(cross_entropy(loop.net(batch[0]), batch[1]))


def evaluated(loop: Loop, batch: Batch) -> None:
    alone(loop, batch)
    loop.net(batch[0]).argmax(1).eq(batch[1]).sum().item()


def before(loop: Loop, batch: Batch) -> None:
    loop.net(batch[0]).argmax(1).eq(batch[1]).sum().item()
    alone(loop, batch)


def distilled(loop: Loop, batch: Batch) -> None:
    told = loop.teacher(batch[0])
    out = loop.net(batch[0])
    loop.update(cross_entropy(out, batch[1]) + mse_loss(out, told.detach()))


def without(mode: Callable[[], object]) -> Part:
    def step(loop: Loop, batch: Batch) -> None:
        with mode():
            told = loop.teacher(batch[0])
        out = loop.net(batch[0])
        loop.update(mse_loss(out, told.clone()))
        with mode():
            loop.net(batch[0]).argmax(1)

    return step


def frozen(loop: Loop, batch: Batch) -> None:
    told = Doubled.apply(loop.teacher.requires_grad_(False)(batch[0]))
    loop.update(mse_loss(loop.net(batch[0]), told))
    loop.teacher(batch[0])


def twice(loop: Loop, batch: Batch) -> None:
    first, second = loop.net(batch[0]), loop.net(batch[0].flip(3))
    loop.update(cross_entropy(first, batch[1]) + mse_loss(first, second))


def by_checkpoints(reentrant: bool) -> Part:
    def step(loop: Loop, batch: Batch) -> None:
        images = batch[0].requires_grad_(reentrant)
        middle = checkpoint(loop.net.body, images, use_reentrant=reentrant)
        loop.update(cross_entropy(loop.net.head(middle.flatten(1)), batch[1]))

    return step


def with_a_metric(loop: Loop, batch: Batch) -> None:
    out = loop.net(batch[0])
    loop.update(cross_entropy(out, batch[1]))
    (out @ out.T).argmax(1)


def penalized(loop: Loop, batch: Batch) -> None:
    images = batch[0].requires_grad_(True)
    loss = cross_entropy(loop.net(images), batch[1])
    (gradient,) = torch.autograd.grad(loss, images, create_graph=True)
    loop.update(loss + gradient.pow(2).mean())


def retained(loop: Loop, batch: Batch) -> None:
    loss = cross_entropy(loop.net(batch[0]), batch[1])
    loss.backward(retain_graph=True)
    loop.update(loss)


def accumulated(loop: Loop, batch: Batch) -> None:
    """A loss over two steps; the recording ends between the two."""
    loss = cross_entropy(loop.net(batch[0]), batch[1])
    if loop.done % 2:
        loop.update(loss + loop.kept)
    else:
        loop.kept = loss


def in_bf16(loop: Loop, batch: Batch) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = cross_entropy(loop.net(batch[0]), batch[1])
    loop.update(loss)


def assigned(loop: Loop, batch: Batch) -> None:
    out = torch.zeros(4, 5)
    for half in range(2):
        out[2 * half : 2 * half + 2] = loop.net(batch[0])
    loop.update(out.pow(2).mean())


def adversarial(loop: Loop, batch: Batch) -> None:
    images = batch[0].requires_grad_(True)
    (way,) = torch.autograd.grad(cross_entropy(loop.net(images), batch[1]), images)
    alone(loop, ((images + 0.1 * way.sign()).detach(), batch[1]))


KEPT = {"evaluated": evaluated, "evaluated before": before, "distilled": distilled}
USED = {
    "alone": alone,
    "no_grad": without(torch.no_grad),
    "inference_mode": without(torch.inference_mode),
    "frozen": frozen,
    "twice": twice,
    "checkpoint": by_checkpoints(reentrant=False),
    "reentrant checkpoint": by_checkpoints(reentrant=True),
    "metric": with_a_metric,
    "penalty": penalized,
    "retained": retained,
    "accumulated": accumulated,
    "bf16": in_bf16,
    "assigned": assigned,
    "adversarial": adversarial,
}


def told(found: TraceSummary) -> bool:
    return isinstance(kept_gradients(signals_of(trace=found)), Note)


@pytest.mark.parametrize("name", KEPT)
def test_a_forward_pass_whose_graph_nobody_uses_is_found(name, tmp_path):
    found = recorded(KEPT[name], tmp_path / "t.json")
    assert told(found)
    # What follows the last backward is not judged.
    unused = found.unused_graph
    assert unused.steps == (_STEPS - 1 if name == "evaluated" else _STEPS)
    # Two convolutions, a norm, two ReLUs, a view, and a linear layer's transposed weight and product.
    assert (unused.operators, unused.matrix_work) == (8, 3)
    assert unused.ms > 0
    assert "inference_mode" in " ".join(advise(None, found).notices)


@pytest.mark.parametrize("name", USED)
def test_graphs_that_are_used_or_never_recorded_are_not(name, tmp_path):
    found = recorded(USED[name], tmp_path / "t.json")
    assert found.unused_graph is not None
    assert not told(found)
    if name != "metric":
        assert found.unused_graph.operators == 0


def test_the_line_is_the_call_of_the_net_and_not_one_within_both_nets(tmp_path):
    found = recorded(distilled, tmp_path / "t.json", stacks=True)
    (line,) = found.unused_graph.sources
    place, _, number = line.rpartition(":")
    assert place.endswith("test_trace_gradients.py")
    # torch 2.11 records where functions begin and not who calls them; both nets have one forward.
    calls = "CallFrom" in (tmp_path / "t.json").read_text()
    expected = "told = loop.teacher(batch[0])" if calls else "def forward(self, x"
    assert expected in Path(__file__).read_text().splitlines()[int(number) - 1]
    assert line in kept_gradients(signals_of(trace=found)).text


def test_a_forward_pass_alone_says_nothing(tmp_path):
    def inferred(loop: Loop, batch: Batch) -> None:
        with record_function("forward"):
            loop.net(batch[0])

    found = recorded(inferred, tmp_path / "t.json")
    assert found.unused_graph is None
    assert not any("graph" in notice for notice in advise(None, found).notices)
    assert "kept-gradients" in {held.id for held in advise(None, found).withheld}


def test_a_trace_without_numbers_says_nothing(tmp_path):
    assert summarize(training().write(tmp_path / "t.json")).unused_graph is None


@pytest.mark.parametrize("name", ["cpu", "cpu_stacks", "cpu_workers", "gloo_rank0"])
def test_recorded_trainings_use_all_that_they_record(name):
    found = summarize(Path(f"tests/data/traces/{name}.json.gz"))
    assert found.unused_graph.operators == 0
    assert not told(found)


def test_rows_in_a_temporary_file_give_the_same(tmp_path):
    found = recorded(distilled, tmp_path / "t.json")
    assert summarize(tmp_path / "t.json", in_memory=40) == found
