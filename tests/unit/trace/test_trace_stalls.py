"""What stops a step now and then: torch.compile's compiler, as torch records it, and a GPU's driver, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.unit.trace.trace_builder import Trace
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule

from laptime.advice import advise
from laptime.records import Allocations, TraceSummary
from laptime.trace import summarize


def notes(trace: TraceSummary) -> str:
    return " ".join(advise(None, trace).notices)


def test_steps_that_compile_anew_are_counted_and_in_no_number(tmp_path: Path) -> None:
    file, net = tmp_path / "trace.json", nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Linear(4, 2))
    compiled, optimizer = torch.compile(net, backend="aot_eager", dynamic=False), torch.optim.SGD(net.parameters(), 0.1)
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=0, warmup=1, active=4, repeat=1),
        on_trace_ready=lambda p: p.export_chrome_trace(str(file)),
    ) as profiler:
        for size in (4, 4, 5, 4, 6):
            optimizer.zero_grad()
            compiled(torch.randn(size, 8)).square().mean().backward()
            optimizer.step()
            profiler.step()
    found = summarize(file)
    use = found.compiler
    assert use is not None
    assert (use.steps, use.of, use.first, use.counted, found.steps) == (2, 4, False, False, 2)
    assert use.ms > 5 * found.step_mean_ms
    told = notes(found)
    assert "2 of 4 recorded steps compiled anew for" in told
    # The compiler runs the net to see what it does, under autograd: no pass that somebody forgot.
    assert "keep a graph" not in told
    assert "compile" not in [w.id for w in advise(None, found).withheld]


def compiling(*steps: int, of: int = 4) -> Trace:
    """Steps of 10 ms in which the compiler takes 8 ms of some."""
    trace = Trace()
    for number in range(of):
        at = 10_000.0 * number
        trace.step(number + 1, at, 10_000)
        trace.op("Torch-Compiled Region: 0/0", at + 9000, 500)
        if number in steps:
            trace.op("_compile.compile_inner (dynamo_timed)", at + 500, 8000)
            trace.op("build_guards (dynamo_timed)", at + 600, 700)
    return trace


@pytest.mark.parametrize(
    ("trace", "left", "said"),
    [
        (compiling(), 4, ""),
        (compiling(0), 3, "The first recorded step compiled for 8 ms (no number holds them): let the profiler's"),
        (compiling(2), 3, "1 of 4 recorded steps compiled anew for 8 ms (no number holds them)"),
        (compiling(0, 1, of=2), 2, "2 of 2 recorded steps compiled anew for 8 ms each in the mean (all numbers hold"),
    ],
)
def test_what_is_said_of_the_compiler(trace: Trace, left: int, said: str, tmp_path: Path) -> None:
    found = summarize(trace.write(tmp_path / "trace.json"))
    told = notes(found)
    assert found.steps == left
    assert said in told
    assert bool(said) == ("recorded step" in told)


def allocating(*steps: int, names: tuple[str, ...] = ("cudaMalloc", "cudaFree")) -> TraceSummary:
    """What a trace of three steps of 1 ms has, in each of which a kernel runs."""
    trace = Trace()
    for number in range(3):
        at = 1000.0 * number
        trace.step(number + 1, at, 1000)
        op = trace.op("aten::mm", at + 100, 400)
        trace.launch(op, at + 110, at + 600, 300)
        for place, name in enumerate(names if number in steps else ()):
            trace.wait(at + 150 + 50 * place, 40, name)
    path = trace.write(Path.cwd() / "trace.json")
    return summarize(path)


def test_a_driver_that_is_asked_for_memory_in_steps_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = allocating(0, 2)
    asked = found.allocations
    assert asked is not None
    assert (asked.steps, asked.calls, asked.frees) == (2, pytest.approx(4 / 3), pytest.approx(2 / 3))
    assert asked.ms == pytest.approx(0.16 / 3)
    assert "1.3 times a step for memory, 0.7 of them to give it back, which waits for the GPU, in 2 of" in notes(found)
    assert "for memory in 3 of 3" in notes(allocating(0, 1, 2, names=("cuMemCreate", "cuMemMap")))
    assert "for memory" not in notes(allocating(1))  # one larger batch
    assert allocating().allocations == Allocations()
    short = found.model_copy(update={"allocations": Allocations(steps=2, calls=2, ms=0.01)})
    assert "for memory" not in notes(short)
