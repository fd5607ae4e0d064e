"""Weights from a file: for other classes, with the names of earlier versions, of another net."""

from __future__ import annotations

import functools
import hashlib
import re
from http.server import SimpleHTTPRequestHandler

import pytest
import torch
from tests.serving import Quiet, serving
from torch import nn
from torchvision.models import (
    EfficientNet_B5_Weights,
    ResNet18_Weights,
    ResNet50_Weights,
    Weights,
    WeightsEnum,
    resnet50,
)
from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights

from laptime.errors import DataError, UsageError
from laptime.ladder.request import check_weights
from laptime.workloads import detection, find
from laptime.workloads.weights import load_weights


def test_weights_of_a_detector_for_other_classes_are_a_start(tmp_path):
    given = detection.Detection().make_model(3, "none")
    path = tmp_path / "weights.pt"
    torch.save(given.state_dict(), path)
    model = detection.Detection().make_model(1, str(path))
    assert model.roi_heads.box_predictor.bbox_pred.out_features == 2 * 4
    before, after = given.state_dict(), model.state_dict()
    other = {name for name in after if not torch.equal(after[name], before[name])}
    last = "roi_heads.box_predictor"
    assert other == {f"{last}.{layer}.{kind}" for layer in ("cls_score", "bbox_pred") for kind in ("weight", "bias")}
    torch.save(given.backbone.state_dict(), path)
    with pytest.raises(DataError, match="don't fit this model"):
        load_weights(model, str(path), {"imagenet": ResNet50_Weights.IMAGENET1K_V1}, ("backbone.body.conv1", last))


def test_weights_with_the_names_of_earlier_versions_are_taken(tmp_path):
    """As in torchvision's own file of a detector trained on COCO, which modules bring up to date themselves."""
    given = detection.Detection().make_model(90, "none").state_dict()
    old = {}
    for name, tensor in given.items():
        before = name.replace("rpn.head.conv.0.0.", "rpn.head.conv.")
        before = re.sub(r"(fpn\.(?:inner|layer)_blocks\.\d)\.0\.", r"\1.", before)
        old[before] = tensor + 1
    assert len(set(old) - set(given)) == 18
    old["backbone.body.bn1.num_batches_tracked"] = torch.tensor(7)  # what is frozen holds no count
    path = tmp_path / "coco.pth"
    torch.save(old, path)
    after = detection.Detection().make_model(1, str(path)).state_dict()
    taken = {name for name in given if torch.equal(after[name], given[name] + 1)} if set(after) == set(given) else set()
    assert {n for n in given if n not in taken} == {n for n in given if "box_predictor" in n}


def _kept(folder, entry, state):
    """Puts a state dict where torch keeps what it has downloaded."""
    path = folder / "hub" / "checkpoints" / entry.url.rpartition("/")[2]
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)


def test_a_detector_starts_from_coco_or_its_backbone_from_imagenet(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    detector = detection.Detection().make_model(90, "none").state_dict()
    _kept(tmp_path, FasterRCNN_ResNet50_FPN_Weights.COCO_V1, {k: v + 1 for k, v in detector.items()})
    found = detection.Detection().make_model(1, "coco").state_dict()
    assert {k for k in found if not torch.equal(found[k], detector[k] + 1)} == {k for k in found if "predictor" in k}
    body = {k: v + 1 for k, v in resnet50().state_dict().items()}
    _kept(tmp_path, ResNet50_Weights.IMAGENET1K_V1, body)
    found = detection.Detection().make_model(1, "imagenet").state_dict()
    start = "backbone.body."
    loaded = [k for k in found if k.startswith(start)]
    assert len(loaded) > 250
    assert all(torch.equal(found[k], body[k.removeprefix(start)]) for k in loaded)


@pytest.mark.parametrize(
    ("workload", "entry"),
    [("cifar", ResNet18_Weights.IMAGENET1K_V1), ("eurosat", EfficientNet_B5_Weights.IMAGENET1K_V1)],
)
def test_imagenet_weights_are_a_start_for_other_classes(workload, entry, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    made = find(workload)
    whole = {k: v + 1 for k, v in made.make_model(1000, "none").state_dict().items()}
    _kept(tmp_path, entry, whole)
    found = made.make_model(10, "imagenet").state_dict()
    last = {"cifar": "fc", "eurosat": "classifier.1"}[workload]
    assert {k for k in found if not torch.equal(found[k], whole[k])} == {f"{last}.weight", f"{last}.bias"}


class _Served(Quiet, SimpleHTTPRequestHandler):
    """Serves a folder."""


def test_named_weights_come_over_the_network_with_their_checksum(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    served = tmp_path / "served"
    served.mkdir()
    torch.save({"weight": torch.full((2, 2), 3.0), "bias": torch.zeros(2)}, served / "net.pth")
    body = (served / "net.pth").read_bytes()
    (served / f"net-{hashlib.sha256(body).hexdigest()[:8]}.pth").write_bytes(body)
    (served / "net-01234567.pth").write_bytes(body)
    with serving(functools.partial(_Served, directory=served)) as address:
        start = f"{address}/net-"

        class Mine(WeightsEnum):
            GOOD = Weights(url=f"{start}{hashlib.sha256(body).hexdigest()[:8]}.pth", transforms=None, meta={})
            BAD = Weights(url=f"{start}01234567.pth", transforms=None, meta={})
            GONE = Weights(url=f"{start}89abcdef.pth", transforms=None, meta={})

        net = nn.Sequential(nn.Linear(2, 2))[0]
        load_weights(net, "good", {"good": Mine.GOOD}, ("none", "none"))
        assert torch.equal(net.weight, torch.full((2, 2), 3.0))
        for name, entry in (("bad", Mine.BAD), ("gone", Mine.GONE)):
            with pytest.raises(
                DataError, match=rf"the weights '{name}' can't be downloaded from {entry.url} .*--weights"
            ):
                load_weights(net, name, {name: entry}, ("none", "none"))


@pytest.mark.parametrize(
    ("workload", "known"), [("cifar", "none nor imagenet"), ("detection", "none nor imagenet nor coco")]
)
def test_a_name_that_is_none_of_the_workloads_is_told(workload, known):
    with pytest.raises(UsageError, match=rf"--weights 'voc' is neither {known} nor a file"):
        check_weights("voc", workload)
    check_weights("imagenet", workload)
    with pytest.raises(UsageError, match=f"neither {known} nor a file"):
        find(workload).make_model(2, "voc")
