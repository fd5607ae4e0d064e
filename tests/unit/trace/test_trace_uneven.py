"""GPUs whose steps are not alike on the host: one that runs ahead, uneven steps, a recorded graph that is replayed."""

from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path

import pytest
from tests.unit.trace.trace_builder import Trace

from laptime.advice import advise, signals_of
from laptime.advice.rules.launches import launch_bound
from laptime.records import TraceSummary
from laptime.trace import summarize

AHEAD = (5, 5, 18, 20, 20)
KERNELS = 20


def trained(
    folder: Path, host_ms: Iterable[float], device_ms: Iterable[float], in_memory: int = 200_000
) -> TraceSummary:
    """Steps of twenty kernels that the host launches in the first 4 ms; each runs when the one before has ended."""
    trace, at, free = Trace(), 0.0, 0.0
    for number, (host, device) in enumerate(zip(host_ms, device_ms, strict=True)):
        trace.step(number, at, 1e3 * host)
        each = 1e3 * device / KERNELS
        for place in range(KERNELS):
            call = at + 100 + 200 * place
            op = trace.op("aten::mm", call - 10, 20, **{"Input Dims": [[8, 8], [8, 8]]})
            begin = max(free, call + 10)
            trace.launch(op, call, begin, each)
            free = begin + each
        at += 1e3 * host
    return summarize(trace.write(folder / "t.json"), in_memory)


@pytest.fixture(scope="module")
def ahead(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("trace"), AHEAD, [20.0] * len(AHEAD))


def test_steps_of_a_host_that_runs_ahead_are_even_on_the_devices_clock(ahead):
    assert (ahead.step_ms.median, ahead.step_mean_ms) == (18, pytest.approx(20))
    clock = ahead.device_step_ms
    assert (clock.low, clock.median, clock.high) == (pytest.approx(20), pytest.approx(20), pytest.approx(20))


def test_what_the_device_does_is_shared_out_over_its_own_time(ahead):
    # It works from 0.11 ms on without a gap; of its hundred kernels 32 begin behind the last mark.
    assert ahead.kernels.busy_ms == pytest.approx(20)
    assert ahead.kernels.calls == pytest.approx(20)
    assert ahead.attribution_ms["kernel"] == pytest.approx(ahead.kernels.busy_ms)
    assert sum(ahead.attribution_ms.values()) == pytest.approx(ahead.step_mean_ms)
    assert sum(row.device_self_ms for row in ahead.operators) == pytest.approx(20)
    assert ahead.kernels.unexplained_idle_ms < 0.01 * ahead.step_mean_ms


@pytest.mark.parametrize("host", [(4.5, 4.5, 4.5), (5.0, 5.0), (30.0, 40.0, 5.0), (5.0,)])
@pytest.mark.parametrize("in_memory", [200_000, 7])
def test_steps_that_run_behind_their_marks_are_seen_whole(tmp_path, host, in_memory):
    # Launched steps ahead, as they are where nothing in the loop waits for the device.
    found = trained(tmp_path, host, [50.0] * len(host), in_memory)
    signals = signals_of(None, found)
    assert signals.step_ms == pytest.approx(50, rel=0.01)
    assert found.kernels.busy_ms == pytest.approx(found.step_mean_ms)
    (row,) = found.operators
    assert (row.calls, row.device_self_ms) == (20, pytest.approx(50))


def test_a_device_that_waits_for_data_is_seen_with_the_wait_though_its_work_ends_behind_the_mark(tmp_path):
    found = trained(tmp_path, [20.0] * 4, [18.0] * 4)
    assert found.step_mean_ms == 20
    assert found.kernels.idle_ms == pytest.approx(2, rel=0.05)


def test_a_device_without_a_gap_waits_for_no_launches(ahead):
    assert launch_bound(signals_of(None, ahead)) is None


def test_uneven_steps_of_the_device_are_uneven_on_its_clock(tmp_path):
    device = (10.0, 30.0, 10.0, 30.0, 10.0, 30.0)
    clock = trained(tmp_path, [20.0] * 6, device).device_step_ms
    # First kernels run at 0, 20 (when it is launched), 50, 60, 90 and 100 ms.
    assert (clock.low, clock.median, clock.high) == (pytest.approx(10), pytest.approx(20), pytest.approx(30))


def test_the_first_step_alone_has_no_time_on_the_devices_clock(tmp_path):
    assert trained(tmp_path, [20.0], [10.0]).device_step_ms is None


def replayed(folder: Path, kernel_us: float, gap_us: float) -> TraceSummary:
    """Steps of 10 ms that launch two hundred kernels at once, as torch records the replay of a CUDA graph."""
    trace = Trace()
    for number in range(5):
        at = 10_000.0 * number
        trace.step(number, at, 10_000)
        ids = {"correlation": 10_000 + number}
        trace.host("cuda_runtime", "cudaGraphLaunch", at + 50, 300, **ids)
        for place in range(200):
            trace.device("kernel", "elementwise_kernel", at + 100 + place * (kernel_us + gap_us), kernel_us, **ids)
    return summarize(trace.write(folder / "t.json"))


