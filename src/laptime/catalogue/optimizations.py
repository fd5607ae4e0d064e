"""The optimizations: name, class, stage, title, explanation, needs and options of each."""

from __future__ import annotations

from laptime.entries import OptimizationEntry, OptionEntry

# What large-batch takes where no size is given: two cores are busy at 512; small steps use a fraction of a GPU.
LARGE_BATCHES = {"cpu": 512, "cuda": 2048}

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
        excludes=("workers", "pinned"),
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
        "large-batch",
        "statistical",
        "schedule",
        "larger batch, scaled learning rate, OneCycle",
        "Fewer, larger steps; the learning rate grows with the root of the batch and follows OneCycle.",
        options=(
            OptionEntry("size", 0, "samples a step; 0 for 512 on a CPU, 2048 on a GPU"),
            OptionEntry("max_lr", 0.0, "peak learning rate; 0 for the baseline's times sqrt(size / baseline's batch)"),
            OptionEntry("schedule", "onecycle", "onecycle or constant"),
        ),
    ),
    OptimizationEntry(
        "workers",
        "exact",
        "data",
        "loader workers",
        "Processes that fetch and normalize items beside the training; on few cores they take its time instead.",
        options=(OptionEntry("count", -1, "processes; -1 to try 0, 2, 4 and 8, up to the cores that are allowed"),),
    ),
    OptimizationEntry(
        "pinned",
        "exact",
        "data",
        "pinned memory, copies beside the step",
        "Page-locked batches that are copied on a stream of their own; the next one arrives while the step runs.",
        devices=("cuda",),
    ),
    OptimizationEntry(
        "cudnn-benchmark",
        "exact",
        "process",
        "cuDNN's own timing",
        "cuDNN times its kernels for each new shape and keeps the fastest; the last, smaller batch is timed too.",
        devices=("cuda",),
    ),
    OptimizationEntry(
        "tf32",
        "numeric",
        "process",
        "TensorFloat-32",
        "Products of fp32 tensors with 10 bits of mantissa; convolutions do so by default, so little is left to gain.",
        devices=("cuda",),
    ),
    OptimizationEntry(
        "fp16",
        "numeric",
        "precision",
        "float16 with loss scaling",
        "Convolutions and products in float16 under autocast, the loss scaled without reading it, a fused optimizer.",
        devices=("cuda",),
        excludes=("bf16",),
    ),
    OptimizationEntry(
        "graph",
        "exact",
        "step",
        "whole step as one CUDA graph",
        "Forward, backward and optimizer are launched at once from a recording; the last, smaller batch is not.",
        devices=("cuda",),
    ),
    OptimizationEntry(
        "evaluate-on-cpu",
        "exact",
        "process",
        "evaluation on the CPU",
        "Evaluates on the CPU in the baseline's batch, to show what the device saves there; no epoch is faster.",
        devices=("cuda",),
        only_shown=True,
    ),
)
