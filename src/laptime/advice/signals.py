"""What rules read: the numbers of a run's record, of a trace, or of both, on one scale.

A signal that is not known is None, and a rule that needs it abstains; none ever counts as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from laptime.records.breakdown import LayoutRecord, PassRecord, PrecisionRecord, ThreadsRecord, UpdateRecord
from laptime.records.trace import (
    Allocations,
    CollectiveRow,
    CompilerUse,
    CopyRow,
    KernelStats,
    OperatorRow,
    SliceRow,
    SyncRow,
    UnusedGraph,
)
from laptime.spec import OptimizationSpec


@dataclass(frozen=True)
class Signals:
    """Milliseconds are of one step and on the scale of the counted steps, wherever they come from.

    Attributes:
        subject: the variant, or the trace's file name.
        workload, variant, optimizations: empty and None where the subject is a trace of somebody's own loop.
        options: what the command of a remedy repeats (`--limit-train 2000`).
        step_ms: the counted step: the median of what it takes beside its wait for data, and the mean of that wait, so
            that both add up; of records that don't tell the two apart the median, of a trace alone the mean.
        noise: how far off the middle step may be, over it, without its wait for data where that is known; of one
            epoch its quartile range.
        load: the machine's load of the last minute before the run.
        cores: those that all ranks together may use.
        wait_ms: the data wait that nothing hides, on a GPU the device's, a mean as in `step_ms`; `copy_ms` to
            `read_ms`: the other parts of the step.
        exposed_copy_ms: of a GPU's copies, by a trace, what no kernel hides.
        wait_quartiles_ms: low, median and high of the wait; None where the noise holds the wait, too.
        fetch_cpu_share: CPU time of the training thread over wall time of its fetches.
        process_cpu_ms: CPU time of the whole process in a step, workers not included; `workers_cpu_ms`: of all of them;
            `system_cpu_ms`: of the process's, what the system's kernel took.
        page_faults: pages of memory that the kernel mapped in a step.
        epoch_s: of training; with `evaluate_s` and, shared out over the epochs, `checkpoint_s`
            beside it.
        test_samples: of one evaluation.
        reads: whether the variant's own step reads values.
        dead_share: of the parameters, those that only ever meet padding.
        passes: batch size and milliseconds of a forward pass alone.
        decoding_share: of the time of an item, what decoding its file takes; None where there is no image folder.
        batch_size: of a rank; `whole_batch`: what `large-batch` counts, the batch of all ranks together or, where each
            brings a whole one, of a rank.
        memory_mib: what a rank may use: a GPU, or its share of what the host allows.
        parts: how many of a batch go through the net one after another in a step.
        activations_mib: the peak less what does not grow with the batch.
        floor_share: the step at the machine's ceilings over the step as it is.
        ceilings_load: the machine's load of the minute before its ceilings were measured.
        layouts: its convolutions in both memory formats, each timed by itself.
        compute_major: the first number of a GPU's compute capability, as a trace has it.
        updates: the optimizer's update as it is and fused, timed by itself.
        shorter: forward and backward as they are and in bf16, timed by themselves.
        trained: forward and backward of training at two batch sizes, timed by themselves.
        threads: of torch's; `fewer_threads`: forward and backward on these and on fewer, timed by themselves.
        devices: how many worked in the trace's one process.
        trace_steps: how many steps the trace's means rest on; `left_out_ms`: one more that is none of their kind.
        compiler: how often torch.compile's compiler ran in the trace's steps.
        allocations: calls to a GPU's driver for memory.
        slices: gradients of slices, by the shape that was sliced.
        unused_graph: operators that autograd recorded for a backward which never came.
        rank_compute_ms: by rank, what it takes before it waits for others: data, copy and forward.
        rank_own_ms: by rank, what it takes less its waiting for others in the exchange, all parts of a step.
        bf16_gain, compile_gain: speed with over speed without, as a probe on this machine measured it.
        bf16_apart, compile_apart: what was on or off in the probe's steps other than in the run's; empty for nothing.
        compile_cost_s: what the compiler took then.
        bf16_rates: bf16 over fp32 in the micro-benchmarks of this machine.
        refusals: by optimization, why it can't be had here.
    """

    subject: str = ""
    workload: str = ""
    variant: str = ""
    device: Literal["cpu", "cuda"] = "cpu"
    optimizations: tuple[OptimizationSpec, ...] | None = None
    options: tuple[str, ...] = ()
    step_ms: float | None = None
    noise: float | None = None
    load: float | None = None
    cores: int | None = None
    ranks: int | None = None
    wait_ms: float | None = None
    wait_quartiles_ms: tuple[float, float, float] | None = None
    copy_ms: float | None = None
    exposed_copy_ms: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None
    read_ms: float | None = None
    fetch_cpu_share: float | None = None
    process_cpu_ms: float | None = None
    workers_cpu_ms: float | None = None
    system_cpu_ms: float | None = None
    page_faults: float | None = None
    gc_ms: float | None = None
    first_batch_s: float | None = None
    worker_start_s: float | None = None
    epoch_s: float | None = None
    steps: int | None = None
    evaluate_s: float | None = None
    checkpoint_s: float | None = None
    test_samples: int | None = None
    loader: str | None = None
    workers: int | None = None
    threads: int | None = None
    pinned: bool | None = None
    reads: bool | None = None
    optimizer_kernel: str | None = None
    parameter_tensors: int | None = None
    channels_last: bool | None = None
    compiled: bool | None = None
    graphed: bool | None = None
    biased_before_norm: int | None = None
    train_mib: float | None = None
    decoding_share: float | None = None
    batch_size: int | None = None
    parts: int | None = None
    whole_batch: int | None = None
    dead_share: float | None = None
    precision: str | None = None
    compute_major: int | None = None
    passes: tuple[tuple[int, float], ...] | None = None
    peak_mib: float | None = None
    memory_mib: float | None = None
    activations_mib: float | None = None
    floor_share: float | None = None
    ceilings_load: float | None = None
    layouts: LayoutRecord | None = None
    updates: UpdateRecord | None = None
    shorter: PrecisionRecord | None = None
    trained: tuple[PassRecord, ...] | None = None
    fewer_threads: tuple[ThreadsRecord, ...] | None = None
    trace_steps: int | None = None
    left_out_ms: float | None = None
    devices: int | None = None
    operators: tuple[OperatorRow, ...] | None = None
    kernels: KernelStats | None = None
    copies: tuple[CopyRow, ...] | None = None
    syncs: tuple[SyncRow, ...] | None = None
    collectives: tuple[CollectiveRow, ...] | None = None
    elementwise_calls: float | None = None
    elementwise_ms: float | None = None
    mixed_ms: float | None = None
    optimizer_calls: float | None = None
    slices: tuple[SliceRow, ...] | None = None
    unused_graph: UnusedGraph | None = None
    compiler: CompilerUse | None = None
    allocations: Allocations | None = None
    rank_compute_ms: tuple[float, ...] | None = None
    rank_own_ms: tuple[float, ...] | None = None
    bf16_gain: float | None = None
    bf16_rates: float | None = None
    bf16_apart: str = ""
    compile_gain: float | None = None
    compile_apart: str = ""
    compile_cost_s: float | None = None
    refusals: Mapping[str, str] = field(default_factory=dict)

    @property
    def foreign(self) -> bool:
        """Whether the subject is no run of laptime's, so that there is no variant to add to."""
        return self.optimizations is None

    def has(self, *names: str) -> bool:
        """Whether the variant has one of these optimizations."""
        return any(o.name in names for o in self.optimizations or ())
