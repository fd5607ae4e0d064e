"""Traces that torch recorded on a CPU; tests/data/traces/README.md says how."""

import gzip
import json
from pathlib import Path

import pytest

from laptime.records import CATEGORIES
from laptime.trace import summarize

TRACES = Path("tests/data/traces")
ALL = ("cpu", "cpu_stacks", "cpu_workers", "gloo_rank0")


def _summary(name):
    return summarize(TRACES / f"{name}.json.gz")


@pytest.mark.parametrize("name", ALL)
def test_the_parts_add_up_to_the_step(name):
    summary = _summary(name)
    assert summary.steps == 3
    assert tuple(summary.attribution_ms) == CATEGORIES
    assert min(summary.attribution_ms.values()) >= 0
    assert sum(summary.attribution_ms.values()) == pytest.approx(summary.step_mean_ms)
    assert summary.step_ms.low <= summary.step_ms.median <= summary.step_ms.high


@pytest.mark.parametrize("name", ALL)
def test_self_times_add_up_to_the_outermost_operators(name):
    with gzip.open(TRACES / f"{name}.json.gz") as stream:
        events = [e for e in json.load(stream)["traceEvents"] if e["ph"] == "X"]
    ops = [(e["tid"], e["ts"], -e["dur"]) for e in events if e["cat"] == "cpu_op"]
    outer, ends = 0.0, {}
    for tid, begin, dur in sorted(ops):
        if begin >= ends.get(tid, 0.0):
            outer, ends[tid] = outer - dur, begin - dur
    assert sum(row.self_ms for row in _summary(name).operators) == pytest.approx(outer / 3e3, rel=1e-3)


@pytest.mark.parametrize("name", ALL)
def test_rows_in_a_temporary_file_give_the_same_numbers(name):
    path = TRACES / f"{name}.json.gz"
    assert summarize(path, in_memory=40) == summarize(path)


def test_named_regions_are_taken_as_they_are_named():
    with gzip.open(TRACES / "cpu.json.gz") as stream:
        events = json.load(stream)["traceEvents"]
    regions = _summary("cpu").regions_ms
    assert set(regions) == {"data", "forward", "backward", "optimizer"}
    for name, ms in regions.items():
        assert ms == pytest.approx(sum(e["dur"] for e in events if e["name"] == name) / 3e3, rel=1e-6)


@pytest.mark.parametrize("name", ["cpu_stacks", "cpu_workers"])
def test_regions_without_names_come_from_torchs_own_marks(name):
    summary = _summary(name)
    assert set(summary.regions_ms) == {"data", "forward", "backward", "optimizer"}
    assert sum(summary.regions_ms.values()) < summary.step_mean_ms
    where = {row.name: row.region for row in summary.operators}
    assert where["aten::mkldnn_convolution"] == "forward"
    assert where["aten::convolution_backward"] == "backward"
    assert where["aten::native_batch_norm"] == "forward"


def test_data_loading_is_the_whole_fetch_on_a_cpu():
    summary = _summary("cpu_workers")
    assert summary.attribution_ms["data_loading"] == pytest.approx(summary.regions_ms["data"])


def test_chains_that_only_pass_a_call_on_are_one_row():
    rows = {row.name: row for row in _summary("cpu_stacks").operators}
    conv = rows["aten::mkldnn_convolution"]
    assert conv.chain[-2:] == ("aten::convolution", "aten::_convolution")
    assert conv.total_ms == pytest.approx(conv.self_ms, rel=0.1)
    assert "aten::_convolution" not in rows
    norm = rows["aten::native_batch_norm"]
    assert norm.chain == ("aten::batch_norm", "aten::_batch_norm_impl_index")


def test_operators_have_the_line_of_the_user():
    lines = {row.name: row.source for row in _summary("cpu_stacks").operators}
    assert lines["aten::mkldnn_convolution"] == "make.py:20"
    assert lines["aten::convolution_backward"] == "make.py:21"
    assert lines["aten::normal_"] == "make.py:6"


def test_what_a_trace_lacks_is_said():
    assert _summary("cpu").missing == ("stacks", "memory")
    assert _summary("cpu_stacks").missing == ()
    assert _summary("cpu_workers").missing == ("shapes", "stacks", "memory")


def test_gloo_is_communication_less_what_computes_beside_it():
    summary = _summary("gloo_rank0")
    (ring,) = summary.collectives
    assert (ring.name, ring.calls, summary.rank, summary.world) == ("gloo:all_reduce", 1, 0, 2)
    assert ring.mib == pytest.approx(267786 * 4 / (1 << 20))
    assert 0 < ring.exposed_ms < ring.ms < summary.step_mean_ms
    assert ring.exposed_ms <= summary.attribution_ms["communication"]


def test_the_optimizer_counts_its_operators():
    summary = _summary("cpu")
    # Five tensors, each with momentum: a product and two sums.
    assert summary.optimizer_calls == 15
    assert 0 < summary.optimizer_ms < summary.regions_ms["optimizer"]
