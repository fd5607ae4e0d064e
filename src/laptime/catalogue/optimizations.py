"""The optimizations: name, class, stage, title, explanation, needs and options of each."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from laptime.catalogue.entries import ANYWHERE, Count, CountOrAny, CountOrZero, OptimizationEntry, OptionEntry
from laptime.catalogue.shared_options import COMPILER, RANKS, RANKS_SHIFTS
from laptime.catalogue.trajectory import TRAJECTORY

_DOUBLES = tuple(2**power for power in range(8))

OPTIMIZATIONS: tuple[OptimizationEntry, ...] = (
    OptimizationEntry(
        "threads",
        "exact",
        "process",
        "threads and number modes",
        "Sets the threads to the cores that affinity and quota allow, and flushes denormal numbers to zero.",
        devices=("cpu",),
        options=(OptionEntry("count", 0, "threads; 0 for the cores that this process may use", CountOrZero, _DOUBLES),),
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
        "parsed-once",
        "exact",
        "data",
        "boxes parsed once",
        "Reads the CSV of boxes when the data set is made, instead of once for each item.",
        workload="detection",
    ),
    OptimizationEntry(
        "fixed-shapes",
        "statistical",
        "data",
        "photographs of one size",
        "All images become one size, whatever their proportions, so that a step takes several without padding.",
        options=(
            OptionEntry("batch", 4, "images a step", Count, _DOUBLES[:6]),
            OptionEntry("aspect", 1.3333, "width over height", Annotated[float, Field(ge=0.2, le=5)]),
        ),
        workload="detection",
        earned=ANYWHERE,
    ),
    OptimizationEntry(
        "decoded",
        "exact",
        "data",
        "images decoded once",
        "Keeps the decoded images of your own folder in memory; transforms, random or not, run on each item still.",
        earned=ANYWHERE,
    ),
    OptimizationEntry(
        "resident",
        "exact",
        "data",
        "resident data",
        "Keeps all images in memory, those of one size as one tensor, and takes whole batches out of it, "
        "instead of item by item.",
        excludes=("decoded", "workers", "pinned"),
    ),
    OptimizationEntry(
        "whole-batch",
        "exact",
        "schedule",
        "whole batches at once",
        "Forward and backward once for a batch of your own, not once for each micro batch: more memory, fewer passes.",
        earned=ANYWHERE,  # where memory does not suffice for it, nothing else may fail
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
        "folded-norms",
        "exact",
        "model",
        "frozen norms in the convolutions",
        "Frozen BatchNorm scales the weights before it instead of the maps behind them, trained or not.",
        workload="detection",
    ),
    OptimizationEntry(
        "gathered-rois",
        "exact",
        "model",
        "regions as sums of rows",
        "Pools a detector's regions as weighted sums of pixels' rows on all cores; torchvision's kernel uses one.",
        devices=("cpu",),
        workload="detection",
    ),
    OptimizationEntry(
        "products",
        "exact",
        "kernels",
        "small maps as matrix products",
        "Convolutions on maps of 8x8 and less become matrix products (depthwise: the weights' gradient), by layer.",
        options=(
            OptionEntry("largest", 8, "largest side of a map that is computed as a product", Count, (4, 8, 16)),
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
        probe_with="products",  # of depthwise convolutions, whose own kernels take longer in bf16 than in fp32
    ),
    OptimizationEntry(
        "ddp",
        "exact",
        "parallel",
        "DistributedDataParallel",
        "Several ranks train on parts of each batch; gradients are averaged in buckets while the backward pass runs.",
        options=(
            *RANKS,
            OptionEntry("tuned", False, "static graph, gradients as views of buckets, no buffers sent in the step"),
            OptionEntry("bucket_mb", 0, "size of a bucket in MiB where tuned; 0 to try some on all ranks", CountOrZero),
        ),
        excludes=("flat-reduce", "dp", "graph"),
        shifts=RANKS_SHIFTS,
    ),
    OptimizationEntry(
        "flat-reduce",
        "exact",
        "parallel",
        "one flat all-reduce",
        "Several ranks without a wrapper: all gradients are averaged as one tensor between backward and optimizer.",
        options=RANKS,
        excludes=("ddp", "dp"),
        shifts=RANKS_SHIFTS,
    ),
    OptimizationEntry(
        "dp",
        "statistical",
        "parallel",
        "DataParallel",
        "One process copies the net to all GPUs in each step: the slow ancestor of DDP, with BatchNorm by each part.",
        devices=("cuda",),
        excludes=("ddp", "flat-reduce", "graph", "compile", "compile-graphed"),
        only_shown=True,
    ),
    OptimizationEntry(
        "compile",
        "numeric",
        "compile",
        "torch.compile",
        "The training step's net goes through torch.compile; evaluation and state stay with the plain module.",
        options=(
            OptionEntry(
                "mode",
                "default",
                "default or max-autotune-no-cudagraphs",
                Literal["default", "max-autotune-no-cudagraphs"],
            ),
            *COMPILER,
        ),
        # Inductor takes a product apart into its many small operations: nothing was compiled after five minutes.
        excludes=("products",),
        probe="compile",
        probe_limit_s=600.0,
        earned=ANYWHERE,
    ),
    OptimizationEntry(
        "compile-graphed",
        "numeric",
        "compile",
        "torch.compile with CUDA graphs",
        "torch.compile whose graphs are launched at once; the optimizer stays outside, so no graph of the whole step.",
        devices=("cuda",),
        options=(
            OptionEntry(
                "mode", "reduce-overhead", "reduce-overhead or max-autotune", Literal["reduce-overhead", "max-autotune"]
            ),
            *COMPILER,
        ),
        excludes=("compile", "graph", "flat-reduce", "products"),
        earned=ANYWHERE,
    ),
    OptimizationEntry(
        "workers",
        "exact",
        "data",
        "loader workers",
        "Processes that fetch and normalize items beside the training; on few cores they take its time instead.",
        options=(
            OptionEntry(
                "count",
                -1,
                "processes; -1 to try 0, 2, 4, 8 as cores allow, and what the baseline has",
                CountOrAny,
            ),
        ),
        earned=("cpu",),  # there they take the time of what trains
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
    OptimizationEntry(
        "lightning",
        "exact",
        "step",
        "Lightning's Trainer",
        "The baseline under Lightning's Trainer, which fetches, steps and logs, to show what moving over costs.",
        only_shown=True,
        alone=True,
        extra="lightning",
    ),
    *TRAJECTORY,
)
