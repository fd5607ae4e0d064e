"""Options that several optimizations have."""

from __future__ import annotations

from typing import Literal

from laptime.catalogue.entries import CountOrZero, OptionEntry, Shift

# What all exchanges of gradients share. Local statistics are the default, as in the field: synchronized ones cost two
# all-reduces a layer.
RANKS = (
    OptionEntry("ranks", 0, "processes; 0 for all GPUs, on a CPU for all cores that this process may use", CountOrZero),
    OptionEntry(
        "batchnorm",
        "local",
        "local (each rank's part of the batch) or sync (all of it: exact)",
        Literal["local", "sync"],
    ),
    OptionEntry(
        "scaling",
        "strong",
        "strong (the batch is shared out) or weak (each rank has a whole one)",
        Literal["strong", "weak"],
    ),
    OptionEntry("reduce", "fp32", "fp32 or bf16: how gradients travel", Literal["fp32", "bf16"]),
)
RANKS_SHIFTS = (
    Shift("batchnorm", "local", "statistical", checked_as="sync"),
    Shift("scaling", "weak", "statistical"),
    Shift("reduce", "bf16", "numeric"),
)

# What both ways to compile share.
COMPILER = (
    OptionEntry(
        "layout",
        "keep",
        "keep, or channels-last: inductor lays out convolutions so throughout",
        Literal["keep", "channels-last"],
    ),
    OptionEntry("dynamic", False, "one graph for batches of any size, instead of one for each size"),
    OptionEntry("backend", "inductor", "inductor, or another backend of torch.compile for tracking down faults"),
)
