"""Detection: loaders, the kept images, the one-step comparison, COCO's mAP, the ladder."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.unit.conftest import make_spec
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

from laptime.artifacts import epoch_line
from laptime.catalogue import OPTIMIZATIONS, find_optimization, find_workload
from laptime.data.boxes.tensors import BoxItem, Kept, ParsedOnce, collate, open_boxes, rows
from laptime.data.fetch import fetch
from laptime.engine import one_step
from laptime.engine.build import build, make_recipe, open_data, refuse_unfit
from laptime.engine.check import check_one_step
from laptime.errors import UsageError
from laptime.ladder.plan import rungs_refused
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.optimizations import loader_room
from laptime.optimizations.augment import Augmented
from laptime.optimizations.boxes import mirrored
from laptime.optimizations.data import page_locked
from laptime.optimizations.folding import FoldedConv
from laptime.optimizations.pooling import GatheredRoIAlign
from laptime.spec import OptimizationSpec, OwnSpec
from laptime.values.trees import cut, tensors
from laptime.workloads import detection
from laptime.workloads.base import Batch

SIZES = ((60, 90), (90, 60), (70, 70))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store of seven small photographs; one has two boxes, one has none."""
    root = tmp_path_factory.mktemp("boxes")
    lines = ["filename,class,xmin,ymin,xmax,ymax"]
    for number in range(7):
        height, width = SIZES[number % 3]
        pixels = np.random.default_rng(number).integers(0, 90, (height, width, 3), dtype=np.uint8)
        pixels[20:50, 10:40] = 200
        Image.fromarray(pixels).save(root / f"{number}.png")
        lines += [f"{number}.png,bright,10,20,40,50"] * (number != 3) + [f"{number}.png,dark,0,0,9,30"] * (number == 4)
    (root / "boxes.csv").write_text("\n".join(lines) + "\n")
    return fetch("detection", str(root), tmp_path_factory.mktemp("home"))


@pytest.fixture
def small(monkeypatch):
    """The net on images whose shorter side is 64: a step takes a second on one core."""
    entry = replace(find_workload("detection"), image_size=64)
    monkeypatch.setattr(detection, "find_workload", lambda name: entry)


def chosen(*names):
    return tuple(OptimizationSpec(name=name) for name in names)


def spec_of(data, *names, **changes):
    fields = {"workload": "detection", "data": data, "batch_size": 1, "learning_rate": 5e-3, **changes}
    return make_spec(optimizations=chosen(*names), **fields)


def recipe_of(data, *names):
    spec = spec_of(data, *names)
    return make_recipe(spec, open_data(spec), spec.optimizations)


def same(one: BoxItem, other: BoxItem) -> bool:
    return one.about == other.about and all(torch.equal(a, b) for a, b in zip(one[1:], other[1:], strict=True))


def test_the_table_read_once_gives_the_same_items(stored):
    data = open_boxes(stored)
    again = data.train.dataset
    once = ParsedOnce(again.folder, again.names, again.classes)
    assert all(same(once[i], again[i]) for i in range(len(again)))


def test_mirrored_images_take_their_boxes_along(stored, recipe):
    data = open_boxes(stored)
    mirror = mirrored(replace(recipe, data=data))
    indices = torch.arange(len(data.train))
    plain = [data.train.dataset[i] for i in range(len(data.train))]
    turned = rows(mirror(Batch(collate(plain)), indices, 0).inputs)
    assert not all(same(a, b) for a, b in zip(plain, turned, strict=True))
    for before, after in zip(plain, turned, strict=True):
        if not torch.equal(before.image, after.image):
            assert torch.equal(after.image, before.image.flip(2))
            for (left, top, right, bottom), sides in zip(before.boxes, after.boxes, strict=True):
                width = before.image.shape[2]
                assert sides.tolist() == [width - right, top, width - left, bottom]
    twice = rows(mirror(Batch(collate(turned)), indices, 0).inputs)
    assert all(same(a, b) for a, b in zip(plain, twice, strict=True))


@pytest.mark.parametrize("names", [(), ("pinned",), ("resident",)])
def test_batches_are_mirrored_and_taken_apart_without_a_read_of_their_device(stored, small, names):
    """The meta device gives nothing back: a batch that went through the host, or an index that was read, would fail."""
    recipe = replace(recipe_of(stored, *names), device=torch.device("meta"), batch_size=2)
    recipe = replace(recipe, loading=replace(recipe.loading, workers=0))
    given = list(Augmented(recipe.make_loader(recipe), recipe).epoch(0))
    assert {t.device.type for batch in given for t in tensors(batch.content)} == {"meta"}
    assert [[item.image.shape[0] for item in rows(batch.inputs)] for batch in given] == [[3, 3]] * 3


