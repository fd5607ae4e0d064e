"""Detection: COCO's mAP, its floor, its place among the ladders."""

import pytest
import torch

from laptime.catalogue import find_preset, find_workload
from laptime.compare.floor import quality_floor
from laptime.compare.quality import Rules, judge, scores_of
from laptime.data.boxes.tensors import BoxItem, rows
from laptime.engine.noise import random_boxes
from laptime.engine.scores import Scorer
from laptime.errors import UsageError
from laptime.ladder.plan import make_plan, unfit
from laptime.ladder.request import check_variant, make_request
from laptime.records import EpochRecord, ProbeRecord, RunRecord
from laptime.variants import resolve


def found_at(boxes, labels, scores=None):
    return {
        "boxes": torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4),
        "labels": torch.tensor(labels),
        "scores": torch.tensor(scores or [0.9] * len(labels)),
    }


def truth(boxes, labels):
    sides = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return BoxItem((0, 50, 50, len(labels)), torch.zeros(3, 50, 50), sides, torch.tensor(labels))


def scored(*pairs):
    scorer = Scorer(("a", "b"))
    for found, item in pairs:
        scorer.add([found], [item])
    return scorer.scores()


def test_mean_average_precision(capsys):
    box = [[10.0, 10.0, 30.0, 30.0]]
    assert scored((found_at(box, [1]), truth(box, [1]))) == pytest.approx({"test_map50": 1.0, "test_map": 1.0})
    assert scored((found_at(box, [2]), truth(box, [1]))) == {"test_map50": 0.0, "test_map": 0.0}
    # An overlap of 16 in 20: a hit at 0.5 to 0.75 and 0.8, none above.
    near = scored((found_at([[10.0, 10.0, 30.0, 26.0]], [1]), truth(box, [1])))
    assert near["test_map50"] == pytest.approx(1)
    assert near["test_map"] == pytest.approx(0.7)
    # Background alone lowers precision where something is found in it.
    bare = (found_at(box, [1], [0.95]), truth([], []))
    assert scored(bare, (found_at(box, [1]), truth(box, [1])))["test_map50"] == pytest.approx(0.5)
    assert scored((found_at([], []), truth(box, [1]))) == {"test_map50": 0.0, "test_map": 0.0}
    assert scored((found_at([], []), truth([], []))) == {}
    assert capsys.readouterr().out == ""


def test_boxes_are_judged_once_whatever_their_size(monkeypatch):
    from pycocotools.cocoeval import COCOeval

    judged, evaluate = [], COCOeval.evaluateImg
    monkeypatch.setattr(COCOeval, "evaluateImg", lambda *given: judged.append(given) or evaluate(*given))
    box, large = [[10.0, 10.0, 30.0, 30.0]], [[0.0, 0.0, 200.0, 200.0]]
    hit, miss = (found_at(box, [1]), truth(box, [1])), (found_at(box, [1], [0.5]), truth(large, [1]))
    assert scored(hit, miss) == pytest.approx({"test_map50": 51 / 101, "test_map": 51 / 101})
    assert len(judged) == 2 * len(("a", "b"))  # images times classes


def test_quality_below_the_floor_is_not_judged():
    floor = quality_floor("detection", 1)
    assert floor == pytest.approx(0.3)

    def run(value):
        epoch = EpochRecord(index=0, epoch_s=1, samples=4, test_map50=value)
        return scores_of([RunRecord(status="done", epochs=(epoch,))], "map50")

    low = judge(run(0.05), run(0.5), Rules(floor, True, 40))
    assert (low.verdict, low.reason) == ("not judged", "the baseline reached 5.0 %, below the floor of 30.0 %")
    assert judge(run(0.8), run(0.2), Rules(floor, True, 40)).verdict == "worse"


def test_its_rungs_stand_in_its_own_ladder_alone():
    for device in ("cpu", "cuda"):
        entry = find_workload("detection")
        probe = ProbeRecord(gains={"bf16": 2.0}, refusals=unfit(entry, device))
        full = make_plan(device, find_preset(entry, "full"), None, probe)
        tried = {name for group in full.rungs for name in group}
        assert {"parsed-once", "folded-norms", "fixed-shapes"} <= tried
        assert ("gathered-rois" in tried) == (device == "cpu")
        reasons = {left.variant: left.reason for left in full.left_out}
        assert "its maps are large" in reasons[f"{device}-dead-taps"]
        assert not [r for r in reasons.values() if "too short;" in r]
        quick = make_plan(device, find_preset(entry, "quick"), None, probe)
        assert "too short" in {left.variant: left.reason for left in quick.left_out}[f"{device}-fixed-shapes"]
        cifar = make_plan(device, find_preset(find_workload("cifar"), "full"), None, probe)
        named = {name for group in cifar.rungs for name in group} | {left.variant for left in cifar.left_out}
        ours = ("parsed-once", "folded-norms", "gathered-rois", "fixed-shapes")
        assert not [name for name in named if name.endswith(ours)]


def test_its_own_optimizations_are_in_what_is_asked_for_by_name():
    """As in the ladder's own: the exact ones, and not those that must earn their place."""

    def names(variant, workload, device="cpu"):
        entry = find_workload(workload)
        plan = make_plan(
            device, find_preset(entry, "full"), [variant], ProbeRecord(refusals=unfit(entry, device)), workload
        )
        return {o.name for o in plan.fixed[-1].optimizations}

    ours = {"parsed-once", "folded-norms", "gathered-rois", "fixed-shapes"}
    assert names("cpu-optimized", "detection") & ours == {"parsed-once", "folded-norms", "gathered-rois"}
    assert names("cpu-optimized-without-gathered-rois", "detection") & ours == {"parsed-once", "folded-norms"}
    assert names("cuda-optimized", "detection", "cuda") & ours == {"parsed-once", "folded-norms"}
    assert not names("cpu-optimized", "cifar") & ours
    with pytest.raises(UsageError, match="cpu-optimized-without-gathered-rois"):
        resolve("cpu-optimized-without-gathered-rois", workload="cifar")


def test_pods_are_refused():
    request = make_request(workload="detection", launcher="kubernetes", variants="cpu-baseline")
    with pytest.raises(UsageError, match="kubernetes is not for detection"):
        check_variant(request, resolve("cpu-baseline"))


def test_the_probe_has_photographs_of_its_own():
    data = random_boxes(2)
    assert len(data.train) == 2
    (item,) = rows(data.train.batch([1]))
    assert item.boxes.tolist() == [[120, 80, 240, 160]]
