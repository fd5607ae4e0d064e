"""Objects in photographs: torchvision's Faster R-CNN with a ResNet-50 and a feature pyramid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - the name torch's documentation uses
from torchvision.models import ResNet50_Weights, resnet50
from torchvision.models.detection import FasterRCNN, FasterRCNN_ResNet50_FPN_Weights
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform
from torchvision.ops import FrozenBatchNorm2d

from laptime.catalogue import find_workload
from laptime.data.boxes.tensors import BoxBatch, rows
from laptime.workloads.base import Batch, Output
from laptime.workloads.weights import load_weights

_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
# torchvision's own 800 and 1333, as a proportion.
_LONGEST = 5 / 3
_NAMED = {"imagenet": ResNet50_Weights.IMAGENET1K_V1, "coco": FasterRCNN_ResNet50_FPN_Weights.COCO_V1}
# Of the backbone's five parts, as torchvision has it where weights are given.
_TRAINED_LAYERS = 3
# Sides of the proposals that stand in for the net's own in a comparison, as shares of the image's.
_STEADY, _LEAST_SIDE, _PROPOSALS = 17, 0.1, 256
_COMPARED_ANCHORS = 2048


class Resized(GeneralizedRCNNTransform):  # type: ignore[misc]
    """torchvision's own transform, which draws no random number to choose among one size."""

    def torch_choice(self, k: list[int]) -> int:
        """The one size; a draw would shift all that the samplers draw after it."""
        return k[0]


class Detection:
    """Faster R-CNN ResNet-50-FPN, the sum of its four losses, mean average precision.

    The net is `fasterrcnn_resnet50_fpn` as torchvision builds it for given weights: BatchNorm frozen, and of the
    backbone's five parts the last three trained. The shorter side of an image becomes the catalogue's `image_size`.
    """

    name = "detection"

    def make_model(self, classes: int, weights: str, channels: int = 3) -> nn.Module:
        """See `Workload.make_model`; the background is a class beside those given.

        `imagenet` is for the backbone; `coco`, and a file, hold a state dict of the whole detector, whose last layer
        may be for other classes. Without weights the frozen statistics are those of noise (see `_scaled`).
        """
        side = find_workload(self.name).image_size
        body = resnet50()
        if weights == "imagenet":
            load_weights(body, weights, _NAMED, ("conv1", "fc"))
        else:
            _scaled(body)
        backbone = resnet_fpn_backbone(
            backbone_name="resnet50", weights=None, norm_layer=FrozenBatchNorm2d, trainable_layers=_TRAINED_LAYERS
        )
        given = body.state_dict()
        backbone.body.load_state_dict({k: given[k] for k in backbone.body.state_dict()})
        model: nn.Module = FasterRCNN(backbone, classes + 1)
        resize_to(model, side)
        if weights != "imagenet":
            ends = ("backbone.body.conv1", "roi_heads.box_predictor")
            load_weights(model, weights, _NAMED, ends)
        return model

    def forward(self, model: nn.Module, batch: Batch) -> Output:
        """See `Workload.forward`: images as they come from the file, normalized and resized by the net.

        The detector reads counts and samples on the host, so on a GPU it waits for the device several times a step.
        """
        images, targets = _listed(batch.inputs)
        return _output(model, model(images, targets if model.training else None), len(batch))

    def smoothed(self, amount: float) -> Callable[[nn.Module, Batch], Output] | None:
        """See `Workload.smoothed`; the detector's losses are its own."""
        return None

    def by_sample(self, smoothing: float) -> None:
        """See `Workload.by_sample`; the detector's losses are means over boxes of all images."""
        return

    def steady(self, model: nn.Module) -> None:
        """See `Workload.steady`: proposals that do not depend on the net's values.

        Which boxes are proposed (the best thousands, less those that overlap) and which of them are drawn as samples
        turn on the last bit of a score, so that two right sides would train on other boxes. No gradient goes through
        the choice. All that does is compared: backbone, pyramid, both heads and the four losses, on given proposals;
        with more samples than in training, since a single value across the kink of a ReLU weighs too much in few.
        """
        rpn: Any = model.rpn
        rpn.filter_proposals = _steady_proposals
        rpn.fg_bg_sampler.batch_size_per_image = _COMPARED_ANCHORS


def resize_to(model: nn.Module, side: int) -> None:
    """Has a detector bring the shorter side of each image to `side` pixels, the longer one to 5/3 of that at most."""
    model.transform = Resized(side, round(side * _LONGEST), _MEAN, _STD).train(model.training)


def forward_ready(model: nn.Module, batch: Batch) -> Output:
    """`Detection.forward` of images that were normalized and resized before: the parts of torchvision's net in turn.

    The check for boxes without an area is left out, since it waits for the device and the store was checked.
    """
    net: Any = model
    images, given = _listed(batch.inputs)
    targets = given if model.training else None
    listed: ImageList = ImageList(net.transform.batch_images(images), [(i.shape[1], i.shape[2]) for i in images])
    features = net.backbone(listed.tensors)
    proposals, first = net.rpn(listed, features, targets)
    found, second = net.roi_heads(features, proposals, listed.image_sizes, targets)
    return _output(model, {**first, **second} if model.training else found, len(batch))


def _listed(batch: BoxBatch) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    items = rows(batch)
    return [i.image for i in items], [{"boxes": i.boxes, "labels": i.labels} for i in items]


def _output(model: nn.Module, given: Any, count: int) -> Output:
    """The summed losses of a training step, or the detections of an evaluation, whose loss is not known."""
    if model.training:
        return Output(torch.stack(list(given.values())).sum(), None, count)
    return Output(torch.full((), torch.nan), None, count, found=given)


def _steady_proposals(
    proposals: Tensor, objectness: Tensor, sizes: list[tuple[int, int]], anchors: list[int]
) -> tuple[list[Tensor], list[Tensor]]:
    """In the place of `RegionProposalNetwork.filter_proposals`: the same boxes whatever the net says."""
    found = []
    for number, (height, width) in enumerate(sizes):
        generator = torch.Generator().manual_seed(_STEADY + number)
        corner, side = torch.rand(2, _PROPOSALS, 2, generator=generator)
        low, high = corner * (1 - _LEAST_SIDE), corner + side * (1 - corner)
        boxes = torch.cat([low, torch.maximum(high, low + _LEAST_SIDE)], dim=1)
        scale = torch.tensor([width, height, width, height], dtype=torch.float32)
        found.append((boxes * scale).to(proposals.device, proposals.dtype))
    return found, [b.new_ones(len(b)) for b in found]


def _scaled(body: nn.Module) -> None:
    """Sets BatchNorm's statistics to those of the fresh net on noise of several scales, as images have, in place.

    Frozen at their defaults they would normalize nothing, and 16 residual blocks of fresh weights would end at values
    in the hundreds. One pass over data as start: LSUV, Mishkin and Matas 2015 (arXiv:1511.06422).
    """
    norms = [m for m in body.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the mean over all passes, of which there is one
    with torch.no_grad():
        scales = [F.interpolate(torch.randn(2, 3, n, n), size=(128, 128), mode="bilinear") for n in (4, 16, 64, 128)]
        body.train()(torch.stack(scales).sum(dim=0) / 2)
