"""Where steps went, how fast inference is, and what was trained with, as a run's record holds it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import quantiles
from typing import Annotated

from pydantic import AfterValidator, Field

from laptime.records.base import Readable


def _plain_name(name: str) -> str:
    """Records are also read from elsewhere: a folder in them must not lead out of their own."""
    if name in ("", ".", "..") or any(c in "/\\:" or not c.isprintable() for c in name):
        raise ValueError("must be the plain name of a folder beside the record, such as profile")
    return name


class Quartiles(Readable):
    """Milliseconds: a quarter of the steps was faster than `low`, half than `median`, three quarters than `high`."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Quartiles:
        """Quartiles of at least one value, with linear interpolation between those that were seen."""
        some = values if len(values) > 1 else [*values, *values]
        low, median, high = quantiles(some, n=4, method="inclusive")
        return cls(low=low, median=median, high=high)


class Breakdown(Readable):
    """The steps of one epoch.

    On a GPU the host only asks for work and runs ahead, so there the step itself is on the GPU's clock, from border to
    border, and the parts on both; on a CPU all is on the host's.

    The epoch's first step is no part of the quartiles: it waits for the first batch, which `first_batch_s` holds.

    Attributes:
        steps: how many the host's quartiles rest on.
        step_ms: where a GPU was too far behind for its clock to be read and the epoch ended with a wait for it, the
            mean step of the epoch's own seconds in all three.
        step_p99_ms: only one step in a hundred took longer; None where only the mean is known.
        compute_ms: the steps less their `data`, on the same clock: a wait that comes in bursts says nothing of the
            machine. None where only the mean step is known.
        parts_ms: on the host's clock, by part: `data` (the wait that nothing hides), `copy`, `forward`, `backward`,
            `optimizer`, `read` (where the step reads values), `rest`; `data`, `copy`, `step`, `rest` where the step is
            one graph.
        mean_ms: means of the same parts; they add up to the host's mean step.
            A part that some steps lack counts 0 in those.
        device_ms: the same borders on the device's clock, on a GPU; empty on a CPU. Steps that the device was too far
            behind with are left out.
        device_mean_ms: means of the same.
        drain_s: the epoch's last wait for a GPU, in none of the host's parts; None on a CPU.
        first_batch_s: from the epoch's start to the first batch.
        worker_start_s: starting loader workers, or telling those that live on what the epoch's order is; a part of
            `first_batch_s`. None without workers.
        fetch_cpu_share: CPU time of the training thread over wall time of its fetches, of each eighth step; None where
            it fetched nothing.
        process_cpu_ms: CPU time of the whole process (all threads, not its loader workers) by step, mean.
        workers_cpu_ms: CPU time of all its loader workers by step, mean. None without any, and where one of them began
            or ended within the epoch.
        gc_s: seconds in Python's garbage collector during the epoch.
        system_cpu_ms: of `process_cpu_ms`, the kernel's work for the process, by step of the whole epoch, mean.
        page_faults: pages of memory that the kernel mapped meanwhile, by step, mean; none of them was read from a disk.
    """

    steps: int
    step_ms: Quartiles
    step_p99_ms: float | None = None
    compute_ms: Quartiles | None = None
    parts_ms: dict[str, Quartiles] = Field(default_factory=dict)
    mean_ms: dict[str, float] = Field(default_factory=dict)
    device_ms: dict[str, Quartiles] = Field(default_factory=dict)
    device_mean_ms: dict[str, float] = Field(default_factory=dict)
    drain_s: float | None = None
    first_batch_s: float | None = None
    worker_start_s: float | None = None
    fetch_cpu_share: float | None = None
    process_cpu_ms: float | None = None
    workers_cpu_ms: float | None = None
    gc_s: float | None = None
    system_cpu_ms: float | None = None
    page_faults: float | None = None


class InferenceRecord(Readable):
    """A forward pass alone, in evaluation mode and without gradients, at one batch size.

    Attributes:
        pass_ms: of one batch, input on the device already.
        samples_per_s: at the median.
    """

    batch_size: int
    pass_ms: Quartiles
    samples_per_s: float


class LayoutRecord(Readable):
    """What the convolutions of a step take in either memory format, each timed by itself.

    Attributes:
        nchw_ms: forward and backward of all of them in NCHW.
        nhwc_ms: the same in NHWC.
        share: of their work, what was timed; the rest is taken to go alike.
    """

    nchw_ms: float
    nhwc_ms: float
    share: float


class PassRecord(Readable):
    """Forward and backward of a training step by themselves, at one batch size.

    Attributes:
        pass_ms: median, from the batch on the device to the last gradient.
    """

    batch_size: int
    pass_ms: float


