"""Selective backprop: a step learns from the highest losses alone, and tells the losses of all samples."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.unit.conftest import make_data, make_spec
from tests.unit.optimizations.small_recipes import small_recipe, started
from torch import nn

from laptime.engine.build import build, refuse_unfit
from laptime.engine.evaluate import totals
from laptime.engine.flops import flops_per_sample
from laptime.engine.loop import train_epoch
from laptime.errors import UsageError
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations import apply
from laptime.optimizations.data import innermost
from laptime.optimizations.resident import ResidentLoader
from laptime.optimizations.selecting import Selection, still_statistics
from laptime.spec import OptimizationSpec
from laptime.workloads.base import classify
from laptime.workloads.cifar import Cifar

# At which six steps move the weights far enough to tell right ones from others.
RATE = 0.02
# A bias before BatchNorm has no gradient but rounding, of which Adam makes whole steps.
UNSEEN = ("0.bias", "1.running_mean")
ALWAYS = {"begin": 0.0, "end": 1.0, "every": 0}


def by_hand(recipe, kept, whole_steps=()):
    """Two epochs of a plain loop over samples; the losses of whole batches by step, and the net."""
    net = copy.deepcopy(recipe.model)
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    told, hits = [], []
    for epoch in range(2):
        for step, batch in enumerate(started(small_recipe()).loader.epoch(epoch)):
            logits = net(batch.inputs)
            losses = [-row.log_softmax(0)[label] for row, label in zip(logits, batch.labels.tolist(), strict=True)]
            told.append(float(sum(losses).detach()))
            hits.append(int((logits.argmax(1) == batch.labels).sum()))
            ranked = sorted(range(len(batch)), key=lambda i: -float(losses[i].detach()))
            chosen = ranked if step in whole_steps else sorted(ranked[:kept])
            optimizer.zero_grad()
            if step in whole_steps:
                (sum(losses) / len(losses)).backward()
            else:
                before = {k: v.clone() for k, v in net.state_dict().items() if "running" in k or "num_" in k}
                nn.functional.cross_entropy(net(batch.inputs[chosen]), batch.labels[chosen]).backward()
                net.load_state_dict(before, strict=False)
            optimizer.step()
    return told, hits, net


@pytest.mark.parametrize(("every", "whole"), [(0, ()), (3, (2,))])
@pytest.mark.parametrize("more", [(), ("no-reads", "resident", "channels-last")])
def test_it_trains_as_a_plain_loop_over_the_highest_losses(every, whole, more):
    recipe = small_recipe("selective-backprop", *more, keep=0.3, **{**ALWAYS, "every": every})
    parts = started(replace(recipe, learning_rate=RATE))
    counts = [c for epoch in range(2) for c in train_epoch(parts, epoch)]
    told, hits, net = by_hand(small_recipe(), kept=5, whole_steps=whole)
    assert [float(c.loss_sum) for c in counts] == pytest.approx(told, rel=1e-3)
    assert [int(c.correct) for c in counts] == hits
    assert {c.count for c in counts} == {16}
    for name, value in parts.model.state_dict().items():
        if name not in UNSEEN:
            torch.testing.assert_close(value, net.state_dict()[name], rtol=1e-2, atol=RATE / 10)
    assert int(parts.model.state_dict()["1.num_batches_tracked"]) == len(counts)


def test_it_learns_otherwise_than_on_whole_batches():
    plain, chosen = started(small_recipe()), started(small_recipe("selective-backprop", **ALWAYS))
    first, second = ([float(c.loss_sum) for c in train_epoch(parts, 0)] for parts in (plain, chosen))
    assert second[0] == pytest.approx(first[0], rel=1e-6)  # before any step the same loss is told
    assert second[1] != pytest.approx(first[1], rel=1e-6)


def test_the_losses_that_choose_are_the_smoothed_ones():
    recipe = small_recipe("label-smoothing", "selective-backprop", amount=0.3)
    parts = started(recipe)
    batch = next(iter(parts.loader.epoch(0)))
    found = parts.forward(parts.model, replace(batch, trained=4))
    logits = parts.model(batch.inputs)
    losses = nn.functional.cross_entropy(logits, batch.labels, reduction="none", label_smoothing=0.3)
    torch.testing.assert_close(found.whole, losses.mean().detach())
    chosen = losses.sort(descending=True).indices[:4]
    again = nn.functional.cross_entropy(parts.model(batch.inputs[chosen]), batch.labels[chosen], label_smoothing=0.3)
    torch.testing.assert_close(found.loss, again)


def test_under_autocast_every_weight_gets_its_gradient():
    parts = started(small_recipe("bf16", "selective-backprop"))
    batch = next(iter(parts.loader.epoch(0)))
    parts.forward(parts.model, replace(batch, trained=8)).loss.backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum()) for p in parts.model.parameters() if p.dim() > 1)


def test_a_compiled_net_selects_too():
    chosen = {"keep": 0.5, **ALWAYS}
    eager = started(small_recipe("selective-backprop", **chosen))
    recipe = small_recipe("selective-backprop", **chosen)
    recipe = replace(recipe, wrappers=(lambda net: torch.compile(net, backend="eager"),))
    losses = [[float(c.loss_sum) for c in train_epoch(parts, 0)] for parts in (eager, started(recipe))]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(
    ("epochs", "selecting"), [(1, []), (2, [1]), (3, [2]), (4, [2, 3]), (10, [5, 6, 7, 8]), (20, list(range(10, 18)))]
)
def test_which_epochs_select(epochs, selecting):
    recipe = small_recipe("selective-backprop", epochs=epochs)
    shares = recipe.selection.shares if recipe.selection else (1.0,) * epochs
    assert [epoch for epoch, share in enumerate(shares) if share < 1] == selecting
    assert ("all samples train" in recipe.notes[-1]) is not bool(selecting)


def test_how_many_train_in_a_step():
    chosen = Selection((1.0, 0.25), every=4)
    assert [chosen.trained(16, 0, step) for step in range(2)] == [None, None]
    assert [chosen.trained(16, 1, step) for step in range(8)] == [4, 4, 4, None, 4, 4, 4, None]
    assert [chosen.trained(count, 1, 0) for count in (1, 2, 3, 5, 10, 12)] == [None, None, 2, 2, 3, 3]
    assert chosen.trained(16, 7, 0) == 4  # an epoch after the counted ones is as the last


def test_both_kinds_of_steps_are_met_before_the_clock_and_told_in_the_record():
    recipe = small_recipe("selective-backprop", "resident", train=40)
    parts = build(recipe, mark=StepMarks())
    assert isinstance(innermost(parts.loader), ResidentLoader)
    sizes = []
    parts.model.register_forward_pre_hook(lambda _, given: sizes.append((len(given[0]), torch.is_grad_enabled())))
    session = Session(parts, recipe, parts.mark, lambda *_: None)
    session.warm_up(Plan(2, 1, 1))
    assert {(16, True), (16, False), (8, True), (8, False), (4, True)} <= set(sizes)
    first, second = session.counted(Plan(2, 1, 1))
    assert (first.trained_share, second.trained_share) == (1.0, 0.5)
    assert first.samples == second.samples == 40


def test_operations_are_those_that_are_done():
    step = flops_per_sample(small_recipe())
    forward_share = flops_per_sample(small_recipe("selective-backprop", keep=0.5, **ALWAYS)) / step - 0.5
    assert 1 / 3 <= forward_share < 0.6  # the first layer's images take no gradient
    mixed = flops_per_sample(small_recipe("selective-backprop", keep=0.5, **{**ALWAYS, "every": 4}))
    assert mixed == pytest.approx((1 / 4 + 3 / 4 * (forward_share + 0.5)) * step)
    half = flops_per_sample(small_recipe("selective-backprop", keep=0.5, begin=0.5, end=1.0, every=0))
    assert half == pytest.approx((1 + forward_share + 0.5) / 2 * step)


def test_statistics_stand_still_and_go_on():
    norm, images = nn.BatchNorm2d(3), torch.randn(4, 3, 2, 2)
    with still_statistics(norm):
        still = norm(images)
    assert int(norm.num_batches_tracked) == 0
    assert norm.running_mean.equal(torch.zeros(3))
    assert norm(images).equal(still)
    assert int(norm.num_batches_tracked) == 1


class Meaned(Cifar):
    name = "meaned"
    forward = staticmethod(classify)

    def by_sample(self, smoothing):
        return None


def test_a_loss_that_is_a_mean_is_refused():
    recipe = replace(small_recipe(), workload=Meaned())
    with pytest.raises(UsageError, match=r"needs the loss of each sample, and that of meaned is a mean: leave it out"):
        apply(recipe, (OptimizationSpec(name="selective-backprop"),))
    spec = make_spec(workload="detection", optimizations=(OptimizationSpec(name="selective-backprop"),))
    with pytest.raises(UsageError, match="selective-backprop is not for detection: its losses are means"):
        refuse_unfit(spec)


def test_training_loss_is_that_of_all_samples():
    parts = started(small_recipe("selective-backprop", **ALWAYS))
    loss, accuracy, samples = totals(list(train_epoch(parts, 0)))
    assert samples == len(make_data(size=8).train)
    assert 0 <= accuracy <= 1
    assert loss > 0
