"""The profiled segment on a real, tiny net: its files, what it leaves as it was, and failures that end nothing."""

import gzip
import json
import weakref
from collections import Counter
from dataclasses import replace

import pytest
import torch
from tests.unit.profiling.profiling_examples import BATCH, tiny

from laptime.measure.inference import inference_sizes
from laptime.optimizations.average import Averaged
from laptime.optimizations.graph import GraphStep, directly, eager_record
from laptime.profiling import capture, segment
from laptime.profiling.capture import Recorder, fitted, make_profiler, record_steps, slimmed, undisturbed, waiting_steps
from laptime.profiling.files import write_trace
from laptime.profiling.segment import Asked, Segment, absent, with_sources
from laptime.records import KernelStats, OperatorRow, Quartiles, SliceRow, TraceSummary
from laptime.spec import ProfileSchedule, read_schedule

TWO = ProfileSchedule(0, 1, 2, 1)


class Refusing:
    """A schedule of the learning rate that has taken all its steps, as OneCycleLR has after a run."""

    def step(self):
        raise ValueError("no step is left")


@pytest.mark.parametrize(
    ("text", "step_s", "cut"),
    [
        ("1,2,5,1", None, "1,2,5,1"),
        ("1,2,5,1", 0.5, "1,2,5,1"),
        ("1,2,5,1", 1.0, "0,2,5,1"),
        ("1,2,5,1", 2.0, "0,1,2,1"),
        ("1,2,5,1", 4.0, "0,0,1,1"),
        ("1,2,5,1", 60.0, "0,0,1,1"),
        ("0,1,1,10", 1.0, "0,1,1,3"),
    ],
)
def test_long_steps_get_fewer_of_them_and_at_least_one(text, step_s, cut):
    found, note = fitted(read_schedule(text), step_s, 7.0)
    assert str(found) == cut
    assert bool(note) == (text != cut)
    assert f"cut to {cut}" in note or not note


def test_a_segment_writes_its_files_and_leaves_the_rest_as_it_was(tmp_path):
    parts, recipe = tiny()
    parts.schedule = Refusing()
    mark, schedule, random = parts.mark, parts.schedule, torch.get_rng_state()
    folder = tmp_path / "profile"
    record = Segment(parts, recipe, Asked(TWO, 0, 1e-3, folder)).run()
    assert (parts.mark, parts.schedule) == (mark, schedule)
    assert torch.equal(torch.get_rng_state(), random)
    assert parts.model.training
    assert (record.schedule, record.steps, record.folder) == ("0,1,2,1", 2, "profile")
    assert record.step_ms == pytest.approx(record.ratio * 1e-3)
    assert any("times the counted ones" in note for note in record.notes)
    tables = {"self_cpu_time", "total_cpu_time", "by_input_shape", "memory", "inference"}
    written = {p.name for p in folder.iterdir()}
    traces = {"trace.json.gz", "trace_stacks.json.gz", "trace_inference.json.gz"}
    assert written - {"breakdown.json"} == {*(f"{t}.txt" for t in tables), *traces}
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    names = Counter(e["name"] for e in events if e.get("cat") == "user_annotation")
    assert {n: names[n] for n in ("data", "forward", "backward", "optimizer", "read")} == dict.fromkeys(
        ("data", "forward", "backward", "optimizer", "read"), 2
    )
    assert sum(n.startswith("ProfilerStep#") for n in names) == 2
    assert "aten::convolution_backward" in (folder / "self_cpu_time.txt").read_text()
    assert f"[[{BATCH}, 3, 8, 8]" in (folder / "by_input_shape.txt").read_text()
    assert "Self CPU Mem" in (folder / "memory.txt").read_text()
    inference = (folder / "inference.txt").read_text()
    assert len(inference_sizes(recipe)) > 1
    for size in inference_sizes(recipe):
        assert f"passes of {size} samples, by self CPU time, one row for each" in inference
        assert f"[[{size}, 3, 8, 8]" in inference
    assert "backward" not in inference
    floats = sum(p.numel() for p in parts.model.parameters())
    assert record.memory_mib["parameters"] == record.memory_mib["gradients"] == pytest.approx(floats * 4 / 2**20)
    assert record.memory_mib["optimizer"] > 2 * floats * 4 / 2**20  # two moments, and a count for each tensor
    assert record.memory_mib["activations"] > 0


def test_of_several_cycles_the_last_is_counted_as_it_is_in_the_tables(tmp_path):
    parts, recipe = tiny()
    record = Segment(parts, recipe, Asked(ProfileSchedule(0, 1, 2, 3), 0, None, tmp_path)).run()
    assert record.steps == 2
    table = (tmp_path / "self_cpu_time.txt").read_text()
    assert "of several cycles the last one's" in table.splitlines()[0]
    (update,) = (line for line in table.splitlines() if "Optimizer.step#Adam.step" in line)
    assert update.split()[-1] == "2"


@pytest.mark.parametrize(("text", "waits"), [("1,2,5,1", {2, 7}), ("0,0,2,1", {-1, 1}), ("1,1,1,2", {1, 2, 4, 5})])
def test_the_host_waits_before_the_first_recorded_step_and_in_the_last(text, waits):
    assert waiting_steps(read_schedule(text)) == waits


def test_a_trace_that_can_t_be_written_leaves_nothing_behind(tmp_path):
    with torch.profiler.profile() as recorded:
        torch.ones(2)
    taken = tmp_path / "trace.json.gz"
    taken.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_trace(recorded, taken)
    assert list(tmp_path.iterdir()) == [taken]


