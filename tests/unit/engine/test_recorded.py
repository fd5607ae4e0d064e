"""A recording beside the step that it stands for: equal where it is right, and seen where it is not."""

from dataclasses import replace

import pytest
from tests.unit.optimizations.test_graph import small_recipe

from laptime.engine.build import build
from laptime.engine.recorded import check_recording, with_recording
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations.average import ema
from laptime.optimizations.graph import GraphStep, directly, eager_record, graph, recording_of
from laptime.optimizations.step import no_reads
from laptime.records import CheckRecord


def averaged(recipe, options):
    return ema(recipe, {"epochs": 1, "every": 1})


def checked(recipe):
    parts = build(recipe, mark=StepMarks())
    session = Session(parts, recipe, parts.mark, lambda *_: None)
    session.warm_up(Plan(1, 1, None))
    list(session.counted(Plan(1, 1, None)))
    return check_recording(parts, recipe)


@pytest.mark.parametrize("more", [(), (averaged,)])
def test_a_replay_does_what_the_step_does(more):
    found = checked(small_recipe(graph, *more))
    assert found.passed
    assert (found.loss_error, found.error) == (0, 0)


def test_a_recording_is_given_up_before_the_step_without_it_takes_as_much_memory():
    held, step = [], GraphStep((14, 1.0), eager_record, directly)
    recipe = replace(small_recipe(graph), step=step, exchange=lambda model: held.append(step.recorded))
    assert checked(recipe).passed
    assert held[-2:] == [True, False]


@pytest.mark.gpu
def test_a_cuda_graph_does_what_the_step_does():
    found = checked(small_recipe(graph, device="cuda"))
    assert found.passed, found


def test_a_step_that_is_not_recorded_has_nothing_to_check():
    assert checked(small_recipe(no_reads)) is None
    short = replace(small_recipe(graph), batch_size=7)  # of which no batch is the one that would be recorded
    assert checked(short) is None


def doubled(flag):
    def exchange(model):
        for parameter in model.parameters():
            parameter.grad.mul_(2 if flag else 1)

    return exchange


def nothing(work, flag):
    counts = work()
    return lambda: counts


def gradients_twice(work, flag):
    def replay():
        flag.append(1)
        counts = work()
        flag.clear()
        return counts

    return replay


def no_optimizer(work, flag):
    """The step, and all that it moved put back."""

    def replay():
        parts = work.__closure__[0].cell_contents
        before = {k: v.clone() for k, v in parts.model.named_parameters()}
        counts = work()
        for name, value in parts.model.named_parameters():
            value.data.copy_(before[name])
        return counts

    return replay


@pytest.mark.parametrize(
    ("wrong", "moved"), [(nothing, "parameters"), (gradients_twice, "exp_avg_sq"), (no_optimizer, "parameters")]
)
def test_a_wrong_recording_is_seen(wrong, moved):
    flag = []
    recipe = replace(small_recipe(graph), exchange=doubled(flag))
    step = GraphStep((recipe.batch_size, 1.0), lambda work: wrong(work, flag), directly)
    found = checked(replace(recipe, step=step))
    assert not found.passed
    assert found.error > 0.9
    if wrong is not nothing:  # all that can be off by as much
        assert found.moved == moved
    assert f"in {found.moved} (tolerance 0.25)" in found.findings()


def test_the_recording_is_found_below_an_average():
    step = GraphStep((14, 1.0), eager_record, directly)
    recipe = averaged(replace(small_recipe(), step=step), {})
    assert recording_of(recipe.step) is recording_of(step) is step
    assert recording_of(small_recipe().step) is None


def test_a_wrong_recording_fails_the_whole_check():
    check = CheckRecord(
        klass="exact",
        loss_baseline=1.0,
        loss_variant=1.0,
        loss_error=0.0,
        loss_tolerance=1e-4,
        gradient_error=0.0,
        gradient_tolerance=0.05,
        passed=True,
    )
    right = checked(small_recipe(graph))
    assert with_recording(check, None) is check
    assert with_recording(None, right) is None
    assert with_recording(check, right).passed
    wrong = right.model_copy(update={"error": float("nan")})
    found = with_recording(check, wrong)
    assert not found.passed
    assert "the recorded step is off" in found.findings()