def test_a_batch_that_was_cut_or_repeated_keeps_its_items(stored):
    data = open_boxes(stored)
    items = [data.train.dataset[i] for i in range(3)]
    whole = collate(items)
    for count in (2, 5):
        found = rows(cut(whole, 3, count))
        assert len(found) == count
        assert all(same(item, items[i % 3]) for i, item in enumerate(found))


@pytest.mark.parametrize("name", [o.name for o in OPTIMIZATIONS if o.workload])
def test_what_is_for_it_alone_is_refused_elsewhere(name):
    own = OwnSpec(attribute="workload", name="train", batch_size=2, learning_rate=1e-3, quality="loss")
    spec = make_spec(optimizations=chosen(name))
    theirs = spec.model_copy(update={"workload": "train", "data": spec.data.model_copy(update={"own": own})})
    for given in (spec, theirs):
        with pytest.raises(UsageError, match=f"{name} is not for {given.workload}: it is for the workload detection"):
            refuse_unfit(given)


def test_kept_images_are_what_the_net_makes_of_them(stored, small):
    plain, kept = recipe_of(stored), recipe_of(stored, "resident")
    images = [plain.data.train.dataset[i] for i in range(3)]
    transform = plain.model.transform.train()
    listed, targets = transform([i.image for i in images], [{"boxes": i.boxes} for i in images])
    for row, target in enumerate(targets):
        item = kept.data.train.dataset[row]
        _, height, width = item.image.shape
        assert (height, width) == listed.image_sizes[row]
        assert min(height, width) == 64
        assert torch.equal(listed.tensors[row, :, :height, :width], item.image)
        assert torch.equal(target["boxes"], item.boxes)
    assert kept.loading.workers == 0


def test_another_side_is_the_nets(stored):
    spec = spec_of(stored)
    recipe = make_recipe(spec, replace(open_data(spec), side=100), ())
    assert (recipe.model.transform.min_size, recipe.model.transform.max_size) == ((100,), 167)


def test_all_loaders_give_the_same_order_and_coins(stored, small):
    def seen(*names):
        parts = build(recipe_of(stored, *names), mark=lambda _: None)
        return [rows(b.inputs)[0] for b in parts.loader.epoch(1)]

    given, kept = seen("parsed-once"), seen("resident")
    assert [i.about[0] for i in given] == [i.about[0] for i in kept]
    for one, other in zip(given, kept, strict=True):
        shares = [i.boxes / torch.tensor(i.about)[[2, 1, 2, 1]] for i in (one, other)]
        assert torch.allclose(*shares, rtol=0, atol=1e-6)


def test_photographs_of_one_size_come_several_a_step(stored, small):
    parts = build(recipe_of(stored, "resident", "fixed-shapes"), mark=lambda _: None)
    batches = list(parts.loader.epoch(0))
    assert {tuple(b.inputs.images.shape[2:]) for b in batches} == {(64, 96)}
    assert sum(len(b) for b in batches) == 6
    assert len(batches[0]) >= 4
    with pytest.raises(UsageError, match="'batch' of 'fixed-shapes' can't be '0'"):
        make_recipe(
            spec_of(stored),
            open_data(spec_of(stored)),
            (OptimizationSpec(name="fixed-shapes", options={"batch": 0}),),
        )


def test_what_is_for_boxes_is_refused_elsewhere(image_data):
    for name in ("parsed-once", "fixed-shapes"):
        with pytest.raises(UsageError, match=f"{name} is for the workload detection alone"):
            make_recipe(make_spec(), image_data, chosen(name))


def test_what_is_not_for_detection_is_refused_with_the_reason(stored):
    with pytest.raises(UsageError, match="dead-taps is not for detection: its maps are large"):
        open_data(spec_of(stored, "dead-taps"))
    assert "cpu-dead-taps" not in rungs_refused("cpu", "detection", stored)
    assert {"dead-taps", "products", "large-batch"} <= set(rungs_refused("cpu", "detection", stored))
    assert all(find_optimization(name) for name in find_workload("detection").refused)


def test_the_net_is_torchvisions_with_frozen_statistics_that_normalize(small):
    model = detection.Detection().make_model(1, "none")
    assert model.roi_heads.box_predictor.cls_score.out_features == 2
    assert isinstance(model.backbone.body.bn1, FrozenBatchNorm2d)
    frozen = {n.split(".")[2] for n, p in model.backbone.named_parameters(prefix="backbone") if not p.requires_grad}
    assert frozen == {"conv1", "layer1"}
    with torch.no_grad():
        maps = model.backbone(nn.functional.interpolate(torch.randn(1, 3, 32, 32), size=(128, 128), mode="bicubic"))
    assert [0.01 < float(m.std()) < 100 for m in maps.values()] == [True] * 5, [float(m.std()) for m in maps.values()]


