"""The optimizations of another trajectory: batch, schedule, loss, augmentation, optimizer; quality judges them."""

from __future__ import annotations

from typing import Literal

from laptime.catalogue.entries import (
    ANYWHERE,
    Between,
    Count,
    CountOrZero,
    FromZero,
    OptimizationEntry,
    OptionEntry,
    Positive,
    PositiveOrZero,
    ToOne,
)

# What large-batch takes where no size is given: two cores are busy at 512; small steps use a fraction of a GPU.
LARGE_BATCHES = {"cpu": 512, "cuda": 2048}
# Share of the steps over which a linear schedule rises.
LINEAR_WARMUP = 0.2

TRAJECTORY: tuple[OptimizationEntry, ...] = (
    OptimizationEntry(
        "sgd-nesterov",
        "model",
        "schedule",
        "SGD with Nesterov momentum",
        "Another optimizer than Adam, with a learning rate of its own.",
        options=(
            OptionEntry("lr", 0.02, "learning rate at the baseline's batch", Positive),
            OptionEntry("momentum", 0.9, "share of the last update that goes on", Between),
        ),
        earned=ANYWHERE,
    ),
    OptimizationEntry(
        "large-batch",
        "statistical",
        "schedule",
        "larger batch, scaled learning rate, OneCycle",
        "Fewer, larger steps; the learning rate grows with the root of the batch and follows OneCycle.",
        options=(
            OptionEntry(
                "size",
                0,
                "samples a step; 0 for 512 on a CPU, 2048 on a GPU, or the baseline's where that is larger",
                CountOrZero,
                tuple(2**power for power in range(4, 14)),
            ),
            OptionEntry(
                "max_lr",
                0.0,
                "peak learning rate; 0 for the baseline's times sqrt(size / baseline's batch)",
                PositiveOrZero,
            ),
            OptionEntry(
                "schedule", "onecycle", "onecycle, linear or constant", Literal["onecycle", "linear", "constant"]
            ),
        ),
    ),
    OptimizationEntry(
        "onecycle",
        "statistical",
        "schedule",
        "OneCycle learning rate",
        "The learning rate rises over 30 % of the steps and then falls to nearly zero; large-batch brings it too.",
        options=(OptionEntry("factor", 1.0, "peak as a multiple of the learning rate it finds", Positive),),
        excludes=("linear-decay",),
        earned=ANYWHERE,
        for_quality=True,
    ),
    OptimizationEntry(
        "linear-decay",
        "statistical",
        "schedule",
        "linear decay of the learning rate",
        "The learning rate rises over a share of the steps and then falls to nearly zero, both in a straight line.",
        options=(
            OptionEntry("factor", 1.0, "peak as a multiple of the learning rate it finds", Positive),
            OptionEntry("warmup", LINEAR_WARMUP, "share of the steps over which it rises", FromZero),
        ),
        excludes=("onecycle",),
        earned=ANYWHERE,
        for_quality=True,
    ),
    OptimizationEntry(
        "decay",
        "statistical",
        "schedule",
        "weight decay",
        "Decoupled weight decay (AdamW; in the gradient under SGD), none on norms and biases.",
        options=(
            OptionEntry("amount", 0.05, "decay, times the learning rate in each step", PositiveOrZero),
            OptionEntry("norms", False, "whether norms and biases are decayed too"),
        ),
        earned=ANYWHERE,
        for_quality=True,
    ),
    OptimizationEntry(
        "label-smoothing",
        "statistical",
        "loss",
        "label smoothing",
        "A share of each label is spread over all classes, in the training loss alone.",
        options=(OptionEntry("amount", 0.1, "share of a label that is spread", FromZero),),
        earned=ANYWHERE,
        for_quality=True,
    ),
    OptimizationEntry(
        "selective-backprop",
        "statistical",
        "loss",
        "selective backprop",
        "After some epochs a step trains on the samples of its batch with the highest losses, found without gradients.",
        options=(
            OptionEntry("keep", 0.5, "share of a batch's samples that train, on each rank of its part", Between),
            OptionEntry("begin", 0.5, "share of the epochs before the first that selects, rounded up", FromZero),
            OptionEntry("end", 0.9, "share of the epochs after which all samples train again, rounded up", ToOne),
            OptionEntry("every", 10, "each so many steps of an epoch the whole batch trains; 0 for never", CountOrZero),
        ),
        # A recording holds one kind of step; DataParallel copies the net to all GPUs for each forward pass.
        excludes=("graph", "compile-graphed", "dp"),
        earned=ANYWHERE,
    ),
    OptimizationEntry(
        "flip",
        "statistical",
        "data",
        "mirrored images",
        "Mirrors half of the images in each epoch, whole batches at once.",
        options=(
            OptionEntry(
                "mode",
                "alternating",
                "alternating (each image every second epoch) or random",
                Literal["alternating", "random"],
            ),
        ),
        earned=ANYWHERE,
        for_quality=True,
    ),
    OptimizationEntry(
        "crop",
        "statistical",
        "data",
        "moved images",
        "Moves each image by some pixels at random: pads it and takes a window of its size, whole batches at once.",
        options=(
            OptionEntry("pixels", 2, "padding on each side, the most by which an image moves", Count),
            OptionEntry(
                "mode",
                "zeros",
                "what the padding holds: zeros (the mean colour) or reflect",
                Literal["zeros", "reflect"],
            ),
        ),
        earned=ANYWHERE,
        for_quality=True,
    ),
    OptimizationEntry(
        "progressive-resizing",
        "statistical",
        "data",
        "progressive resizing",
        "The first epochs train on smaller images, which then grow to full size.",
        options=(
            OptionEntry("smallest", 0.75, "side of the first images as a share of the full one", ToOne),
            OptionEntry("share", 0.5, "share of the epochs below full size, rounded down", FromZero),
            OptionEntry("step", 8, "sides are multiples of this", Count),
        ),
        excludes=("graph",),  # a graph is recorded for one shape
        earned=ANYWHERE,
    ),
    OptimizationEntry(
        "ema",
        "statistical",
        "step",
        "average of the weights",
        "Evaluation and the saved model use an exponential moving average of weights and BatchNorm statistics.",
        options=(
            OptionEntry("epochs", 0.25, "memory of the average, in epochs", Positive),
            OptionEntry("every", 4, "steps between two updates", Count),
        ),
        earned=ANYWHERE,
        for_quality=True,
    ),
)
