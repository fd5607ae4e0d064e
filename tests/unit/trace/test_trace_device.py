"""Traces of a GPU, written by hand: kernels, copies, waits, collectives, the optimizer."""

import pytest
from tests.unit.trace.trace_builder import DEFAULT, SIDE, Trace, training

from laptime.trace import summarize


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    return summarize(training().write(tmp_path_factory.mktemp("trace") / "gpu.json"))


def test_the_step_is_shared_out_in_order_of_claim(summary):
    # Kernels 200-400, 500-505, 510-580, 650-700, 730-740; copies 110-130 and what no kernel hides of 300-500; NCCL
    # 600-650; calls of the runtime where none of these run: 108-110, 135-140, 161-166, 700-730, 740-760.
    shares = {name: round(ms * 1e3) for name, ms in summary.attribution_ms.items()}
    assert shares["kernel"] == 200 + 5 + 70 + 50 + 10
    assert shares["copy"] == 20 + 100
    assert shares["communication"] == 50
    assert shares["runtime"] == 2 + 5 + 5 + 30 + 20
    assert shares["data_loading"] == 100
    assert sum(summary.attribution_ms.values()) == pytest.approx(summary.step_mean_ms)


def test_kernels_busy_and_idle_count_overlaps_once(summary):
    kernels = summary.kernels
    assert kernels.calls == 5
    assert kernels.median_us == 50
    assert kernels.short == pytest.approx(1 / 5)
    assert kernels.busy_ms == pytest.approx((20 + 300 + 5 + 70 + 100 + 10) / 1e3)
    assert kernels.busy_ms + kernels.idle_ms == pytest.approx(summary.step_mean_ms)


def test_idle_time_is_explained_by_data_and_waits(summary):
    # Idle: 0-110 (100 of it data), 130-200, 505-510, 580-600, 700-730 (in the wait), 740-1000 (in it and after).
    first, second = 10 + 70 + 5 + 20, 70 + 5 + 20
    assert summary.kernels.unexplained_idle_ms == pytest.approx((first + second) / 2 / 1e3)


def test_copies_tell_pageable_from_pinned_and_see_fresh_fills(summary):
    pinned, pageable = sorted(summary.copies, key=lambda row: row.pageable)
    assert (pageable.kind, pageable.pageable, pageable.calls, pageable.mib, pageable.fresh) == ("HtoD", True, 1, 1, 1)
    assert (pinned.kind, pinned.pageable, pinned.mib, pinned.fresh) == ("DtoH", False, 0.5, 0)
    assert pageable.source == "train.py:12"


def test_a_wait_has_its_operator_its_line_and_the_idle_time_after_it(summary):
    (wait,) = summary.syncs
    assert (wait.name, wait.source, wait.calls) == ("aten::item", "train.py:31", 1)
    assert wait.wait_ms == pytest.approx(0.070)
    # 240 us to the end of each step, and 110 more in the second until the device has work again.
    assert wait.idle_after_ms == pytest.approx((240 + 110 + 240) / 2 / 1e3)


def test_a_collective_is_exposed_where_no_kernel_runs(summary):
    (ring,) = summary.collectives
    assert (ring.calls, ring.mib) == (1, 4)
    assert (ring.ms, ring.exposed_ms) == (pytest.approx(0.100), pytest.approx(0.050))


def test_kernels_count_for_the_operator_that_launched_them(summary):
    times = {row.name: row.device_self_ms * 1e3 for row in summary.operators}
    assert times["aten::cudnn_convolution"] == pytest.approx(200)
    assert times["aten::mul"] == pytest.approx(75)
    assert summary.operators[0].name == "aten::cudnn_convolution"
    mul = next(row for row in summary.operators if row.name == "aten::mul")
    assert mul.region == "backward"
    assert (summary.elementwise_calls, summary.elementwise_ms) == (1, pytest.approx(0.075))


