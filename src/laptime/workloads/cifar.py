"""CIFAR-10 with torchvision's ResNet-18, as the tutorials train it: the ImageNet architecture on 32x32 images."""

from __future__ import annotations

from torch import nn
from torchvision.models import ResNet18_Weights, resnet18

from laptime.workloads.base import Classifier
from laptime.workloads.weights import load_weights, take_channels


class Cifar(Classifier):
    """ResNet-18 with one output a class, cross-entropy, accuracy."""

    name = "cifar"

    def make_model(self, classes: int, weights: str, channels: int = 3) -> nn.Module:
        """See `Workload.make_model`."""
        model: nn.Module = resnet18(num_classes=classes)
        take_channels(model, "conv1", channels)
        load_weights(model, weights, {"imagenet": ResNet18_Weights.IMAGENET1K_V1}, ("conv1", "fc"))
        return model
