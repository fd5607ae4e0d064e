"""The whole step as a graph: all but the recording itself, on real training of a small net."""

import gc
from dataclasses import replace

import pytest
import torch
from tests.unit.conftest import make_data, make_spec
from torch import nn

from laptime.engine.build import build, make_recipe
from laptime.engine.loop import train_epoch
from laptime.engine.reset import reset, snapshot
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations.graph import GraphStep, captured, directly, eager_record, graph
from laptime.optimizations.resident import resident
from laptime.optimizations.schedule import large_batch
from laptime.optimizations.step import no_reads
from laptime.spec import OptimizationSpec

CYCLE = {"size": 14, "max_lr": 0.01, "schedule": "onecycle"}


def small_net() -> nn.Module:
    torch.manual_seed(0)
    # No bias before BatchNorm: its gradient is rounding alone, which Adam makes steps of.
    conv = nn.Conv2d(3, 4, 3, stride=2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3))


def small_recipe(*transforms, device: str = "cpu"):
    """48 images of 8x8 in batches of 14: three whole ones and one of 6 an epoch."""
    recipe = make_recipe(make_spec(device=device), make_data(size=8), ())
    recipe = large_batch(resident(replace(recipe, model=small_net(), epochs=3), {}), CYCLE)
    for transform in transforms:
        recipe = transform(recipe, {})
    return recipe


def fused(recipe, options):
    return replace(recipe, optimizer_options={"fused": True})


def trained(recipe, epochs: int = 3):
    parts = build(recipe, mark=lambda _: None)
    reset(parts, recipe, snapshot(parts))
    counts = [c for epoch in range(epochs) for c in train_epoch(parts, epoch)]
    losses = [float(c.loss_sum) / c.count for c in counts]
    return losses, [int(c.correct) for c in counts], parts


def check_equal_to_plain(device: str):
    losses, hits, plain = trained(small_recipe(no_reads, fused, device=device))
    found_losses, found_hits, parts = trained(small_recipe(graph, device=device))
    # The learning rate is an fp32 tensor here and a number there.
    assert found_losses == pytest.approx(losses, rel=1e-5)
    assert found_hits == hits
    assert losses[-1] < 0.85 * losses[0]
    for name, value in parts.model.state_dict().items():
        torch.testing.assert_close(value, plain.model.state_dict()[name], rtol=1e-3, atol=1e-5)


def test_it_trains_as_the_plain_step_does():
    check_equal_to_plain("cpu")


@pytest.mark.gpu
def test_a_cuda_graph_trains_as_the_plain_step_does():
    check_equal_to_plain("cuda")


def test_only_the_whole_batch_is_recorded_and_only_once():
    recorded = []

    def record(work):
        recorded.append(work)
        return eager_record(work)

    recipe = small_recipe(graph)
    step = GraphStep((recipe.batch_size, 1.0), record, directly)
    trained(replace(recipe, step=step))
    assert len(recorded) == 1
    assert step._tape.batch.inputs.shape == (14, 3, 8, 8)


def test_it_is_recorded_before_the_clock_runs_however_short_the_epoch_is():
    recipe = small_recipe(graph)
    parts = build(recipe, mark=StepMarks())
    Session(parts, recipe, parts.mark, lambda *_: None).warm_up(Plan(1, 1, 1))
    assert parts.step._tape is not None


def test_each_training_gets_its_own_recording():
    recipe = small_recipe(graph)
    first, _, _ = trained(recipe)
    second, _, _ = trained(replace(recipe, model=small_net()))
    assert second == first


def test_counts_of_a_step_outlive_the_next_one():
    recipe = small_recipe()
    static = {}

    def record(work):
        # A recording's results stand where the first replay put them, as those of a CUDA graph do.
        def replay():
            counts = work()
            static.setdefault("loss", counts.loss_sum)
            static["loss"].copy_(counts.loss_sum)
            return replace(counts, loss_sum=static["loss"])

        return replay

    recipe = replace(graph(recipe, {}), step=GraphStep((recipe.batch_size, 1.0), record, directly))
    losses, _, _ = trained(recipe)
    assert losses == trained(small_recipe(graph))[0]


class Capture:
    """Ends as a capture of CUDA's does: with an error of its own where there was one within."""

    def __enter__(self): ...

    def __exit__(self, kind, error, trace):
        if error is not None:
            raise RuntimeError("operation failed due to a previous error during capture")


class Ended(SystemExit):
    """As a run's end by SIGTERM."""


@pytest.mark.parametrize("raised", [ValueError("a label below 0"), Ended(3)])
def test_what_broke_a_capture_is_raised_and_not_what_followed_from_it(raised):
    def work():
        raise raised from KeyError("why")

    with pytest.raises(type(raised)) as caught:
        captured(Capture(), work)
    assert caught.value is raised
    assert isinstance(raised.__cause__, KeyError)


def test_a_capture_that_ends_in_an_error_of_its_own_says_so():
    class Full(Capture):
        def __exit__(self, *_):
            raise RuntimeError("no memory for a graph")

    with pytest.raises(RuntimeError, match="no memory for a graph"):
        captured(Full(), lambda: 1)
    assert captured(Capture(), lambda: 1) == 1


def test_the_garbage_collector_stands_still_from_a_captures_begin_to_its_end():
    """It would destroy recordings that died in cycles, which no capture stands."""

    class Watched(Capture):
        def __enter__(self):
            running.append(gc.isenabled())

        def __exit__(self, *_):
            running.append(gc.isenabled())

    def broken():
        raise ValueError("a label below 0")

    running: list[bool] = []
    captured(Watched(), lambda: running.append(gc.isenabled()))
    with pytest.raises(ValueError, match="a label"):
        captured(Watched(), broken)
    assert running == [False] * 5
    assert gc.isenabled()


def test_the_buffers_keep_the_images_memory_format():
    recipe = replace(small_recipe(graph), channels_last=True)
    _, _, parts = trained(recipe)
    assert parts.step._tape.batch.inputs.is_contiguous(memory_format=torch.channels_last)


def test_a_reset_leaves_every_tensor_where_the_recording_knows_it():
    recipe = small_recipe(graph)
    parts = build(recipe, mark=lambda _: None)
    saved = snapshot(parts)
    list(train_epoch(parts, 0))
    reset(parts, recipe, saved)
    rate = parts.optimizer.param_groups[0]["lr"]
    states = [v.data_ptr() for s in parts.optimizer.state.values() for v in s.values()]
    first = [float(c.loss_sum) for c in train_epoch(parts, 0)]
    risen = float(rate)
    reset(parts, recipe, saved)
    assert parts.optimizer.param_groups[0]["lr"] is rate
    assert float(rate) < risen
    assert [v.data_ptr() for s in parts.optimizer.state.values() for v in s.values()] == states
    assert [float(c.loss_sum) for c in train_epoch(parts, 0)] == first


def test_the_loss_scale_is_put_back_in_its_tensor():
    spec = make_spec(optimizations=(OptimizationSpec(name="fp16"),))
    recipe = make_recipe(spec, make_data(size=8), spec.optimizations)
    recipe = resident(replace(recipe, model=small_net()), {})
    parts = build(recipe, mark=lambda _: None)
    saved = snapshot(parts)
    losses = [float(c.loss_sum) for c in train_epoch(parts, 0)]
    scale = parts.scaler._scale
    parts.scaler.update(8.0)
    reset(parts, recipe, saved)
    assert parts.scaler._scale is scale
    assert float(scale) == 65536.0
    assert [float(c.loss_sum) for c in train_epoch(parts, 0)] == losses
