"""`laptime advise`: what it reads, and what it says of names that mean nothing."""

import json
import sys

import pytest
from tests.unit.conftest import make_ladder_record, make_spec
from tests.unit.trace.trace_builder import training
from typer.testing import CliRunner

import laptime.advice
from laptime.cli import app
from laptime.cli.advise import read_subject
from laptime.compare.model import Comparison, Conditions, VariantRow
from laptime.console import main
from laptime.errors import DataError, RunError, UsageError
from laptime.records import Machine, ProbeRecord, RunRecord, write_json
from laptime.trace import summarize

has_advice = pytest.mark.skipif(not hasattr(laptime.advice, "advise"), reason="no advice to print")


@pytest.fixture
def trace(tmp_path):
    return training().write(tmp_path / "gpu.json")


def _write_run(folder, trace=None, status="done"):
    write_json(folder / "record.json", RunRecord(status=status, spec=make_spec(), error=None))
    if trace is not None:
        write_json(folder / "profile" / "breakdown.json", summarize(trace))


def test_a_trace_is_read_as_one(trace):
    record, summary, _ = read_subject(str(trace))
    assert record is None
    assert summary == summarize(trace)


def test_a_run_comes_with_the_summary_beside_it(tmp_path, trace):
    _write_run(tmp_path / "cpu-baseline-0", trace)
    for name in ("cpu-baseline-0", "cpu-baseline-0/record.json", "."):
        record, summary, _ = read_subject(str(tmp_path / name))
        assert record is not None
        assert summary == summarize(trace)
    record, summary, _ = read_subject(str(tmp_path / "cpu-baseline-0" / "profile" / "breakdown.json"))
    assert record is None
    assert summary is not None


def test_of_several_repeats_the_profiled_one_is_taken(tmp_path, trace):
    _write_run(tmp_path / "cpu-baseline-0")
    _write_run(tmp_path / "cpu-baseline-1", trace)
    assert read_subject(str(tmp_path))[1] is not None


def test_several_variants_are_named(tmp_path):
    _write_run(tmp_path / "cpu-baseline-0")
    _write_run(tmp_path / "cpu-optimized-0")
    with pytest.raises(UsageError, match=r"2 variants \(cpu-baseline, cpu-optimized\)"):
        read_subject(str(tmp_path))


def test_a_pipe_is_no_file():
    with pytest.raises(UsageError, match="write the trace into a file"):
        read_subject("/dev/null")


def test_names_that_mean_nothing(tmp_path, trace):
    with pytest.raises(UsageError, match="neither a path nor an MLflow run id"):
        read_subject("nowhere")
    with pytest.raises(UsageError, match=r"such as gpu\.json"):
        read_subject(str(tmp_path))
    write_json(tmp_path / "spec.json", {"schema": "laptime.spec/1"})
    with pytest.raises(DataError, match=r"laptime\.spec/1"):
        read_subject(str(tmp_path / "spec.json"))
    with pytest.raises(UsageError, match=r"no process in it has ended.*--resume"):  # its own files are no traces
        read_subject(str(tmp_path))


def test_a_run_alone_comes_with_what_an_earlier_ladder_probed(tmp_path, monkeypatch):
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path / "home"))
    machine = Machine(fingerprint="f1")
    record = RunRecord(status="done", spec=make_spec(), machine=machine)
    write_json(tmp_path / "alone" / "record.json", record)
    assert read_subject(str(tmp_path / "alone"))[2] is None
    probe = ProbeRecord(machine=machine, gains={"bf16": 1.5})
    ladder = make_ladder_record(id="1", probe=probe)
    write_json(tmp_path / "home" / "runs" / "1" / "ladder.json", ladder)
    assert read_subject(str(tmp_path / "alone"))[2] == probe
    write_json(tmp_path / "ladder.json", ladder.model_copy(update={"probe": ProbeRecord(gains={"bf16": 1.1})}))
    assert read_subject(str(tmp_path / "alone"))[2].gains == {"bf16": 1.1}, "its own ladder's comes first"


def test_what_a_ladder_has_shown_to_cost_quality_is_not_advised_on_its_runs_later(tmp_path):
    ladder = make_ladder_record(id="1")
    write_json(tmp_path / "ladder.json", ladder)
    _write_run(tmp_path / "cpu-baseline-0")
    rows = [
        VariantRow(variant="cpu-baseline", status="done", quality=0.8),
        VariantRow(variant="cpu-large-batch", status="done", adds="large-batch", quality=0.5, verdict="worse"),
    ]
    comparison = Comparison(id="1", baseline="cpu-baseline", conditions=Conditions(workload="cifar"), rows=rows)
    write_json(tmp_path / "comparison.json", comparison)
    refusals = read_subject(str(tmp_path / "cpu-baseline-0"))[2].refusals
    assert "50.0 % instead of 80.0 %" in refusals["large-batch"]
    of_another_version = comparison.model_copy(update={"rows": (rows[0], rows[1].model_copy(update={"adds": "gone"}))})
    write_json(tmp_path / "comparison.json", of_another_version)
    assert read_subject(str(tmp_path / "cpu-baseline-0"))[2] == ladder.probe
    (tmp_path / "comparison.json").write_text("{")
    assert read_subject(str(tmp_path / "cpu-baseline-0"))[2] == ladder.probe


def test_a_failed_run_has_nothing_to_advise_on(tmp_path):
    _write_run(tmp_path / "cpu-baseline-0", status="failed")
    with pytest.raises(RunError, match="status 'failed'"):
        read_subject(str(tmp_path))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "empty"),
        (b'{"traceEvents": [{"ph": "X", "cat": "FEE", "name": "f", "ts": 1, "dur": 2}]}', "another tool"),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}]}', "schedule="),
        (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 2}, {"ph', "cut off"),
        (b"step,seconds", "not JSON"),
    ],
)
def test_a_trace_that_is_none_is_one_sentence_and_an_exit_code(tmp_path, monkeypatch, capsys, body, said):
    path = tmp_path / "broken.json"
    path.write_bytes(body)
    monkeypatch.setattr(sys, "argv", ["laptime", "advise", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr().err.strip()
    assert ended.value.code not in (0, None)
    assert "broken.json" in told
    assert said in told
    assert "Traceback" not in told


@has_advice
def test_advice_is_printed_as_text_and_as_data(trace):
    text = CliRunner().invoke(app, ["advise", str(trace)])
    assert text.exit_code == 0, text.output
    assert "gpu.json" in text.output
    data = CliRunner().invoke(app, ["advise", str(trace), "--json"])
    assert json.loads(data.output)["schema"] == "laptime.advice/1"