def test_a_folder_that_can_t_be_made_is_a_note(tmp_path):
    parts, recipe = tiny()
    (tmp_path / "file").write_text("")
    record = Segment(parts, recipe, Asked(TWO, 0, None, tmp_path / "file" / "profile")).run()
    assert "the profile has no folder: NotADirectoryError" in record.notes[0]
    assert record.steps == 2


def test_a_gpu_without_recorded_kernels_is_told():
    found = TraceSummary(step_ms=Quartiles(low=1, median=1, high=1), step_mean_ms=1, missing=("memory", "stacks"))
    missing, note = absent(found, on_gpu=True, memory=True)
    assert missing == ("device", "stacks")
    assert "no kernel of the GPU was recorded" in note
    assert absent(found, on_gpu=False, memory=False) == (("device", "memory", "stacks"), "")
    seen = found.model_copy(update={"kernels": KernelStats(calls=1), "device": "cuda"})
    assert absent(seen, on_gpu=True, memory=True) == (("stacks",), "")


def test_a_profiler_that_fails_ends_no_step():
    parts, _ = tiny()
    before = parts.model[0].weight.detach().clone()

    def broken():
        raise RuntimeError("CUPTI is taken")

    recorder = Recorder(broken)
    with undisturbed(parts):
        record_steps(parts, 0, TWO, recorder)
    assert "CUPTI is taken" in recorder.failure
    assert recorder.steps_ms == []
    assert not torch.equal(before, parts.model[0].weight)


def test_a_step_that_fails_becomes_a_note(tmp_path):
    parts, recipe = tiny()
    whole = parts.step

    def failing(p, batch):
        if len(batch) < BATCH:
            raise RuntimeError("no room")
        return whole(p, batch)

    parts.step = failing
    record = Segment(parts, recipe, Asked(TWO, 0, None, tmp_path)).run()
    assert [note for note in record.notes if "a profiled step failed: RuntimeError: no room" in note]
    assert (record.ratio, record.memory_mib) == (None, {})
    with torch.profiler.profile():  # none is left running
        pass


def test_lines_come_from_the_recording_with_stacks():
    rows = (OperatorRow(name="aten::add", shapes="[1]"), OperatorRow(name="aten::mul", shapes="[1]"))
    step = {"step_ms": Quartiles(low=1, median=1, high=1), "step_mean_ms": 1}
    parts = tuple(SliceRow(name="aten::select_backward", shapes="[9]", within=w) for w in ("", "aten::gru"))
    times = TraceSummary(**step, operators=rows, slices=parts, missing=("memory", "stacks"))
    lines = {"operators": (rows[0].model_copy(update={"source": "net.py:3"}),)}
    stacks = TraceSummary(**step, **lines, slices=(parts[1].model_copy(update={"source": "net.py:4"}),))
    found = with_sources(times, stacks)
    assert [r.source for r in found.slices] == ["", "net.py:4"]
    assert [r.source for r in found.operators] == ["net.py:3", ""]
    assert found.missing == ("memory",)
    assert with_sources(times, replace_operators(stacks)).missing == ("memory", "stacks")


def replace_operators(summary: TraceSummary) -> TraceSummary:
    return summary.model_copy(update={"operators": ()})


def test_a_replayed_step_has_no_peak_of_its_own_also_below_an_average(tmp_path, monkeypatch):
    parts, recipe = tiny()
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _: 3 * 2**20)
    segment = Segment(parts, recipe, Asked(TWO, 0, None, tmp_path), held=2**20)
    assert segment._gpu_peak_mib() == 2
    parts.step = Averaged(GraphStep((BATCH, 1.0), eager_record, directly))
    assert segment._gpu_peak_mib() is None


@pytest.mark.gpu
def test_a_gpu_adds_device_time_and_memory(tmp_path):
    from laptime.engine.build import build

    _, recipe = tiny()
    recipe = replace(recipe, device=torch.device("cuda"))
    record = Segment(build(recipe, lambda _: None), recipe, Asked(TWO, 0, None, tmp_path)).run()
    assert record.steps == 2, record.notes
    assert "average device time" in (tmp_path / "device_time.txt").read_text()
    assert "taken on the GPU" in (tmp_path / "memory.txt").read_text()
    assert record.memory_mib["activations"] > 0


def test_a_recording_is_given_up_before_the_next_one(tmp_path, monkeypatch):
    """The recordings of a net of 2,000 layers held 7 GB together."""
    made, alive = [], []

    def make(*args, **kwargs):
        alive.append(sum(seen() is not None for seen in made))
        recorded = make_profiler(*args, **kwargs)
        made.append(weakref.ref(recorded))
        return recorded

    monkeypatch.setattr(segment, "make_profiler", make)
    parts, recipe = tiny()
    Segment(parts, recipe, Asked(TWO, 0, None, tmp_path)).run()
    assert alive == [0, 0, 0]


@pytest.mark.parametrize(
    ("tensors", "left"), [(60, "1,2,5,1"), (2000, "1,2,5,1"), (5000, "1,2,2,1"), (50_000, "1,2,1,1")]
)
def test_of_thousands_of_tensors_fewer_steps_are_recorded(tensors, left):
    found, note = slimmed((read_schedule("1,2,5,1"), ""), tensors)
    assert str(found) == left
    assert bool(note) == (left != "1,2,5,1")
    assert slimmed((read_schedule("1,2,5,1"), "cut"), tensors)[1].startswith("cut")


def test_a_profile_says_that_it_has_fewer_steps(tmp_path, monkeypatch):
    parts, recipe = tiny()
    monkeypatch.setattr(capture, "_TENSORS", 1)
    record = Segment(parts, recipe, Asked(TWO, 0, None, tmp_path)).run()
    assert record.steps == 1
    assert any("parameter tensors" in note for note in record.notes)
