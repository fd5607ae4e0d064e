"""A rung whose probe takes long: probed once for a machine, ended at its limit, left out where it can't run."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.conftest import make_data_spec, make_ladder_record, make_spec

from laptime.catalogue import COMPILE_RUNGS, find_preset, find_workload
from laptime.errors import RunError
from laptime.ladder import probing, surroundings
from laptime.ladder.plan import make_plan
from laptime.launchers.process import run_child
from laptime.places import Places
from laptime.preflight.probe import exact_before
from laptime.records import Machine, ProbeRecord, RunRecord, write_json
from laptime.spec import OwnSpec

FULL = find_preset(find_workload("cifar"), "full")
QUICK = find_preset(find_workload("cifar"), "quick")
QUICKLY = ProbeRecord(machine=Machine(fingerprint="f1", torch="2.15"), gains={"bf16": 1.4})


@pytest.fixture
def children(monkeypatch):
    """Answers for the children that would probe: what they write and how they end."""
    started = []

    def child(module, arguments, on_line, limit_s):
        started.append([module, *arguments, limit_s])
        answer = child.answers.pop(0)
        if isinstance(answer, dict):
            Path(arguments[2]).write_text(json.dumps(answer))
            return 0
        on_line("laptime.preflight.probe: no Python.h")
        return answer

    child.answers, child.started = [], started
    monkeypatch.setattr(probing, "run_child", child)
    monkeypatch.setattr(probing, "missing_compiler", lambda _: None)
    # The real lock is machine-wide: a training elsewhere on this machine would hold the test up.
    monkeypatch.setattr(probing, "device_lock", lambda _device, _say: contextlib.nullcontext())
    return child


def probed(tmp_path, preset=FULL, probe=QUICKLY):
    tmp_path.mkdir(exist_ok=True)
    return probing.probe_slow_rungs(probe, ("cifar", "cpu", preset), Places(tmp_path))


def test_the_second_ladder_on_a_machine_does_not_probe_again(children, tmp_path):
    children.answers = [{"gains": {"compile": 1.3, "compile@512": 0.1}, "costs_s": {"compile": 40.0}}] * 2
    first, second = probed(tmp_path), probed(tmp_path)
    assert first.gains == second.gains == {"bf16": 1.4, "compile": 1.3, "compile@512": 0.1}
    assert first.costs_s == {"compile": 40.0}
    ((module, *arguments, limit_s),) = children.started
    assert module == "laptime.preflight.probe"
    assert arguments[3:] == ["compile", "bf16"]  # bf16 gained, so it stands on both sides
    assert limit_s > 60
    other = QUICKLY.model_copy(update={"machine": Machine(fingerprint="f1", torch="2.16")})
    probed(tmp_path, probe=other)
    assert len(children.started) == 2


def test_a_limit_of_the_samples_reaches_a_slow_probe_where_it_bounds_the_large_batch(children, tmp_path):
    children.answers = [{"gains": {"compile": 1.3}}, {"gains": {"compile": 1.1}}]
    few, many = (replace(FULL, limit_train=samples) for samples in (256, 2000))
    assert [probed(tmp_path, preset).gains["compile"] for preset in (few, FULL, many, few)] == [1.3, 1.1, 1.1, 1.3]
    assert [started[4:-1] for started in children.started] == [["--limit=256", "compile", "bf16"], ["compile", "bf16"]]


@pytest.mark.parametrize(
    ("gain", "load", "later", "asked"),
    [(0.9, 4.0, 0.5, 2), (0.9, 4.0, 4.0, 1), (0.9, 0.5, 0.5, 1), (1.3, 4.0, 0.5, 1), (0.9, None, 0.5, 1)],
)
def test_no_gain_beside_others_is_looked_for_again_once_they_are_gone(children, tmp_path, gain, load, later, asked):
    """The reason beside the rung asks for just that: to run it again when nothing else runs here."""
    children.answers = [{"gains": {"compile": gain}, "machine": {"cores": 2, "load_before": load}}] * 2
    probed(tmp_path)
    quiet = QUICKLY.machine.model_copy(update={"cores": 2, "load_before": later})
    probed(tmp_path, probe=QUICKLY.model_copy(update={"machine": quiet}))
    assert len(children.started) == asked


def test_a_short_preset_probes_nothing_that_takes_long(children, tmp_path):
    assert probed(tmp_path, QUICK) == QUICKLY
    assert children.started == []


@pytest.mark.parametrize(
    ("code", "said"), [(-15, "shown nothing after 600 s"), (-9, "was killed (signal 9)"), (1, "no Python.h")]
)
def test_a_probe_that_comes_to_no_figure_leaves_the_rung_out(children, tmp_path, code, said):
    children.answers = [code]
    reason = probed(tmp_path).refusals["compile"]
    assert said in reason
    assert probed(tmp_path).refusals["compile"] == reason
    Path(reason.partition("remove ")[2].rstrip(")")).unlink()
    children.answers = [{"gains": {"compile": 1.2}}]
    assert probed(tmp_path).gains["compile"] == 1.2


def test_without_a_compiler_no_probe_is_started(children, monkeypatch, tmp_path):
    monkeypatch.setattr(probing, "missing_compiler", lambda _: "there is no C++ compiler 'g++': install it")
    assert "install it" in probed(tmp_path).refusals["compile"]
    assert children.started == []


def test_a_gpu_needs_no_slow_probe_but_a_compiler_for_each_rung_that_compiles(children, monkeypatch, tmp_path):
    def on_cuda():
        return probing.probe_slow_rungs(QUICKLY, ("cifar", "cuda", FULL), Places(tmp_path))

    assert on_cuda() == QUICKLY
    monkeypatch.setattr(probing, "missing_compiler", lambda _: "there is no triton: install it")
    found = on_cuda()
    assert set(found.refusals) == {"compile", "compile-graphed"}
    assert children.started == []
    plan = make_plan("cuda", FULL, None, found)
    assert set(COMPILE_RUNGS) <= set(plan.refused)


def test_the_exact_rungs_before_one_exclude_each_other_as_in_a_ladder():
    names = [o.name for o in exact_before("cifar", "cuda", "compile")]
    assert len(names) == len(set(names))
    assert "resident" in names
    assert not {"workers", "pinned"} & set(names)


def test_a_child_past_its_limit_is_ended(tmp_path, monkeypatch):
    (tmp_path / "endless.py").write_text("print('on', flush=True)\nimport time\ntime.sleep(60)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    lines: list[str] = []
    assert run_child("endless", [], lines.append, 8.0) < 0
    assert lines == ["on"]


def test_a_quick_probe_is_told_which_optimizations_are_of_interest(monkeypatch, tmp_path):
    started = []

    def child(module, arguments, on_line, limit_s):
        started.append(arguments[3:])
        Path(arguments[2]).write_text("{}")
        return 0

    monkeypatch.setattr(surroundings, "run_child", child)
    monkeypatch.setattr(surroundings, "device_lock", lambda _device, _say: contextlib.nullcontext())
    for wanted in (None, {"resident", "bf16"}, ()):
        surroundings.run_probe(("cifar", "cpu"), Places(tmp_path), print, wanted)
    surroundings.run_probe(("cifar", "cpu"), Places(tmp_path), print, (), 256)
    assert started == [[], ["--only=bf16,resident"], ["--only="], ["--limit=256", "--only="]]


def ladder_left(places, name, probe, **changes):
    write_json(places.runs / name / "ladder.json", make_ladder_record(id=name, probe=probe, **changes))


def a_run_alone(fingerprint="f1", **changes):
    return RunRecord(status="done", spec=make_spec(**changes), machine=Machine(fingerprint=fingerprint))


def test_a_run_alone_knows_what_ladders_of_its_machine_and_workload_have_probed(children, tmp_path):
    places = Places(tmp_path)
    assert probing.known_probe(a_run_alone(), places) is None
    older = QUICKLY.model_copy(update={"gains": {"bf16": 1.2}})
    nothing = QUICKLY.model_copy(update={"gains": {}, "refusals": {"tf32": "it is for a GPU"}})
    other = QUICKLY.model_copy(update={"machine": Machine(fingerprint="f2")})
    (places.runs / "0-broken").mkdir(parents=True)
    (places.runs / "0-broken" / "ladder.json").write_text("{")
    ladder_left(places, "1", older)
    ladder_left(places, "2", QUICKLY)
    ladder_left(places, "3", nothing)  # of named variants: it was asked for no gain
    ladder_left(places, "4", other)
    ladder_left(places, "5", QUICKLY.model_copy(update={"gains": {"bf16": 9.0}}), workload="eurosat")
    assert probing.known_probe(a_run_alone(), places) == QUICKLY
    assert probing.known_probe(a_run_alone("f2"), places) == other
    assert probing.known_probe(a_run_alone("f3"), places) is None
    assert probing.known_probe(a_run_alone(""), places) is None
    children.answers = [{"gains": {"compile": 1.3}, "costs_s": {"compile": 40.0}}]
    probed(tmp_path)
    assert probing.known_probe(a_run_alone(), places).gains == {"bf16": 1.4, "compile": 1.3}
    assert len(children.started) == 1, "nothing is run for it"


def test_of_a_user_s_file_only_a_probe_of_the_same_net_is_known(tmp_path):
    places = Places(tmp_path)
    own = OwnSpec(attribute="w", name="mine", file="1" * 64, batch_size=4, learning_rate=0.1, quality="loss")
    data = make_data_spec().model_copy(update={"kind": "own", "own": own})
    changed = data.model_copy(update={"own": own.model_copy(update={"file": "2" * 64})})
    ladder_left(places, "1", QUICKLY, workload="mine", data=data)
    assert probing.known_probe(a_run_alone(workload="mine", data=data), places) == QUICKLY
    assert probing.known_probe(a_run_alone(workload="mine", data=changed), places) is None


def test_a_probe_of_the_machine_that_was_killed_is_told_as_that(tmp_path, monkeypatch):
    monkeypatch.setattr(surroundings, "run_child", lambda *_: -9)
    with pytest.raises(RunError, match=r"was killed \(signal 9\), .* memory runs out: try again"):
        surroundings.run_probe(("cifar", "cpu"), Places(tmp_path), lambda _: None)
