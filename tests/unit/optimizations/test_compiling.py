"""torch.compile: what is compiled, counted, refused. Backends without inductor keep it quick; one slow test has it."""

import shutil
from collections import Counter
from dataclasses import replace

import pytest
import torch
from tests.unit.compare.compare_examples import compare_records
from tests.unit.conftest import make_data, make_spec
from torch import nn

from laptime import devices, worker
from laptime.cli.doctor import compilers
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.devices import missing_compiler
from laptime.engine.build import build
from laptime.errors import RunError, UsageError
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations.compiling import compiled, inductor_options
from laptime.records import RunRecord
from laptime.spec import OptimizationSpec
from laptime.workloads.base import Counts

DEFAULTS = {"mode": "default", "layout": "keep", "dynamic": False, "backend": "inductor"}


def run(monkeypatch, folder, backend: str, **changes) -> RunRecord:
    """One process of `compile` on 20 images in batches of 16 and 4."""
    monkeypatch.setattr(worker, "open_data", lambda _: make_data(train=20, test=6))
    options = {"backend": backend}
    spec = make_spec(optimizations=(OptimizationSpec(name="compile", options=options),), variant="cpu-compile")
    return worker.run(spec.model_copy(update=changes), folder)


@torch._dynamo.register_backend
def halved(graph, inputs):
    """A backend that computes what it should and hands back half of the gradient."""

    class Half(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient / 2

    def call(*arguments):
        return tuple(Half.apply(v) if v.is_floating_point() and v.requires_grad else v for v in graph(*arguments))

    return call


def test_both_shapes_are_compiled_in_the_warm_up_and_counted(monkeypatch, tmp_path):
    record = run(monkeypatch, tmp_path, "eager", warmup_steps=1)
    assert record.status == "done", record.error
    assert record.check.passed
    assert record.compile_s > 0
    assert (record.compilation.graphs, record.compilation.recompiles) == (2, 1)
    assert record.compilation.graph_breaks == 0
    assert record.warmup_s > record.compile_s
    assert all(e.kept and e.compilations == 0 for e in record.epochs)


def test_an_epoch_in_which_something_was_compiled_is_not_kept(monkeypatch, tmp_path):
    record = run(monkeypatch, tmp_path, "eager", warmup_epochs=0, epochs=2, check=False)
    assert [(e.kept, e.compilations) for e in record.epochs] == [(False, 2), (True, 0)]
    comparison = compare_records([record.model_copy(update={"spec": make_spec()}), record])
    assert any("compiled anew are not counted: 2 of cpu-baseline, cpu-compile" in c for c in comparison.cautions)
    alone = record.model_copy(update={"epochs": record.epochs[:1]})
    assert "give it a warm-up epoch" in compare_records([alone]).rows[0].error


def test_a_compiled_net_with_wrong_gradients_is_refused_with_both_numbers(monkeypatch, tmp_path):
    record = run(monkeypatch, tmp_path, "halved")
    assert record.status == "wrong"
    assert record.check.gradient_error == pytest.approx(0.5, abs=0.01)
    assert record.check.loss_error < 1e-4
    baseline = record.model_copy(update={"status": "done", "error": None, "spec": make_spec()})
    comparison = compare_records([baseline, record])
    row = comparison.row("cpu-compile")
    assert row.epoch_s is None
    for text in (to_markdown(comparison), to_html(comparison, None, [baseline, record])):
        assert "gradients off by 0.5" in text
        assert "tolerance 0.48" in text
        assert f"{record.check.loss_variant:.6g} instead of {record.check.loss_baseline:.6g}" in text


def test_state_and_evaluation_stay_with_the_plain_module(recipe):
    parts = build(compiled(recipe, {**DEFAULTS, "backend": "eager"}), mark=lambda _: None)
    assert parts.net is not parts.model
    assert parts.model is recipe.model
    assert {id(p) for p in parts.net.parameters()} == {id(p) for p in parts.model.parameters()}
    assert not any("_orig_mod" in name for name in parts.model.state_dict())


def test_each_shape_is_called_until_its_graph_is_recorded(recipe):
    graphed = compiled(recipe, {**DEFAULTS, "mode": "reduce-overhead", "backend": "eager"})
    sizes = ((16, 16), (32, 32))
    recipe = replace(recipe, warmup_calls=graphed.warmup_calls, batch_size=20, epochs=2, epoch_sizes=sizes)
    called = Counter()

    def step(p, batch):
        called[len(batch)] += 1
        return Counts(0.0, 0, len(batch))

    recipe = replace(recipe, step=step)
    for steps in (1, None):
        called.clear()
        parts = build(recipe, mark=StepMarks())
        Session(parts, recipe, parts.mark, lambda *_: None).warm_up(Plan(1, 1, steps))
        assert called.keys() == {20, 8}
        assert min(called.values()) >= 2 * 3  # in two sizes of images


def test_modes_and_layouts_become_options_that_this_torch_has():
    assert inductor_options("default", "keep") is None
    assert inductor_options("reduce-overhead", "keep") == {"triton.cudagraphs": True}
    forced = inductor_options("max-autotune-no-cudagraphs", "channels-last")
    assert forced["max_autotune"]
    assert forced["force_layout_optimization"]
    assert not forced["keep_output_stride"]


def test_a_layout_that_this_torch_does_not_have_is_refused(monkeypatch):
    import torch._inductor

    monkeypatch.setattr(torch._inductor, "list_options", list)
    with pytest.raises(UsageError, match=r"force_layout_optimization.*leave the option out"):
        inductor_options("default", "channels-last")


def test_without_a_compiler_it_is_said_what_is_missing(monkeypatch, recipe):
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert "'/nowhere/g++'" in missing_compiler("cpu")
    with pytest.raises(RunError, match=r"/nowhere/g\+\+.*or leave compile out"):
        compiled(recipe, DEFAULTS)
    monkeypatch.setenv("CXX", "true -O1")
    assert missing_compiler("cpu") is None
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert "triton" in missing_compiler("cuda")


def test_doctor_tells_what_each_kind_of_device_lacks(monkeypatch):
    monkeypatch.setenv("CXX", "true")
    assert compilers(on_gpus=False) == (True, "a C++ compiler is there")
    monkeypatch.setenv("CC", "/nowhere/cc")
    well, told = compilers(on_gpus=True)
    assert not well
    assert told.startswith("on cuda, there is no ")
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert compilers(on_gpus=True)[1].startswith("on cpu, there is no C++ compiler '/nowhere/g++'")
    monkeypatch.setattr(devices, "find_spec", lambda _: True)
    monkeypatch.setenv("CC", "true")
    monkeypatch.setenv("CXX", "true")
    assert compilers(on_gpus=True) == (True, "a C++ compiler and, for cuda, Triton and a C compiler are there")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_inductor_computes_the_same_step(recipe):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(3600, 3))
    gradients = []
    for wrapped in (False, True):
        small = replace(recipe, model=net)
        chosen = compiled(small, {**DEFAULTS, "layout": "channels-last"}) if wrapped else small
        parts = build(chosen, mark=lambda _: None)
        parts.forward(parts.net, next(iter(parts.loader.epoch(0)))).loss.backward()
        gradients.append({n: p.grad.clone() for n, p in net.named_parameters()})
        net.zero_grad()
    for name, expected in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], expected, rtol=1e-4, atol=1e-5)