def test_one_step_of_the_exact_ones_and_of_bf16_is_the_baselines(stored, small):
    spec = spec_of(stored, "parsed-once", "resident", "channels-last", "folded-norms", "gathered-rois", "bf16")
    found = check_one_step(spec, open_data(spec), 1)
    assert found.passed, found
    assert found.layer is not None


@pytest.mark.parametrize(("names", "expected"), [(("folded-norms",), 2), (("resident", "bf16"), 3)])
def test_no_step_of_a_comparison_is_taken_twice(stored, monkeypatch, names, expected):
    """Its norms are frozen, so layers are compared on the steps that there are; each takes seconds."""
    taken = []

    def noted(spec, data, chosen, side, draws, cuts):
        taken.append((tuple(o.name for o in chosen), side.strict))
        return one_step.Step(1.0, {"weight": torch.ones(1)})

    monkeypatch.setattr(one_step, "one_step", noted)
    spec = spec_of(stored, *names)
    assert check_one_step(spec, open_data(spec), 1).passed
    assert len(taken) == len(set(taken)) == expected


@pytest.mark.parametrize(("name", "layer"), [("folded-norms", FoldedConv), ("gathered-rois", GatheredRoIAlign)])
def test_a_wrong_scale_in_a_layer_is_refused(stored, small, monkeypatch, name, layer):
    forward = layer.forward
    monkeypatch.setattr(layer, "forward", lambda self, *given: forward(self, *given) * 1.3)
    spec = spec_of(stored, "resident", name)
    assert not check_one_step(spec, open_data(spec), 1).passed


def test_proposals_of_a_comparison_do_not_depend_on_the_net(monkeypatch):
    model = nn.Module()
    model.rpn = nn.Module()
    model.rpn.fg_bg_sampler = nn.Module()
    detection.Detection().steady(model)
    one, _ = model.rpn.filter_proposals(torch.zeros(2, 9, 4), torch.zeros(2, 9), [(64, 96), (96, 64)], [9])
    other, _ = model.rpn.filter_proposals(torch.ones(2, 9, 4), torch.ones(2, 9), [(64, 96), (96, 64)], [9])
    for a, b, (height, width) in zip(one, other, ((64, 96), (96, 64)), strict=True):
        assert torch.equal(a, b)
        assert (a[:, 2:] > a[:, :2]).all()
        assert a.min() >= 0
        assert a[:, [0, 2]].max() <= width
        assert a[:, [1, 3]].max() <= height


def test_an_epoch_is_trained_and_judged(stored, small):
    recipe = recipe_of(stored, "parsed-once", "resident", "no-reads")
    recipe = replace(
        recipe,
        data=replace(recipe.data, train=type(recipe.data.train)(Kept(recipe.data.train.dataset.items[:2]), collate)),
    )
    marks = StepMarks()
    session = Session(build(recipe, marks), recipe, marks, lambda *_: None)
    (epoch,) = session.counted(Plan(1, 0, None))
    assert epoch.samples == 2
    assert epoch.test_accuracy is None
    assert epoch.test_loss is None
    assert 0 <= epoch.test_map <= epoch.test_map50 <= 1
    shown = epoch_line(epoch.model_copy(update={"test_map50": 0.301, "test_map": 0.1234}), timed=False)
    assert shown.endswith("mAP@0.5 0.301 (0.5:0.95: 0.123)")


def test_too_little_memory_means_fewer_workers_and_a_note(stored, small, monkeypatch):
    monkeypatch.setattr(loader_room, "allowed_memory", lambda: 2 * 2**30)
    recipe = recipe_of(stored)
    assert recipe.loading.workers == 2
    assert "2 loader workers instead of 4: 2.0 GiB of memory hold no more" in recipe.notes[0]


def test_without_pycocotools_one_sentence(stored, monkeypatch):
    monkeypatch.setattr("laptime.devices.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'laptime\[detection\]'"):
        open_data(spec_of(stored))


def test_the_baseline_asks_for_page_locked_batches_where_they_go_to_a_gpu(stored, small, recipe):
    """As the tutorials' loader; copies beside the step are the rung's (`pinned`)."""
    baseline = recipe_of(stored)
    assert not page_locked(baseline)
    assert page_locked(replace(baseline, device=torch.device("cuda")))
    assert not page_locked(replace(recipe, device=torch.device("cuda")))
