"""What came out of one process of one variant (field by field: docs/record.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from laptime.records.base import Moment, Readable, Share
from laptime.records.breakdown import Breakdown, InferenceRecord, ProfileRecord, SetupRecord
from laptime.records.check import CheckRecord
from laptime.records.machine import Machine
from laptime.spec import OptimizationSpec, RunSpec

RECORD_SCHEMA = "laptime.record/1"

# What the error of a training says whose loss is no number any more.
DIVERGED = "the training loss became"

Status = Literal["done", "failed", "wrong", "left_out"]


class EpochRecord(Readable):
    """One counted epoch.

    Attributes:
        index: from 0, counted epochs only.
        kept: whether it counts in the statistics.
        epoch_s: seconds of training alone; evaluation, checkpoints and tracking stand outside.
        parts_s: seconds of the epoch by part: data, copy, forward, backward, optimizer, read, rest.
        train_s_so_far: training seconds from the start of the first counted epoch to the end of this one.
        train_accuracy, test_accuracy: shares from 0 to 1.
        test_map50, test_map: a detector's mean average precision at an overlap of 0.5, and the mean over 0.5 to 0.95.
        test_score, test_error: what an evaluation of the user's own gave, of which more or less is better.
        image_side: height of the training images where it grows with the epochs; None where all are alike.
        trained_share: share of each batch that trained its steps, where that changes with the epochs.
        ranks_s: seconds of each rank where there are several; the largest is `epoch_s`.
        skew_s: the slowest rank's seconds less the fastest's.
        compilations: how often something was compiled within it; such an epoch is not kept.
        breakdown: its steps by part; of the first rank where there are several, of the others in `ranks_breakdown`.
        ranks: processes that trained it; None where it is as many as the run's.
        resumed: whether it is the first one after a restart from a checkpoint.
        interrupted: whether it is the last one before such a restart.
        checkpoint_s: writing the checkpoint after it, outside `epoch_s`; None without one.
    """

    index: int
    kept: bool = True
    epoch_s: float
    ranks_s: tuple[float, ...] = ()
    skew_s: float | None = None
    samples: int
    steps: int = 0
    samples_per_s: float | None = None
    train_loss: float | None = None
    train_accuracy: Share | None = None
    test_loss: float | None = None
    test_accuracy: Share | None = None
    test_map50: Share | None = None
    test_map: Share | None = None
    test_score: float | None = None
    test_error: float | None = None
    data_wait_s: float | None = None
    evaluate_s: float | None = None
    peak_memory_mib: float | None = None
    step_ms_median: float | None = None
    train_s_so_far: float | None = None
    parts_s: dict[str, float] = Field(default_factory=dict)
    ended_at: Moment | None = None
    image_side: int | None = None
    trained_share: float | None = None
    compilations: int = 0
    breakdown: Breakdown | None = None
    ranks_breakdown: tuple[Breakdown, ...] = ()
    ranks: int | None = None
    resumed: bool = False
    interrupted: bool = False
    checkpoint_s: float | None = None

    @property
    def middle_step_ms(self) -> float | None:
        """The median step, on a GPU by the device's clock where there is a breakdown."""
        return self.breakdown.step_ms.median if self.breakdown else self.step_ms_median


class CompileRecord(Readable):
    """What the compiler did from the first warm-up step to the end of the last counted epoch.

    Attributes:
        graphs: graphs that were compiled, each with its backward.
        graph_breaks: places where a graph ended because the compiler could not follow.
        recompiles: graphs that an earlier one of the same code did not fit; the epoch's last, smaller batch makes one.
        cache_hits: graphs that came from the compiler's cache on disk, which makes `compile_s` smaller.
    """

    graphs: int = 0
    graph_breaks: int = 0
    recompiles: int = 0
    cache_hits: int = 0


