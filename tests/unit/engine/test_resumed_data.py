"""A resumed run equals the uninterrupted one bit for bit, with a user's random augmentation and with boxes too."""

import random
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from tests.breaking_off import assert_alike, broken_off
from tests.own_files import AUGMENTED, write
from tests.unit.conftest import make_spec
from torch import nn
from torchvision.models.detection import FasterRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.ops import MultiScaleRoIAlign

from laptime import worker
from laptime.catalogue import parse_optimization
from laptime.data.fetch import fetch
from laptime.preflight.inspecting import inspect
from laptime.workloads import detection


def train_twice(spec, folder, before) -> None:
    """Trains a spec in one go, and again with a break after its first epoch; asserts that they are alike."""
    whole, resumed = folder / "whole", folder / "run"
    before()
    uninterrupted = worker.run(spec, whole)
    assert uninterrupted.status == "done", uninterrupted.error
    kept = spec.model_copy(update={"checkpoints": str(folder / "kept")})
    before()
    broken_off(kept, resumed, after=1)
    before()
    record = worker.run(kept, resumed)
    assert record.status == "done", record.error
    assert record.restarts == 1
    assert_alike(record, uninterrupted, (whole, resumed))


@pytest.mark.parametrize("count", [0, 2])
def test_random_augmentation_of_a_user_s_own(count, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = write(tmp_path / f"augmented_{count}.py", AUGMENTED)

    def as_a_new_process():
        sys.modules.pop(f"augmented_{count}", None)
        random.seed()
        np.random.seed()
        torch.seed()

    spec = make_spec(
        workload=name,
        data=inspect(name),
        optimizations=(parse_optimization(f"workers:count={count}"),),
        batch_size=8,
        epochs=3,
        warmup_epochs=1,
        warmup_steps=2,
        check=False,
        save_model=True,
    )
    train_twice(spec, tmp_path, as_a_new_process)


@pytest.fixture
def boxes(tmp_path):
    """A store of four small photographs with a box each."""
    root = tmp_path / "boxes"
    root.mkdir()
    lines = ["filename,class,xmin,ymin,xmax,ymax"]
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 90, (60, 90, 3), dtype=np.uint8)
        pixels[20:50, 10:40] = 200
        Image.fromarray(pixels).save(root / f"{number}.png")
        lines.append(f"{number}.png,bright,10,20,40,50")
    (root / "boxes.csv").write_text("\n".join(lines) + "\n")
    return fetch("detection", str(root), tmp_path / "home")


class SmallDetection(detection.Detection):
    """torchvision's detector on one convolution in the place of the ResNet-50 and its pyramid."""

    def make_model(self, classes: int, weights: str, channels: int = 3) -> nn.Module:
        body = nn.Conv2d(3, 4, 8, stride=8)
        body.out_channels = 4
        model = FasterRCNN(
            body,
            rpn_anchor_generator=AnchorGenerator(((16, 32),), ((0.5, 1.0, 2.0),)),
            box_roi_pool=MultiScaleRoIAlign(["0"], 3, 2),
            box_head=TwoMLPHead(4 * 9, 16),
            box_predictor=FastRCNNPredictor(16, classes + 1),
        )
        detection.resize_to(model, 64)
        return model


def test_detection(boxes, tmp_path, monkeypatch):
    """Its samplers draw among the proposals; its loader has workers."""
    monkeypatch.setattr("laptime.engine.build.find", lambda name: SmallDetection())
    spec = make_spec(
        workload="detection",
        data=boxes,
        optimizations=(parse_optimization("workers:count=2"),),
        batch_size=1,
        learning_rate=5e-3,
        epochs=3,
        warmup_steps=1,
        check=False,
        save_model=True,
    )
    train_twice(spec, tmp_path, torch.seed)
    assert (tmp_path / "whole" / "samples.png").stat().st_size > 0