class UpdateRecord(Readable):
    """An update of all parameters with clearing their gradients, timed by itself on copies.

    Attributes:
        own_ms: as the run takes it.
        fused_ms: the same optimizer with its fused kernel.
    """

    own_ms: float
    fused_ms: float


class PrecisionRecord(Readable):
    """Forward and backward of a training step by themselves, in two number formats.

    Attributes:
        own_ms: as the run takes them, in fp32.
        bf16_ms: under bf16 autocast.
    """

    own_ms: float
    bf16_ms: float


class ThreadsRecord(Readable):
    """Forward and backward of a training step by themselves, on so many threads of torch's.

    Attributes:
        pass_ms: median, of the whole batch.
    """

    count: int
    pass_ms: float


class SetupRecord(Readable):
    """What decides where a step's time goes, as it was built.

    Attributes:
        batch_size: of one rank.
        passes: of forward and backward in a step, each over a part of its batch.
        loader: `items` (one by one), `resident` (whole batches out of memory), or a workload's own.
        workers: loader processes.
        threads: of torch's, on a CPU that each operator is shared out to.
        pinned: page-locked batches, copied beside the step.
        optimizer: class name.
        optimizer_kernel: `single` (a loop over tensors), `foreach` or `fused`.
        parameter_tensors: how many tensors the optimizer updates.
        train_mib: the training images in memory, as the store holds them.
        decoding_share: of the time of an item, what reading and decoding its file takes, of a user's own image folder.
        steps: of one epoch.
        reads: whether the step reads a value from the device.
        graphed: whether the whole step is one recorded graph.
        biased_before_norm: convolutions with a bias that a following BatchNorm takes away again.
        dead_parameters: those of the taps that only ever meet padding; None where nobody looked.
        device_memory_mib: memory of the device trained on, of a CPU what the process may use, which it shares with the
            other ranks of its host; None where not known.
    """

    batch_size: int = 0
    passes: int = 1
    loader: str = ""
    workers: int = 0
    threads: int | None = None
    pinned: bool = False
    optimizer: str = ""
    optimizer_kernel: str = ""
    parameter_tensors: int = 0
    channels_last: bool = False
    compiled: bool = False
    graphed: bool = False
    reads: bool = False
    train_mib: float = 0.0
    decoding_share: float | None = None
    steps: int = 0
    biased_before_norm: int = 0
    dead_parameters: int | None = None
    device_memory_mib: float | None = None


class ProfileRecord(Readable):
    """The profiled segment that followed the counted epochs.

    Attributes:
        schedule: `wait,warmup,active,repeat`.
        steps: recorded ones; of several cycles those of the last.
        step_ms: median of the recorded steps; on a GPU, where the host runs ahead, their mean.
        ratio: that over the median of the counted steps; above 1.10 a note says so.
        folder: where its files stand: one plain name, beside the record.
        memory_mib: by category: parameters, gradients, optimizer, inputs, buffers, activations (the peak less those).
        floor_ms: the step at the machine's ceilings: sum over operations of the larger of flops and bytes time.
        floor_share: `floor_ms` over the median counted step.
        mfu: flops of the model over what the ceiling allows in a counted step; above 1 the ceiling is underestimated.
        layout: convolutions in NCHW and in NHWC; None where the net is in NHWC, compiled, or has none.
        updates: the optimizer as it is and fused; None where it is fused, has no such kernel or finds no room for
            copies.
        passes: forward and backward at two batch sizes, of which one is the run's own, and once more at another moment;
            empty where they were not timed.
        precision: forward and backward in fp32 and in bf16; None where they were not timed.
        threads: forward and backward on the run's threads and on fewer; empty where they were not timed.
        ranks_own_ms: of several ranks, by rank: its mean profiled step less the exchange that nothing hides, so what
            it takes by itself, backward and optimizer included; by its own trace. None with one rank, in older records,
            and where a rank could not tell.
        notes: what a reader must know, such as a ceiling that was exceeded.
    """

    schedule: str
    steps: int = 0
    step_ms: float | None = None
    ratio: float | None = None
    folder: Annotated[str, AfterValidator(_plain_name)] = "profile"
    memory_mib: dict[str, float] = Field(default_factory=dict)
    floor_ms: float | None = None
    floor_share: float | None = None
    mfu: float | None = None
    layout: LayoutRecord | None = None
    updates: UpdateRecord | None = None
    passes: tuple[PassRecord, ...] = ()
    precision: PrecisionRecord | None = None
    threads: tuple[ThreadsRecord, ...] = ()
    ranks_own_ms: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()
