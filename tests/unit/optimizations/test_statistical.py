"""Statistical optimizations do what they say, the same whatever the loader, and leave the measure of quality alone."""

import math
from dataclasses import replace

import pytest
import torch
from tests.unit.optimizations.small_recipes import small_recipe, started
from torch import nn

from laptime.engine.build import build
from laptime.engine.evaluate import evaluate, totals
from laptime.engine.flops import flops_per_sample
from laptime.engine.loop import train_epoch
from laptime.engine.reset import reset, snapshot
from laptime.errors import RunError, UsageError
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations import apply, augment
from laptime.optimizations.augment import growing, throws
from laptime.optimizations.average import Average
from laptime.spec import OptimizationSpec
from laptime.workloads.base import Batch, classify
from laptime.workloads.cifar import Cifar


def test_labels_are_smoothed_in_training_alone():
    recipe = small_recipe("label-smoothing", amount=0.2)
    parts = started(recipe)
    batch = next(iter(parts.loader.epoch(0)))
    plain = classify(parts.model, batch)
    smoothed = parts.forward(parts.model, batch)
    assert float(smoothed.loss.detach()) != pytest.approx(float(plain.loss.detach()), rel=1e-4)
    logits = parts.model(batch.inputs)
    targets = 0.8 * nn.functional.one_hot(batch.labels, 3) + 0.2 / 3
    by_hand = -(targets * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(smoothed.loss, by_hand)
    split = recipe.data.test
    found = evaluate(started(small_recipe("label-smoothing")), recipe, split)
    expected = evaluate(started(small_recipe()), recipe, split)
    torch.testing.assert_close(found.loss_sum, expected.loss_sum)


class Unlabelled(Cifar):
    name = "unlabelled"

    def smoothed(self, amount):
        return None


def test_a_workload_whose_loss_can_not_be_smoothed_stays_as_it_is():
    recipe = replace(small_recipe(), workload=Unlabelled())
    changed = apply(recipe, (OptimizationSpec(name="label-smoothing"),))
    assert changed.forward is recipe.forward
    assert "unlabelled" in changed.notes[-1]


def test_alternating_images_are_mirrored_in_every_second_epoch():
    plain, mirrored = started(small_recipe()), started(small_recipe("flip"))
    data = small_recipe().data.train
    seen = [{}, {}, {}]
    for epoch in range(3):
        for before, after in zip(plain.loader.epoch(epoch), mirrored.loader.epoch(epoch), strict=True):
            assert after.labels.equal(before.labels)
            for image, other in zip(before.inputs, after.inputs, strict=True):
                whole = not image.equal(other)
                assert other.equal(image.flip(2) if whole else image)
                seen[epoch][float(image.sum())] = whole
    assert len(seen[0]) == len(data)
    assert all(seen[1][key] != seen[0][key] for key in seen[0])
    assert seen[2] == seen[0]
    assert 0.2 < sum(seen[0].values()) / len(data) < 0.8


@pytest.mark.parametrize(("mode", "thrown"), [("alternating", [0]), ("random", [0, 1])])
def test_the_coins_of_an_epoch_are_thrown_once(monkeypatch, mode, thrown):
    epochs = []

    def counted(count, seed, epoch):
        epochs.append(epoch)
        return throws(count, seed, epoch)

    monkeypatch.setattr(augment, "throws", counted)
    parts = started(small_recipe("flip", mode=mode))
    for epoch in range(2):
        assert len(list(parts.loader.epoch(epoch))) == 3
    assert epochs == thrown


def test_random_coins_differ_between_epochs_and_seeds():
    assert throws(200, 0, 1).equal(throws(200, 0, 1))
    assert not throws(200, 0, 1).equal(throws(200, 0, 2))
    assert not throws(200, 0, 1).equal(throws(200, 1, 1))
    random = started(small_recipe("flip", mode="random"))
    first, again = (torch.cat([b.inputs for b in random.loader.epoch(3)]) for _ in range(2))
    assert first.equal(again)


@pytest.mark.parametrize("name", ["flip", "crop", "progressive-resizing"])
def test_augmented_batches_are_equal_for_both_loaders_and_keep_their_format(name):
    for epoch in (0, 1):
        one, other = (
            list(started(small_recipe(name, *more, epochs=4)).loader.epoch(epoch))
            for more in (("channels-last",), ("channels-last", "resident"))
        )
        for a, b in zip(one, other, strict=True):
            assert a.inputs.equal(b.inputs)
            assert b.inputs.is_contiguous(memory_format=torch.channels_last)


def test_a_loader_with_other_batches_is_refused():
    recipe = small_recipe("flip")
    parts = started(recipe)
    other = replace(parts.loader, recipe=replace(recipe, batch_size=17))
    with pytest.raises((RunError, ValueError), match=r"flip|shorter"):
        list(other.epoch(0))


@pytest.mark.parametrize(
    ("full", "epochs", "sides"),
    [
        (32, 1, [32]),
        (32, 2, [24, 32]),
        (32, 3, [24, 32, 32]),
        (32, 6, [24, 24, 32, 32, 32, 32]),
        (64, 4, [48, 56, 64, 64]),
    ],
)
def test_images_grow_to_full_size(full, epochs, sides):
    options = {"smallest": 0.75, "share": 0.5, "step": 8}
    assert [h for h, _ in growing((full, full), epochs, options)] == sides


def test_small_images_are_trained_on_and_full_ones_evaluated():
    recipe = small_recipe("progressive-resizing", smallest=0.5, step=2, share=0.5)
    assert recipe.epoch_sizes == ((4, 4), (8, 8))
    parts = build(recipe, mark=StepMarks())
    sizes = []
    parts.model.register_forward_pre_hook(lambda _, inputs: sizes.append((parts.model.training, inputs[0].shape[2])))
    session = Session(parts, recipe, parts.mark, lambda *_: None)
    session.warm_up(Plan(2, 1, 1))
    assert {s for _, s in sizes} == {4, 8}  # both shapes are met before the clock runs
    sizes.clear()
    list(session.counted(Plan(2, 1, 1)))
    assert sizes == [(True, 4)] * 3 + [(False, 8)] + [(True, 8)] * 3 + [(False, 8)]


def test_operations_are_counted_by_the_mean_of_the_sizes():
    whole = flops_per_sample(small_recipe())
    half = flops_per_sample(small_recipe("progressive-resizing", smallest=0.5, step=2, share=0.5))
    head = 3 * 2 * 16 * 3
    assert half - head == pytest.approx((whole - head) * (1 + 0.25) / 2, rel=1e-6)


def test_a_net_that_needs_values_has_no_count_of_operations():
    class ByValue(nn.Module):
        def forward(self, images):
            return images.flatten(1) if images.sum() > 0 else images

    assert flops_per_sample(replace(small_recipe(), model=ByValue())) is None


def test_the_average_follows_its_formula_and_is_evaluated():
    recipe = small_recipe("ema", epochs=1.0, every=2, train=96)
    parts = started(recipe)
    weight = "5.weight"
    expected = parts.model.state_dict()[weight].clone()
    kept = math.exp(-2 / 6)
    for done, _ in enumerate(train_epoch(parts, 0), start=1):
        if done % 2 == 0:
            share = min(kept, (done // 2) / (done // 2 + 10))
            expected = share * expected + (1 - share) * parts.model.state_dict()[weight]
    found = parts.evaluated.state_dict()
    torch.testing.assert_close(found[weight], expected)
    assert not found[weight].equal(parts.model.state_dict()[weight])
    assert not found["1.running_var"].equal(parts.model.state_dict()["1.running_var"])
    assert found["1.num_batches_tracked"] == parts.model.state_dict()["1.num_batches_tracked"]
    loss, _, _ = totals([evaluate(parts, recipe, recipe.data.test)])
    parts.average = None
    assert loss != totals([evaluate(parts, recipe, recipe.data.test)])[0]


def test_complex_weights_are_averaged_too():
    net = nn.Linear(2, 2, dtype=torch.complex64)
    average, before = Average(net, 0.5, 1), net.weight.detach().clone()
    with torch.no_grad():
        net.weight.add_(1 + 2j)
    average.update(net)
    moved = (average.model.weight - before) / (1 + 2j)
    assert 0 < moved.real.min() < 1
    assert moved.imag.abs().max() < 1e-6


class Tempered(nn.Linear):
    """Its scores go by a temperature that falls with each step, as that of a Gumbel softmax."""

    temperature = 4.0

    def forward(self, x):
        if self.training:
            self.temperature = self.temperature / 2
        return super().forward(x) / self.temperature


def test_what_a_net_counts_in_attributes_holds_for_its_average_too():
    net, x = nn.Sequential(Tempered(3, 2)), torch.ones(1, 3)
    average = Average(net, 0.0, 1)
    net(x), net(x)
    average.update(net)
    assert average.evaluated.eval()(x).equal(net.eval()(x))
    assert average.evaluated is average.model
    net.train()
    assert not average.evaluated.training, "the mode is its own"


def test_the_average_changes_no_step_and_is_reset_in_place():
    plain, parts = started(small_recipe()), started(recipe := small_recipe("ema"))
    saved = snapshot(parts)
    places = [t.data_ptr() for t in parts.evaluated.state_dict().values()]
    found = [float(c.loss_sum) for c in train_epoch(parts, 0)]
    assert found == [float(c.loss_sum) for c in train_epoch(plain, 0)]
    reset(parts, recipe, saved)
    assert [t.data_ptr() for t in parts.evaluated.state_dict().values()] == places
    for name, value in parts.evaluated.state_dict().items():
        assert value.equal(parts.model.state_dict()[name])
    assert parts.average.steps == 0


def test_norms_and_biases_are_not_decayed():
    parts = started(small_recipe("decay", amount=0.5))
    assert isinstance(parts.optimizer, torch.optim.AdamW)
    matrices, vectors = parts.optimizer.param_groups
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.5, 0.0)
    assert all(p.dim() > 1 for p in matrices["params"])
    assert len(matrices["params"]) + len(vectors["params"]) == len(list(parts.model.parameters()))
    (one,) = started(small_recipe("decay", norms=True)).optimizer.param_groups
    assert one["weight_decay"] == 0.05


def test_sgd_scales_its_own_rate_with_the_batch_and_decays_in_the_gradient():
    recipe = small_recipe("sgd-nesterov", "large-batch", "decay", "fused-optimizer", lr=0.05)
    assert recipe.learning_rate == pytest.approx(0.05 * math.sqrt(48 / 16))
    parts = started(recipe)
    assert isinstance(parts.optimizer, torch.optim.SGD)
    group = parts.optimizer.param_groups[0]
    assert (group["nesterov"], group["fused"], group["weight_decay"]) == (True, True, 0.05)
    assert all(math.isfinite(float(c.loss_sum)) for c in train_epoch(parts, 0))


def test_onecycle_alone_peaks_at_the_rate_it_finds():
    recipe = small_recipe("onecycle", factor=2.0, epochs=2)
    parts = started(recipe)
    rates = [parts.optimizer.param_groups[0]["lr"] for epoch in range(2) for _ in train_epoch(parts, epoch)]
    assert max(rates) == pytest.approx(2e-3, rel=0.1)
    assert rates[-1] < 0.01 * max(rates)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("label-smoothing", {"amount": 1.0}),
        ("flip", {"mode": "upside-down"}),
        ("ema", {"every": 0}),
        ("decay", {"amount": -0.1}),
        ("sgd-nesterov", {"lr": 0.0}),
        ("onecycle", {"factor": 0.0}),
        ("linear-decay", {"warmup": 1.0}),
        ("linear-decay", {"factor": -2.0}),
        ("selective-backprop", {"keep": 1.5}),
        ("selective-backprop", {"every": 1}),
        ("crop", {"pixels": 8}),
        ("crop", {"pixels": 0}),
        ("crop", {"mode": "edge"}),
        ("progressive-resizing", {"share": 1.0}),
    ],
)
def test_nonsense_options_are_one_sentence(name, options):
    with pytest.raises(UsageError, match=name) as error:
        small_recipe(name, **options)
    assert str(next(iter(options.values()))).rstrip(".0") in str(error.value)


def test_all_together_train():
    names = (
        "flip",
        "crop",
        "progressive-resizing",
        "onecycle",
        "decay",
        "label-smoothing",
        "ema",
        "no-reads",
        "resident",
    )
    parts = started(recipe := small_recipe(*names, epochs=4))
    losses = [totals(list(train_epoch(parts, epoch)))[0] for epoch in range(recipe.epochs)]
    assert losses[-1] < losses[0]
    assert evaluate(parts, recipe, recipe.data.test).correct > 0
    assert isinstance(next(iter(parts.loader.epoch(0))), Batch)
