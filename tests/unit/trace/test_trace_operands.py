"""Convolutions and matrix products: the type of their operands, and how a kernel moves over its map."""

from pathlib import Path

import pytest
import torch
from tests.unit.trace.trace_builder import Trace

from laptime.records import OperatorRow
from laptime.trace import summarize
from laptime.trace.operands import PLACES, dtype_of, window_of
from laptime.trace.operators import MOST_ROWS

CONV = {"Input Dims": [[8, 64, 2, 2], [64, 64, 3, 3], [], [], [], []]}
FLOATS = {"Input type": ["float", "float", "", "ScalarList", "ScalarList", "ScalarList"]}


@pytest.mark.parametrize("name", PLACES)
def test_arguments_stand_where_torchs_own_schemas_have_them(name):
    for schema in torch._C._jit_get_schemas_for_operator(name):
        arguments = [a.name for a in schema.arguments]
        for what, place in PLACES[name]._asdict().items():
            assert (arguments[place] == what) if place is not None else (what not in arguments)


def _recorded(folder: Path, dtype: torch.dtype) -> dict[str, OperatorRow]:
    """Two steps of a convolution with stride 2 on a map of 2x2, and of a linear layer, in autocast."""
    net = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, stride=2, padding=1), torch.nn.Flatten(), torch.nn.Linear(8, 3))
    path = folder / "t.json"
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=2, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(
        activities=activities,
        schedule=schedule,
        record_shapes=True,
        on_trace_ready=lambda p: p.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(3):
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is torch.bfloat16):
                net(torch.ones(2, 4, 2, 2)).sum().backward()
            profiler.step()
    summary = summarize(path)
    assert summary.precision == ("bf16" if dtype is torch.bfloat16 else "fp32")
    return {row.name: row for row in summary.operators}


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "fp32"), (torch.bfloat16, "bf16")])
def test_what_torch_records_says_precision_and_stride(tmp_path, dtype, name):
    rows = _recorded(tmp_path, dtype)
    # Autocast casts within aten::conv2d, which has a row of its own where the machine was busy in it.
    found = [r for r in rows.values() if r.name.startswith("aten::") and "conv" in r.name and r.name != "aten::conv2d"]
    convolutions = {(r.dtype, r.window) for r in found}
    assert convolutions == {(name, "stride [2, 2] padding [1, 1] dilation [1, 1]")}
    assert rows["aten::addmm"].dtype == rows["aten::mm"].dtype == name
    assert {row.dtype for row in rows.values() if row.name.startswith("aten::sum")} == {""}


def _strided(stride: int) -> dict[str, list[str]]:
    return {"Concrete Inputs": ["", "", "[1, 1]", f"[{stride}, {stride}]", "[1, 1]", "1"]}


@pytest.mark.parametrize("in_memory", [3, 200_000])
def test_equal_shapes_of_another_stride_or_type_are_rows_of_their_own(tmp_path, in_memory):
    trace = Trace()
    trace.step(1, 0, 1000)
    halves = {"Input type": ["c10::Half", "c10::Half"]}
    for place, (stride, types) in enumerate(((1, FLOATS), (2, FLOATS), (2, FLOATS), (2, halves))):
        trace.op("aten::cudnn_convolution", 100 * place, 50, **CONV, **_strided(stride), **types)
    rows = summarize(trace.write(tmp_path / "t.json"), in_memory=in_memory).operators
    assert {(r.window[:13], r.dtype, r.calls) for r in rows} == {
        ("stride [1, 1]", "fp32", 1),
        ("stride [2, 2]", "fp32", 2),
        ("stride [2, 2]", "fp16", 1),
    }


