"""The optimizations: name, class, stage, title, explanation, needs and options of each."""

from __future__ import annotations

from laptime.entries import OptimizationEntry, OptionEntry

OPTIMIZATIONS: tuple[OptimizationEntry, ...] = (
    OptimizationEntry(
        "threads",
        "exact",
        "process",
        "threads and number modes",
        "Sets the threads to the cores that affinity and quota allow, and flushes denormal numbers to zero.",
        devices=("cpu",),
        options=(OptionEntry("count", 0, "threads; 0 for the cores that this process may use"),),
    ),
    OptimizationEntry(
        "keep-pages",
        "exact",
        "process",
        "kept memory pages",
        "Freed memory stays with the process: large tensors are not mapped anew, page by page, in each step.",
        devices=("cpu",),
    ),
    OptimizationEntry(
        "resident",
        "exact",
        "data",
        "resident data",
        "Keeps all images as one uint8 tensor and takes whole batches out of it, instead of item by item.",
    ),
    OptimizationEntry(
        "no-reads",
        "exact",
        "step",
        "no reads in the step",
        "Loss and correct counts stay tensors until the epoch ends, instead of .item() in each step.",
    ),
    OptimizationEntry(
        "channels-last",
        "exact",
        "layout",
        "channels_last",
        "Weights and images in NHWC memory format, which convolution kernels prefer.",
    ),
    OptimizationEntry(
        "fused-optimizer",
        "exact",
        "optimizer",
        "fused optimizer",
        "One kernel updates all parameters, instead of several operations on each.",
    ),
    OptimizationEntry(
        "dead-taps",
        "exact",
        "model",
        "dead taps",
        "Crops kernel taps that only ever meet padding: their gradient is zero, their cost is not.",
    ),
    OptimizationEntry(
        "products",
        "exact",
        "kernels",
        "small maps as matrix products",
        "Convolutions on maps of 8x8 and less become dense matrix products, layer by layer where that is faster.",
        options=(
            OptionEntry("largest", 8, "largest side of a map that is computed as a product"),
            OptionEntry("layers", "probe", "probe (each layer is timed both ways), all, or names joined by /"),
        ),
    ),
    OptimizationEntry(
        "bf16",
        "numeric",
        "precision",
        "bfloat16",
        "Convolutions and matrix products in bfloat16 under autocast; weights stay fp32.",
        probe="bf16",
    ),
    OptimizationEntry(
        "compile",
        "numeric",
        "compile",
        "torch.compile",
        "The training step's net goes through torch.compile; evaluation and state stay with the plain module.",
        options=(
            OptionEntry("mode", "default", "default, reduce-overhead, max-autotune or max-autotune-no-cudagraphs"),
            OptionEntry("layout", "keep", "keep, or channels-last: inductor lays out convolutions so throughout"),
            OptionEntry("dynamic", False, "one graph for batches of any size, instead of one for each size"),
            OptionEntry(
                "backend", "inductor", "inductor, or another backend of torch.compile for tracking down faults"
            ),
        ),
        probe="compile",
        probe_limit_s=300.0,
        earned=True,
    ),
    OptimizationEntry(
        "large-batch",
        "statistical",
        "schedule",
        "larger batch, scaled learning rate, OneCycle",
        "Fewer, larger steps; the learning rate grows with the root of the batch and follows OneCycle.",
        options=(
            OptionEntry("size", 512, "samples a step"),
            OptionEntry("max_lr", 0.0, "peak learning rate; 0 for the baseline's times sqrt(size / baseline's batch)"),
            OptionEntry("schedule", "onecycle", "onecycle or constant"),
        ),
    ),
)
