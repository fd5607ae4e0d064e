"""Weights from a file: for other classes, with the names of earlier versions, of another net."""

from __future__ import annotations

import re

import pytest
import torch
from torchvision.models import ResNet50_Weights

from laptime.errors import DataError
from laptime.workloads import detection
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
        load_weights(model, str(path), ResNet50_Weights.IMAGENET1K_V1, ("backbone.body.conv1", last))


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
