"""EuroSAT with torchvision's EfficientNet-B5: land use on 64x64 tiles of Sentinel-2, in colours or in any bands."""

from __future__ import annotations

from torch import nn
from torchvision.models import EfficientNet_B5_Weights, efficientnet_b5

from laptime.workloads.base import Classifier
from laptime.workloads.weights import load_weights, take_channels


class Eurosat(Classifier):
    """EfficientNet-B5 with one output a class, cross-entropy, accuracy."""

    name = "eurosat"

    def make_model(self, classes: int, weights: str, channels: int = 3) -> nn.Module:
        """See `Workload.make_model`; images of 64 pixels are a seventh of the side that B5 was made for."""
        model: nn.Module = efficientnet_b5(num_classes=classes)
        take_channels(model, "features.0.0", channels)
        load_weights(
            model, weights, {"imagenet": EfficientNet_B5_Weights.IMAGENET1K_V1}, ("features.0.0", "classifier.1")
        )
        return model