def test_the_optimizer_takes_from_its_first_kernel_to_its_last(summary):
    assert summary.optimizer_ms == pytest.approx((740 - 650) / 1e3)
    assert summary.optimizer_calls == 2


def test_what_the_trace_says_of_itself(summary):
    assert (summary.device, summary.device_name) == ("cuda", "NVIDIA H100 80GB HBM3")
    assert summary.missing == ("memory",)


def test_rows_in_a_temporary_file_give_the_same_numbers(tmp_path):
    path = training(steps=5).write(tmp_path / "gpu.json")
    in_memory, in_file = summarize(path), summarize(path, in_memory=7)
    assert in_file == in_memory


def test_a_kernel_that_runs_into_the_next_step_is_busy_in_both_and_counted_once(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.step(2, 100, 100)
    op = trace.op("aten::mm", 10, 20)
    trace.launch(op, 12, 50, 100)
    trace.op("aten::view", 110, 2)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert (summary.kernels.calls, summary.kernels.busy_ms) == (0.5, pytest.approx(0.050))
    assert summary.operators[0].device_self_ms == pytest.approx(0.050)


def test_a_kernel_finds_its_operator_a_step_later(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.step(2, 100, 100)
    trace.launch(trace.op("aten::mm", 10, 20), 12, 150, 20)
    assert summarize(trace.write(tmp_path / "t.json")).operators[0].device_self_ms == pytest.approx(0.010)


def test_a_host_that_runs_ahead_leaves_a_kernel_to_the_step_and_region_of_its_launch(tmp_path):
    trace = Trace()
    for number in range(3):
        at = 100 * number
        trace.step(number, at, 100)
        trace.note("forward", at + 1, 20)
        trace.note("Optimizer.step#SGD.step", at + 50, 20)
        update = trace.op("aten::add_", at + 52, 6)
        # The first runs while the host is in the next step's forward, the second after that.
        trace.launch(update, at + 53, at + 105, 10, "elementwise_kernel")
        trace.launch(update, at + 54, at + 130, 10, "elementwise_kernel")
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert summary.elementwise_ms == 0
    # Those of the third step run after the recording.
    assert (summary.optimizer_ms, summary.optimizer_calls) == (pytest.approx(2 * 35 / 3e3), pytest.approx(4 / 3))


def test_optimizer_steps_that_share_a_step_of_the_clock_are_added_apart(tmp_path):
    trace = Trace()
    for number in range(3):
        trace.step(number, 100 * number, 100)
    for at, begins in ((0, (110,)), (100, (180, 210))):
        trace.note("Optimizer.step#SGD.step", at + 50, 20)
        update = trace.op("aten::add_", at + 52, 6)
        for i, begin in enumerate(begins):
            trace.launch(update, at + 53 + i, begin, 10)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert summary.optimizer_ms == pytest.approx((10 + 40) / 3e3)


def test_an_optimizer_without_kernels_takes_an_unknown_time_on_a_device(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.note("Optimizer.step#SGD.step", 50, 20)
    trace.launch(trace.op("aten::mm", 10, 20), 12, 30, 10)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert (summary.optimizer_ms, summary.optimizer_calls) == (None, None)


def test_a_fresh_copy_that_runs_a_step_later_is_fresh(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.step(2, 100, 100)
    trace.op("aten::zeros", 10, 4)
    move = trace.op("aten::to", 16, 20)
    trace.launch(move, 18, 120, 5, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=64)
    assert summarize(trace.write(tmp_path / "t.json")).copies[0].fresh == 0.5


def test_kernels_on_two_streams_overlap_once(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    op = trace.op("aten::mm", 0, 5)
    trace.launch(op, 0, 10, 40, stream=DEFAULT)
    trace.launch(op, 1, 30, 40, stream=SIDE)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert summary.attribution_ms["kernel"] == pytest.approx(0.060)


@pytest.mark.parametrize(
    ("fill", "fresh"),
    [
        ({"Concrete Inputs": ["[4, 4]"], "Input Dims": [[]]}, 1),
        ({"Concrete Inputs": ["[9]"], "Input Dims": [[]]}, 0),
    ],
)
def test_a_move_is_fresh_only_after_a_fill_of_its_shape(tmp_path, fill, fresh):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.op("aten::randn", 1, 4, **fill)
    move = trace.op("aten::to", 6, 20, **{"Input Dims": [[4, 4], []]})
    trace.launch(move, 8, 10, 5, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=64)
    assert summarize(trace.write(tmp_path / "t.json")).copies[0].fresh == fresh


def test_a_fill_on_the_device_makes_no_fresh_move(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    fill = trace.op("aten::zeros", 1, 10, **{"Concrete Inputs": ["[4, 4]"], "Input Dims": [[]]})
    trace.launch(fill, 2, 4, 3, "fill_kernel")
    move = trace.op("aten::to", 12, 20, **{"Input Dims": [[4, 4], []]})
    trace.launch(move, 14, 20, 5, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=64)
    assert summarize(trace.write(tmp_path / "t.json")).copies[0].fresh == 0


def test_calls_of_the_runtime_without_kernels_say_that_the_device_was_not_recorded(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.wait(10, 20)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert (summary.device, summary.kernels) == ("cpu", None)
    assert "device" in summary.missing


def test_garbage_collection_is_known_only_where_it_was_recorded(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.op("aten::mm", 10, 50)
    assert summarize(trace.write(tmp_path / "t.json")).gc_ms is None
    trace.line("Python GC", 70, 20)
    assert summarize(trace.write(tmp_path / "t.json")).gc_ms == pytest.approx(0.020)


def test_layout_kernels_are_told_apart(tmp_path):
    trace = Trace()
    trace.step(1, 0, 100)
    op = trace.op("aten::cudnn_convolution", 0, 5)
    trace.launch(op, 0, 10, 8, "void cudnn::ops::nchwToNhwcKernel<float>")
    trace.launch(op, 1, 20, 40)
    assert summarize(trace.write(tmp_path / "t.json")).kernels.layout_ms == pytest.approx(0.008)


def test_a_wait_knows_which_way_the_copy_goes_that_it_is_for(tmp_path):
    trace = Trace()
    trace.step(1, 0, 200)
    sent = trace.op("aten::copy_", 0, 40)
    trace.launch(sent, 5, 10, 20, "Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy", bytes=64)
    trace.wait(12, 20)
    trace.op("aten::to", 50, 45)
    read = trace.op("aten::copy_", 55, 38)
    trace.launch(read, 56, 62, 10, "Memcpy DtoH (Device -> Pageable)", cat="gpu_memcpy", bytes=64)
    trace.wait(64, 20)
    trace.wait(120, 20)
    rows = summarize(trace.write(tmp_path / "t.json")).syncs
    assert {(r.name, r.copies) for r in rows} == {
        ("aten::copy_", "HtoD"),
        ("aten::to", "DtoH"),
        ("cudaStreamSynchronize", ""),
    }
    # The call that copies waits, too, before the one that waits.
    assert {r.copies: r.wait_ms for r in rows} == pytest.approx({"HtoD": 0.025, "DtoH": 0.025, "": 0.020})


@pytest.mark.parametrize("ending", ["", "_v2", "_v3020", "_ptsz", "_ptds_v7000", "_v7000_ptsz"])
def test_calls_that_are_named_with_their_version_are_those_without(tmp_path, ending):
    trace = Trace()
    trace.step(1, 0, 200)
    op = trace.op("aten::mm", 0, 40)
    trace.launch(op, 5, 10, 20)
    trace.wait(50, 20, f"cuStreamSynchronize{ending}")
    trace.wait(80, 10, f"cuMemCreate{ending}")
    found = summarize(trace.write(tmp_path / "t.json"))
    assert [(r.name, r.wait_ms) for r in found.syncs] == [("cuStreamSynchronize", pytest.approx(0.020))]
    assert found.allocations is not None
    assert found.allocations.calls == 1