def test_kernels_of_a_replayed_graph_belong_to_the_step_that_launched_it(tmp_path):
    found = replayed(tmp_path, 40.0, 5.0)
    assert (found.kernels.calls, found.kernels.graphed, found.kernels.median_us) == (200, 1.0, 40.0)
    assert found.device_step_ms.median == pytest.approx(10)
    assert found.kernels.busy_ms == pytest.approx(8.0)
    assert sum(found.attribution_ms.values()) == pytest.approx(found.step_mean_ms)
    # No operator launched them, so none has their time, and what is not known is not said.
    assert sum(row.device_self_ms for row in found.operators) == 0
    assert (found.precision, found.elementwise_calls) == (None, None)


def test_a_step_that_is_a_graph_already_is_not_told_to_become_one(tmp_path):
    found = replayed(tmp_path, 4.0, 30.0)
    assert found.kernels.unexplained_idle_ms > 0.5 * found.step_mean_ms
    assert launch_bound(signals_of(None, found)) is None
    # The same kernels, launched one by one.
    eager = found.model_copy(update={"kernels": found.kernels.model_copy(update={"graphed": 0.0})})
    assert launch_bound(signals_of(None, eager)) is not None


def fetched(folder: Path, waits_ms: Iterable[float], more_ms: Iterable[float] = (), first: int = 3) -> TraceSummary:
    """Steps that wait for data, then compute for 10 ms on the device, are read, and go on on the host for a while."""
    trace, at = Trace(), 0.0
    for number, (wait, more) in enumerate(zip_longest(waits_ms, more_ms, fillvalue=0.0), start=first):
        begin, step = at + 1e3 * wait + 50, 1e3 * (wait + more) + 10_200
        trace.step(number, at, step)
        trace.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at, 1e3 * wait + 10)
        op = trace.op("aten::mm", begin, 10, **{"Input Dims": [[8, 8], [8, 8]]})
        for place in range(2):
            trace.launch(op, begin + place, begin + 10 + 5000 * place, 5000)
        trace.op("aten::item", begin + 20, 10_050)
        trace.wait(begin + 30, 10_000)
        at += step
    return summarize(trace.write(folder / "t.json"))


@pytest.mark.parametrize("steps", [8, 9])
def test_a_wait_that_comes_in_bursts_counts_by_its_mean_and_makes_no_noise(tmp_path, steps):
    found = fetched(tmp_path, [40.0 if n % 4 == 1 else 0.0 for n in range(steps)])
    signals = signals_of(None, found)
    wait = 40 * (steps // 4) / steps
    assert signals.wait_ms == pytest.approx(wait, abs=0.02)
    assert signals.step_ms == pytest.approx(10.2 + wait, abs=0.02)
    assert (signals.noise or 0.0) < 0.01
    assert next(row.device_self_ms for row in signals.operators) == pytest.approx(10, abs=0.02)
    assert "workers" in {f.id for f in advise(None, found).findings}


@pytest.mark.parametrize(
    ("place", "first", "wait", "more", "left_out"),
    [
        (0, 3, 0.0, 3000.0, True),  # it compiled
        (4, 3, 0.0, 3000.0, True),  # it saved
        (4, 3, 0.0, 25.0, True),
        (4, 3, 0.0, 15.0, False),
        (0, 0, 3000.0, 0.0, True),  # a training's very first: it started workers
        (0, 3, 3000.0, 0.0, False),  # one of bursts
        (4, 3, 40.0, 5.0, False),
    ],
)
def test_one_step_that_is_none_of_their_kind_is_left_out_and_told(tmp_path, place, first, wait, more, left_out):
    def at(value):
        return [value if n == place else 0.0 for n in range(10)]

    found = fetched(tmp_path, at(wait), at(more), first)
    assert (found.steps, found.left_out_ms) == ((9, pytest.approx(wait + more + 10.2)) if left_out else (10, None))
    assert sum(found.attribution_ms.values()) == pytest.approx(found.step_mean_ms)
    if left_out:
        assert found.step_mean_ms == pytest.approx(10.2)
        assert (found.device_step_ms.low, found.device_step_ms.high) == (pytest.approx(10.2), pytest.approx(10.2))
        assert any("is left out" in notice for notice in advise(None, found).notices)


def test_a_step_that_fetches_many_batches_evaluates(tmp_path):
    def steps(fetches):
        trace, at = Trace(), 0.0
        for number in range(6):
            batches = fetches if number == 2 else 1
            trace.step(number + 3, at, 100.0 * batches)
            for batch in range(batches):
                trace.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 100 * batch, 60)
                trace.op("aten::mm", at + 100 * batch + 61, 30)
            at += 100.0 * batches
        return summarize(trace.write(tmp_path / "t.json")).left_out_ms

    assert steps(3) is None
    assert steps(10) == pytest.approx(1.0)


def test_a_step_that_waits_for_what_the_others_launched_is_one_of_them(tmp_path):
    host, trace, at = [1.0, 1.0, 1.0, 1.0, 101.0], Trace(), 0.0
    for number, host_ms in enumerate(host):
        trace.step(number, at, 1e3 * host_ms)
        op = trace.op("aten::mm", at + 10, 20, **{"Input Dims": [[8, 8], [8, 8]]})
        trace.launch(op, at + 12, 20 + 21_000.0 * number, 21_000)
        at += 1e3 * host_ms
    found = summarize(trace.write(tmp_path / "t.json"))
    assert (found.steps, found.left_out_ms) == (5, None)
    assert found.kernels.busy_ms == pytest.approx(21, abs=0.01)