@pytest.mark.parametrize(
    ("name", "concrete", "window"),
    [
        ("aten::conv2d", ["", "", "", "[2]", "[1]", "[1]", "1"], "stride [2] padding [1] dilation [1]"),
        (
            "aten::thnn_conv2d",
            ["", "", "[3, 3]", "", "[2, 2]", "[1, 1]"],
            "stride [2, 2] padding [1, 1] dilation [1, 1]",
        ),
        ("aten::convolution", ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"], "transposed"),
        ("aten::conv2d", ["", "", "", "[1, 1]", "same", "[1, 1]", "1"], ""),
        ("aten::conv2d", ["", ""], ""),
        ("aten::conv2d", None, ""),
        ("aten::conv2d", {"3": 1}, ""),
        ("aten::conv_tbc", ["", "", "", "1"], ""),
    ],
)
def test_the_window_of_a_convolution(name, concrete, window):
    assert window_of(name, concrete) == window


@pytest.mark.parametrize(
    ("dims", "types", "dtype"),
    [
        ([[64], [8, 64], [64, 64]], ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"], "bf16"),
        ([[64], [8, 64], [64, 64]], ["float", "c10::Float8_e4m3fn", "c10::Float8_e4m3fn"], "c10::Float8_e4m3fn"),
        ([[[8, 8], [8, 8]]], ["TensorList"], ""),
        ([[64], []], ["float", "Scalar"], ""),
        ([[8, 64]], None, ""),
    ],
)
def test_the_type_is_that_of_the_first_matrix(dims, types, dtype):
    assert dtype_of(dims, types) == dtype


def test_a_trace_without_types_says_no_precision(tmp_path):
    trace = Trace()
    trace.step(1, 0, 1000)
    trace.op("aten::cudnn_convolution", 0, 50, **CONV)
    trace.op("aten::cudnn_convolution", 100, 50)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert summary.precision is None
    assert {(r.dtype, r.window) for r in summary.operators} == {("", "")}


def test_the_precision_is_that_of_most_of_the_devices_time(tmp_path):
    trace = Trace()
    trace.step(1, 0, 1000)
    for place, (name, device_us) in enumerate((("float", 30.0), ("c10::BFloat16", 100.0), ("float", 40.0))):
        begin = 300.0 * place
        # The host takes longest in fp32, which says nothing.
        op = trace.op(
            "aten::mm",
            begin,
            200 if name == "float" else 20,
            **{"Input Dims": [[8, 8], [8, 8]]},
            **{"Input type": [name, name]},
        )
        trace.launch(op, begin + 5, begin + 20, device_us)
    summary = summarize(trace.write(tmp_path / "t.json"))
    assert (summary.precision, summary.compute_major) == ("bf16", 9)


def test_what_autocast_casts_within_an_operator_is_not_its_precision(tmp_path):
    """The outer one was called in fp32, and takes longest where the machine was busy while it cast."""
    trace = Trace()
    trace.step(1, 0, 1000)
    for name, begin, took, kind in (("conv2d", 0, 500, "float"), ("convolution", 400, 90, "c10::BFloat16")):
        trace.op(f"aten::{name}", begin, took, **CONV, **{"Input type": [kind, kind]})
    assert summarize(trace.write(tmp_path / "t.json")).precision == "bf16"


def test_what_tells_of_larger_operators_is_kept_beyond_the_rows_that_anybody_reads(tmp_path):
    trace = Trace()
    trace.step(1, 0, 10_000)
    for place, (region, begin) in enumerate((("forward", 0), ("optimizer", 8_000)), start=1):
        trace.note(region, begin, 2_000)
        trace.op("aten::sqrt", begin, 1, **{"Input Dims": [[place]]})
        trace.op("aten::tanh", begin + 1, 1, **{"Input Dims": [[place]]})
    for place in range(MOST_ROWS):
        trace.op("aten::exp", 10 + 5 * place, 4, **{"Input Dims": [[place + 10]]})
    rows = summarize(trace.write(tmp_path / "t.json")).operators
    assert [(r.name, r.shapes) for r in rows[MOST_ROWS:]] == [("aten::sqrt", "[1]")]
    assert all(r.name == "aten::exp" for r in rows[:MOST_ROWS])
