"""The protocol of a workload: what every optimization, check and measurement needs to know of it, and no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from laptime.values.trees import Tree, samples


@dataclass(frozen=True)
class Batch:
    """Samples of one step.

    Attributes:
        inputs: images [B, C, H, W], float32, normalized; of a user's own workload the whole batch, as it was collated.
        labels: classes [B], int64; None in a user's own.
        weight: what the mean loss counts in the gradient; not 1 only where ranks hold unequal parts of a batch.
        trained: samples that the step trains on, those with the highest losses; None for all.
        more: whether the step goes on with another part of its batch.
    """

    inputs: Tree
    labels: Tree = None
    weight: float = 1.0
    trained: int | None = None
    more: bool = False

    def __len__(self) -> int:
        return samples(self.inputs)

    @property
    def content(self) -> Tree:
        """Inputs and labels together."""
        return (self.inputs, self.labels)


@dataclass(frozen=True)
class Counts:
    """What an epoch sums up, without the graph; the tensors stay on the device until somebody reads them.

    Attributes:
        loss_sum: sum of the samples' losses, a scalar.
        correct: number of right answers, a scalar; None where there is no such thing.
        count: samples.
        scores: of an evaluation, what else was measured, by the names of the epoch's record.
    """

    loss_sum: Tensor | float
    correct: Tensor | int | float | None
    count: int
    scores: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Output:
    """A forward pass.

    Attributes:
        loss: mean loss of the samples that the step trains on, a scalar with its graph.
        correct: number of right answers, an int64 scalar (float64 in a user's own, None without an accuracy).
        count: samples of the batch.
        weight: what the mean loss was multiplied with, see `Batch.weight`; the counts are without it.
        found: what a detector found in each image, in evaluation alone.
        whole: mean loss of the whole batch, weighted like `loss`, where the step trains on a part of it.
    """

    loss: Tensor
    correct: Tensor | None
    count: int
    weight: float = 1.0
    found: Sequence[Mapping[str, Tensor]] = ()
    whole: Tensor | None = None

    @property
    def told(self) -> Tensor:
        """The loss that an epoch sums up: that of all samples, whichever the step trains on."""
        return (self.loss if self.whole is None else self.whole).detach()

    def detached(self) -> Counts:
        """What is kept after the step; does not wait for the device."""
        return Counts(self.told * (self.count / self.weight), self.correct, self.count)


LossesBySample = Callable[[nn.Module, Batch], tuple[Tensor, Tensor]]


class Workload(Protocol):
    """A model, its loss and its quality metric."""

    @property
    def name(self) -> str:
        """The name in the catalogue."""
        ...

    def make_model(self, classes: int, weights: str, channels: int = 3) -> nn.Module:
        """Builds the plain architecture on the CPU in fp32, initialized from torch's current random state.

        Args:
            classes: outputs of the head.
            weights: `none`, a named set of pretrained weights, or a file with a state dict.
            channels: values of a pixel, inputs of the first convolution.

        Raises:
            LaptimeError: the weights can't be had or don't fit.
        """
        ...

    def forward(self, model: nn.Module, batch: Batch) -> Output:
        """Computes loss and right answers of a batch, without waiting for the device."""
        ...

    def smoothed(self, amount: float) -> Callable[[nn.Module, Batch], Output] | None:
        """`forward` with labels smoothed by `amount` where the model is in training mode, and plain elsewhere.

        Returns:
            None where the workload's loss has no labels to smooth.
        """
        ...

    def by_sample(self, smoothing: float) -> LossesBySample | None:
        """The loss of each sample, of which `forward` (or `smoothed`, by as much) gives the mean in training.

        Returns:
            From net and batch to losses [B] and right answers; None where the loss is a mean from the start.
        """
        ...

    def steady(self, model: nn.Module) -> None:
        """Holds still, for a comparison of one step, choices of the net that flip under rounding."""
        ...


def classify_each(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """The loss of each sample [B] and top-1 hits of any classifier in training; see `classify`."""
    logits = model(batch.inputs)
    losses = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none", label_smoothing=smoothing)
    return losses, (logits.detach().argmax(dim=1) == batch.labels).sum()


def classify(model: nn.Module, batch: Batch, smoothing: float = 0.0) -> Output:
    """Forward pass of any classifier: cross-entropy over the logits [B, classes] and top-1 hits.

    Args:
        model: in evaluation mode its loss is never smoothed, so that losses on test data can be compared.
        batch: images and classes.
        smoothing: share of the label's weight that is spread over all classes (Szegedy et al. 2015, arXiv:1512.00567).
    """
    logits = model(batch.inputs)
    spread = smoothing if model.training else 0.0
    loss = torch.nn.functional.cross_entropy(logits, batch.labels, label_smoothing=spread)
    correct = (logits.detach().argmax(dim=1) == batch.labels).sum()
    return Output(loss, correct, len(batch))


class Classifier:
    """What image classifiers share: cross-entropy and top-1 hits."""

    def forward(self, model: nn.Module, batch: Batch) -> Output:
        """See `Workload.forward`; images [B, C, H, W]."""
        return classify(model, batch)

    def smoothed(self, amount: float) -> Callable[[nn.Module, Batch], Output]:
        """See `Workload.smoothed`."""
        return partial(classify, smoothing=amount)

    def by_sample(self, smoothing: float) -> LossesBySample:
        """See `Workload.by_sample`."""
        return partial(classify_each, smoothing=smoothing)

    def steady(self, model: nn.Module) -> None:
        """See `Workload.steady`; a classifier chooses nothing in training."""