class StartRecord(Readable):
    """One start of the processes of a run that has checkpoints.

    Attributes:
        epoch: the first epoch that it trained.
        ranks, nodes: processes, and the machines that they stood on.
        started_at: seconds since 1970.
        torch, cpu, cores: of the first rank's process; empty and 0 in a start of a version that did not note them.
    """

    epoch: int
    ranks: int
    nodes: int = 1
    started_at: Moment
    torch: str = ""
    cpu: str = ""
    cores: int = 0

    def differences(self, now: StartRecord) -> list[str]:
        """What decides how sums are rounded and is another in a later start, in words."""
        pairs = [(name, getattr(self, name), getattr(now, name)) for name in ("torch", "cpu", "cores")]
        return [f"{name} was {then} and is {here}" for name, then, here in pairs if then and then != here]


class RunRecord(Readable):
    """What one process of one variant produced.

    Attributes:
        before: of a training of the user's own, what an evaluation gave before the first step, by the quality's name:
            of the first process of the baseline, and empty in all others.
        precision: `fp32`, `bf16` or `fp16`: which ceiling the throughput is compared with.
        flops_per_sample: floating point operations of one training step by sample, forward and backward.
        startup_s: process start to the first warm-up step (imports, data, model, check).
        settled: the optimizations with what the run chose by timing written out, such as which layers became products.
        removed_parameters: those that dead taps took out.
        ranks: processes that trained together, 1 for an ordinary run.
        cautions: what was seen beside the run that puts its times in doubt, such as another process on its GPU.
        compile_s: seconds inside the compiler, for both shapes of batches, forward and backward; None without one.
        compilation: what the compiler did; None without one.
        syncs_per_step: how often a step makes the host wait for its GPU; None on a CPU.
        setup: what decides where a step's time goes, as it was built.
        inference: a forward pass alone, by batch size.
        profile: the profiled segment after the counted epochs; None without one.
        checkpoint_s: writing the model after the last epoch.
        starts: of a run with checkpoints, each time its processes began, the first with them.
        beside: the variant with whose epochs this run's took turns; None where it trained by itself.
    """

    schema_: str = Field(default=RECORD_SCHEMA, alias="schema")
    status: Status
    error: str | None = None
    spec: RunSpec | None = None
    machine: Machine = Machine()
    epochs: tuple[EpochRecord, ...] = ()
    before: dict[str, float] = Field(default_factory=dict)
    check: CheckRecord | None = None
    settled: tuple[OptimizationSpec, ...] = ()
    ranks: Annotated[int, Field(ge=1)] = 1
    precision: str = "fp32"
    parameters: int | None = None
    removed_parameters: int = 0
    model_mib: float | None = None
    flops_per_sample: float | None = None
    startup_s: float | None = None
    warmup_s: float | None = None
    compile_s: float | None = None
    compilation: CompileRecord | None = None
    peak_memory_mib: float | None = None
    setup: SetupRecord | None = None
    syncs_per_step: int | None = None
    inference: tuple[InferenceRecord, ...] = ()
    profile: ProfileRecord | None = None
    checkpoint_s: float | None = None
    started_at: Moment | None = None
    ended_at: Moment | None = None
    commit: str | None = None
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    starts: tuple[StartRecord, ...] = ()
    beside: str | None = None

    @property
    def restarts(self) -> int:
        """How often the run went on after a break."""
        return max(0, len(self.starts) - 1)

    @property
    def kept(self) -> tuple[EpochRecord, ...]:
        return tuple(e for e in self.epochs if e.kept)

    @property
    def laps(self) -> tuple[float, ...]:
        """Seconds of the kept epochs; their mean alone where they differ by design: by image or by what trains.

        A fastest or a middle one of those would be an epoch of one kind.
        """
        seconds = tuple(e.epoch_s for e in self.kept)
        kinds = {(e.image_side, e.trained_share) for e in self.kept}
        return (sum(seconds) / len(seconds),) if len(kinds) > 1 else seconds
