"""The rung `lightning`: the baseline's losses under Lightning's Trainer, timed by the same code."""

import sys
from dataclasses import replace

import pytest
import torch
from tests.own_files import DICTIONARY, write
from tests.unit.conftest import make_data, make_spec
from torch import nn

from laptime.catalogue import find_preset, find_workload
from laptime.engine import check
from laptime.engine import one_step as steps
from laptime.engine.build import build, make_recipe, open_data
from laptime.engine.loop import drive
from laptime.errors import UsageError
from laptime.ladder.plan import make_plan, unfit
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations import lightning_run
from laptime.optimizations.lightning import LightningDriver
from laptime.preflight.inspecting import inspect
from laptime.profiling.closer import Findings, look_closer
from laptime.records import ProbeRecord
from laptime.spec import OptimizationSpec
from laptime.variants import resolve

ALONE = (OptimizationSpec(name="lightning"),)


def trained(recipe, epochs=2):
    """The records of a run's epochs, what its progress said, and its parts."""
    said = []
    parts = build(recipe, StepMarks())
    session = Session(parts, recipe, parts.mark, lambda *step: said.append(step))
    plan = Plan(epochs, 1, 2)
    session.warm_up(plan)
    return list(session.counted(plan)), said, parts


def losses(epochs):
    found = [value for e in epochs for value in (e.train_loss, e.train_accuracy, e.test_loss, e.test_accuracy)]
    return [value for value in found if value is not None]


def small(recipe):
    """The recipe with a net of a few milliseconds a step."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 15 * 15, 3))
    return replace(recipe, model=nn.Sequential(*layers))


@pytest.mark.parametrize("train", [48, 42])
def test_it_trains_to_the_losses_of_the_baseline(train):
    data = make_data(train=train)
    plain, _, _ = trained(small(make_recipe(make_spec(), data, ())))
    found, said, parts = trained(small(make_recipe(make_spec(optimizations=ALONE), data, ALONE)))
    assert losses(found) == pytest.approx(losses(plain), rel=1e-5)
    assert [(e.samples, e.steps) for e in found] == [(train, 3)] * 2
    assert said == [(-1, 1, 2), (-1, 2, 2), *((e, s, 3) for e in (0, 1) for s in (1, 2, 3))]
    assert all(v.device.type == "cpu" for v in parts.model.state_dict().values())


def test_its_steps_have_the_parts_of_a_step_and_its_own_work_is_their_rest():
    found, _, _ = trained(small(make_recipe(make_spec(), make_data(), ALONE)), epochs=1)
    assert list(found[0].parts_s) == ["data", "forward", "backward", "optimizer", "rest"]
    assert sum(found[0].parts_s.values()) == pytest.approx(found[0].epoch_s, rel=0.2)


def test_a_training_of_the_users_own_runs_under_it(tmp_path):
    data = inspect(write(tmp_path / "lightning_rows.py", DICTIONARY))
    spec = make_spec(data=data, workload="rows")
    plain, _, _ = trained(make_recipe(spec, open_data(spec), ()))
    found, _, _ = trained(make_recipe(spec, open_data(spec), ALONE))
    assert losses(found) == pytest.approx(losses(plain), rel=1e-5)


def one_step(monkeypatch):
    """The one-step comparison of the rung, with a small net on both sides."""
    make = steps.make_recipe
    monkeypatch.setattr(steps, "make_recipe", lambda *given, **named: small(make(*given, **named)))
    return check.check_one_step(make_spec(optimizations=ALONE), make_data(), 16)


def test_the_one_step_comparison_goes_through_the_trainer(monkeypatch):
    found = one_step(monkeypatch)
    assert found.passed, found
    assert found.loss_error < 1e-6
    monkeypatch.setattr(lightning_run.Run, "on_after_backward", halve)
    found = one_step(monkeypatch)
    assert not found.passed
    assert found.gradient_error == pytest.approx(0.5, abs=1e-3)


def halve(run):
    for values in run.net.parameters():
        values.grad.mul_(0.5)


def test_what_the_training_raises_comes_through():
    recipe = small(make_recipe(make_spec(), make_data(), ALONE))

    def forward(model, batch):
        raise ValueError("no forward")

    with pytest.raises(ValueError, match="no forward"):
        trained(replace(recipe, forward=forward))


def test_its_table_names_the_trainers_actions():
    parts = build(small(make_recipe(make_spec(), make_data(), ALONE)), StepMarks())
    table = LightningDriver().table(parts, 0, 8)
    assert "run_training_batch" in table
    assert "optimizer_step" in table
    assert "train_dataloader_next" in table


def test_the_table_is_a_file_of_its_profile_in_the_place_of_a_recording(tmp_path):
    """Its steps come behind the last one that the schedule has."""

    def cycle(optimizer, steps):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps)

    recipe = replace(small(make_recipe(make_spec(epochs=1), make_data(), ALONE)), make_schedule=cycle)
    epochs, _, parts = trained(recipe, epochs=1)
    found = Findings()
    look_closer(make_spec(optimizations=ALONE, epochs=1, profile="full"), (parts, recipe), epochs, tmp_path, found)
    assert found.notes == []
    assert [p.name for p in (tmp_path / "profile").iterdir()] == ["lightning.txt"]
    assert "run_training_batch" in (tmp_path / "profile" / "lightning.txt").read_text()
    assert (found.profile.steps, found.profile.folder) == (0, "profile")
    assert "lightning.txt" in found.profile.notes[0]


def test_without_lightning_it_is_left_out_with_the_reason(monkeypatch, image_data):
    monkeypatch.setitem(sys.modules, "lightning", None)
    refused = unfit(find_workload("cifar"), "cpu")
    assert "pip install 'laptime[lightning]'" in refused["lightning"]
    plan = make_plan("cpu", find_preset(find_workload("cifar"), "full"), None, ProbeRecord(refusals=refused))
    assert ("lightning",) not in plan.rungs
    assert ("cpu-lightning", refused["lightning"]) in [(left.variant, left.reason) for left in plan.left_out]
    with pytest.raises(UsageError, match=r"pip install 'laptime\[lightning\]'"):
        make_recipe(make_spec(), image_data, ALONE)


def test_it_stands_alone():
    for name in ("cpu-lightning", "cpu-baseline+lightning", "cuda-lightning"):
        assert resolve(name).optimizations == ALONE
    assert "lightning" not in {o.name for o in resolve("cpu-optimized").optimizations}
    for name in ("cpu-lightning+resident", "cpu-optimized+lightning", "ddp-plain+lightning"):
        with pytest.raises(UsageError, match="takes nothing beside it"):
            resolve(name)


def test_a_lap_of_laptimes_own_loop_may_be_of_some_steps():
    told = []

    class Told:
        def begin(self):
            told.append("begin")

        def step(self, counts):
            told.append(counts.count)

        def end(self):
            told.append("end")

    parts = build(small(make_recipe(make_spec(), make_data(), ())), StepMarks())
    drive(parts, 0, Told(), 2)
    assert told == ["begin", 16, 16, "end"]
