"""Traces of other people's loops and devices: closures, gradients that are added, several devices, Windows, ROCm."""

import pytest
from tests.unit.trace.trace_builder import BACKWARD, Trace, training

from laptime.trace import summarize


def test_batches_whose_gradients_are_added_each_have_their_regions(tmp_path):
    trace = Trace()
    trace.step(1, 0, 400)
    for at in (0, 200):
        trace.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 20)
        trace.op("aten::mm" if at else "aten::addmm", at + 30, 40)
        trace.op("autograd::engine::evaluate_function: MmBackward0", at + 80, 50, BACKWARD)
        trace.op("autograd::engine::evaluate_function: TBackward0", at + 140, 20, BACKWARD)
    trace.note("Optimizer.step#SGD.step", 370, 20)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert {row.name: row.region for row in summary.operators if "aten" in row.name} == {
        "aten::mm": "forward",
        "aten::addmm": "forward",
    }
    times = {name: ms * 1e3 for name, ms in summary.regions_ms.items()}
    assert times == pytest.approx({"data": 40, "forward": 50 + 50, "backward": 160, "optimizer": 20})


@pytest.mark.parametrize("offset", [0, 40])
def test_an_optimizer_with_a_closure_updates_after_the_backward(tmp_path, offset):
    """As Lightning trains; it ends its profiler's step after the forward pass, in the middle of the closure."""
    trace = Trace()
    for number in range(4):
        at = 100 * number
        trace.note("Optimizer.step#SGD.step", at + 5, 90)
        forward = trace.op("aten::mm", at + 10, 20)
        trace.launch(forward, at + 12, at + 20, 20)
        trace.op("autograd::engine::evaluate_function: MmBackward0", at + 50, 25, BACKWARD)
        backward = trace.op("aten::mm", at + 51, 20, BACKWARD)
        trace.launch(backward, at + 52, at + 60, 15, tid=BACKWARD)
        update = trace.op("aten::_foreach_add_", at + 80, 10)
        trace.launch(update, at + 81, at + 88, 6)
        if number < 3:
            trace.step(number, at + offset, 100)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert (summary.optimizer_ms, summary.optimizer_calls) == (pytest.approx(6 / 1e3), 1)
    assert {row.name: row.region for row in summary.operators}["aten::_foreach_add_"] == "optimizer"
    assert summary.regions_ms["optimizer"] == pytest.approx(20 / 1e3)


@pytest.mark.parametrize(
    ("name", "missed"),
    [
        ("aten::cudnn_convolution", True),
        ("aten::miopen_batch_norm", True),
        ("aten::_flash_attention_forward", True),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", False),
        ("aten::mkldnn_convolution", False),
        ("aten::mm", False),
    ],
)
def test_so_do_operators_that_no_cpu_has(tmp_path, name, missed):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.op(name, 10, 50)
    assert ("device" in summarize(trace.write(tmp_path / "t.json")).missing) is missed


def test_another_device_is_launched_by_its_own_runtime(tmp_path):
    trace = training()
    trace.events = [{**e, "cat": "xpu_runtime"} if e["cat"] == "cuda_runtime" else e for e in trace.events]
    other, plain = (summarize(t.write(tmp_path / "t.json")) for t in (trace, training()))
    assert other == plain


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        ("torch\\nn\\modules\\conv.py(553): forward", "train.py:12"),
        ("C:\\env\\Lib\\site-packages\\timm\\a.py(3): f", "train.py:12"),
        ("C:\\me\\net.py(3): f", "C:\\me\\net.py:3"),
    ],
)
def test_lines_are_the_users_on_windows_too(tmp_path, frame, line):
    trace = Trace()
    trace.step(1, 0, 100)
    trace.line("train.py(12): main", 1, 98)
    trace.line(frame, 2, 96)
    trace.op("aten::mm", 10, 20)
    assert summarize(trace.write(tmp_path / "t.json")).operators[0].source == line


@pytest.mark.parametrize("name", ["hipMemcpyWithStream", "hipMemcpy", "cudaMemcpy"])
def test_a_copy_that_waits_is_a_wait(tmp_path, name):
    trace = Trace()
    trace.step(1, 0, 200)
    trace.op("aten::item", 10, 40)
    trace.wait(12, 30, name)
    trace.device("kernel", "gemm", 0, 40)
    (row,) = summarize(trace.write(tmp_path / "t.json")).syncs
    assert (row.name, row.wait_ms, row.idle_after_ms) == ("aten::item", pytest.approx(0.030), pytest.approx(0.158))


@pytest.mark.parametrize("in_memory", [200_000, 7])
def test_of_several_devices_the_busiest_counts_alone(tmp_path, in_memory):
    trace = training()
    alone = summarize(trace.write(tmp_path / "t.json"))
    others = [{**e, "pid": 1} for e in trace.events if e.get("cat") in ("kernel", "gpu_memcpy")]
    trace.events += others[:-1]
    both = summarize(trace.write(tmp_path / "t.json"), in_memory)
    assert (alone.devices, both.devices) == (1, 2)
    assert both == alone.model_copy(update={"devices": 2})
