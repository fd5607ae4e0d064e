"""What a comparison holds of the inside of a step: its parts, inference, the machine's ceiling, operators."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from laptime.records import OperatorRow, Quartiles, Readable


class RankStep(Readable):
    """One rank of a variant on several: medians over the kept epochs of all processes.

    Attributes:
        data_ms: the exposed wait for data in a step; None where it was not marked.
        epoch_s: seconds of an epoch on this rank alone; None where not recorded.
    """

    rank: int
    step_ms: float
    data_ms: float | None = None
    epoch_s: float | None = None


class StepRow(Readable):
    """Where a step of one variant goes: medians over the kept epochs of all processes.

    Attributes:
        batch_size: samples of a step on one rank; None where the record does not say.
        steps, epochs: how many steps and kept epochs the figures rest on.
        step_ms: medians of the epochs' quartiles.
        parts_ms: median time by part, see `laptime.records.Breakdown`; medians don't add up to the median step.
        shares: of the mean step by part, 1 in sum.
        device_ms: the same borders on the device's clock, on a GPU.
        drain_s: on a GPU, the epoch's last wait for it, in no part of a step.
        evaluate_s, checkpoint_s: beside the counted time.
        gc_s: seconds in Python's garbage collector in an epoch.
        skew_s: the slowest rank's epoch less the fastest's; None on one rank.
        skew_share: the same over the epoch.
    """

    variant: str
    batch_size: int | None = None
    steps: int = 0
    epochs: int = 0
    step_ms: Quartiles
    parts_ms: dict[str, float] = Field(default_factory=dict)
    shares: dict[str, float] = Field(default_factory=dict)
    device_ms: dict[str, float] = Field(default_factory=dict)
    first_batch_s: float | None = None
    worker_start_s: float | None = None
    drain_s: float | None = None
    evaluate_s: float | None = None
    checkpoint_s: float | None = None
    gc_s: float | None = None
    skew_s: float | None = None
    skew_share: float | None = None
    ranks: tuple[RankStep, ...] = ()


class InferenceRow(Readable):
    """A forward pass alone of one variant at one batch size: medians over processes."""

    variant: str
    batch_size: int
    pass_ms: Quartiles
    samples_per_s: float


class RoofRow(Readable):
    """How far a step is from what the machine's ceilings allow: medians over the profiled processes.

    Attributes:
        step_ms: the counted step.
        floor_ms, floor_share, mfu: see `laptime.records.ProfileRecord`.
        profiler_ratio: the profiled step over the counted one.
        memory_mib: by category, of the process that held most.
    """

    variant: str
    step_ms: float | None = None
    floor_ms: float | None = None
    floor_share: float | None = None
    mfu: float | None = None
    profiler_ratio: float | None = None
    schedule: str = ""
    memory_mib: dict[str, float] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


class OperatorTable(Readable):
    """The operators of one variant that take most of a profiled step.

    Attributes:
        role: why the table stands open; empty for the others.
        device: on `cuda`, operators are ranked by the device's time and by the host's elsewhere.
        steps, step_ms: recorded steps and their mean.
        rows: by self time, chains folded into one row.
        left: operators that are not shown, and `left_ms` their self time together.
    """

    variant: str
    role: Literal["baseline", "fastest", ""] = ""
    device: Literal["cpu", "cuda"] = "cpu"
    steps: int = 0
    step_ms: float
    rows: tuple[OperatorRow, ...] = ()
    left: int = 0
    left_ms: float = 0.0
