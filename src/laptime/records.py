"""What came out of a run, as data: neither torch nor MLflow is needed to read it (field by field: docs/record.md)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from laptime.errors import DataError
from laptime.spec import DataSpec, OptimizationSpec, RunSpec, Versioned, read_versioned

RECORD_SCHEMA = "laptime.record/1"
LADDER_SCHEMA = "laptime.ladder/1"
# The folder of a ladder's trial turns, beside those of its variants.
TRIALS = "trials"

Status = Literal["done", "failed", "wrong", "left_out"]


class Readable(BaseModel):
    """Base of what is read back: unknown fields, of a newer version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Ceilings(Readable):
    """The best rates that this machine reached in micro-benchmarks; None where not measured."""

    gemm_fp32_gflops: float | None = None
    gemm_bf16_gflops: float | None = None
    conv_fp32_gflops: float | None = None
    conv_bf16_gflops: float | None = None
    copy_gb_s: float | None = None

    def best(self, precision: str) -> float | None:
        """The ceiling in GFLOP/s for a precision (`fp32` or `bf16`)."""
        rates = (
            (self.gemm_bf16_gflops, self.conv_bf16_gflops)
            if precision == "bf16"
            else (self.gemm_fp32_gflops, self.conv_fp32_gflops)
        )
        known = [r for r in rates if r is not None]
        return max(known) if known else None


class Machine(Readable):
    """What was trained on.

    Attributes:
        fingerprint: digest of the fields below that decide speed, never of a host name.
        cores: cores allowed by affinity and quota.
    """

    fingerprint: str = ""
    cpu: str = ""
    cores: int = 0
    memory_gib: int = 0
    gpus: tuple[str, ...] = ()
    os: str = ""
    python: str = ""
    torch: str = ""
    torchvision: str = ""
    cuda: str | None = None
    instruction_sets: tuple[str, ...] = ()
    ceilings: Ceilings = Ceilings()
    load_before: float | None = None


class EpochRecord(Readable):
    """One counted epoch.

    Attributes:
        index: from 0, counted epochs only.
        kept: whether it counts in the statistics.
        epoch_s: seconds of training alone; evaluation, checkpoints and tracking stand outside.
        parts_s: seconds of the epoch by part: data, forward, backward, optimizer, read, rest.
        train_s_so_far: training seconds from the start of the first counted epoch to the end of this one.
        train_accuracy, test_accuracy: shares from 0 to 1.
        compilations: how often something was compiled within it; such an epoch is not kept.
    """

    index: int
    kept: bool = True
    epoch_s: float
    samples: int
    steps: int = 0
    samples_per_s: float | None = None
    train_loss: float | None = None
    train_accuracy: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    data_wait_s: float | None = None
    evaluate_s: float | None = None
    peak_memory_mib: float | None = None
    step_ms_median: float | None = None
    train_s_so_far: float | None = None
    parts_s: dict[str, float] = Field(default_factory=dict)
    ended_at: float | None = None
    compilations: int = 0


class CheckRecord(Readable):
    """One step of the variant beside one step of the baseline, from the same weights on the same batch.

    Attributes:
        loss_error: |loss - baseline| / |baseline|.
        gradient_error: ||g - g0|| / ||g0|| over all parameters, in the baseline's layout.
    """

    klass: str
    loss_baseline: float
    loss_variant: float
    loss_error: float
    loss_tolerance: float
    gradient_error: float
    gradient_tolerance: float
    passed: bool


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


class RunRecord(Readable):
    """What one process of one variant produced.

    Attributes:
        precision: `fp32` or `bf16`: which ceiling the throughput is compared with.
        flops_per_sample: floating point operations of one training step by sample, forward and backward.
        startup_s: process start to the first warm-up step (imports, data, model, check).
        settled: the optimizations with what the run chose by timing written out, such as which layers became products.
        removed_parameters: those that dead taps took out.
        compile_s: seconds inside the compiler, for both shapes of batches, forward and backward; None without one.
        compilation: what the compiler did; None without one.
    """

    schema_: str = Field(default=RECORD_SCHEMA, alias="schema")
    status: Status
    error: str | None = None
    spec: RunSpec | None = None
    machine: Machine = Machine()
    epochs: tuple[EpochRecord, ...] = ()
    check: CheckRecord | None = None
    settled: tuple[OptimizationSpec, ...] = ()
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
    started_at: float | None = None
    ended_at: float | None = None
    commit: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[EpochRecord, ...]:
        return tuple(e for e in self.epochs if e.kept)


class ProbeRecord(Readable):
    """What a few seconds of probing said about this machine: which numeric rungs may enter.

    Attributes:
        gains: speed of an optimization over not having it, by name at the baseline's batch and by `name@batch` at the
            ladder's large one.
        costs_s: seconds that it took to get there (compilation), by the same names.
        refusals: why one can't be had here at all, or why its probe came to no end.
    """

    machine: Machine = Machine()
    gains: dict[str, float] = Field(default_factory=dict)
    costs_s: dict[str, float] = Field(default_factory=dict)
    refusals: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0


class Rung(Readable):
    """One variant of a ladder, as it was decided.

    Attributes:
        optimizations: the list that the variant's name stands for.
        classes: the classes of its optimizations, without doubles.
        on: the variant that it is one thing more than; None for the baseline.
        adds: the optimization that it adds to `on`; None for the baseline and for `optimized`.
        joined: whether the added optimization stayed in the best so far; None where that was not the question.
        reason: why it stayed or not, in words.
    """

    variant: str
    optimizations: tuple[OptimizationSpec, ...] = ()
    classes: tuple[str, ...] = ()
    on: str | None = None
    adds: str | None = None
    joined: bool | None = None
    reason: str = ""


class LeftOut(Readable):
    """A variant that was not run, and why."""

    variant: str
    reason: str


class Dropped(Readable):
    """An optimization that left the optimized variant, since that is faster without it.

    Attributes:
        with_s, without_s: fastest epoch of both sides in the first round and in the trial.
    """

    name: str
    with_s: float
    without_s: float
    reason: str


class LadderRecord(Readable):
    """A ladder: what was planned and decided; the runs' records stand in folders beside it.

    Attributes:
        id: unique, sortable by time.
        quality: name of the quality metric (`accuracy`), as `test_<quality>` in the epochs.
        quality_floor: below it quality is not judged.
        real_data: whether the data is what it claims to be; parity is never claimed on a stand-in.
    """

    schema_: str = Field(default=LADDER_SCHEMA, alias="schema")
    id: str
    workload: str
    preset: str
    device: str
    data: DataSpec
    probe: ProbeRecord = ProbeRecord()
    rungs: tuple[Rung, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    epochs: int = 1
    repeats: int = 1
    limit_train: int | None = None
    limit_test: int | None = None
    seed: int = 0
    quality: str = "accuracy"
    quality_floor: float = 0.0
    commit: str | None = None
    started_at: float | None = None
    ended_at: float | None = None
    status: Literal["running", "done", "failed", "interrupted"] = "running"

    @property
    def real_data(self) -> bool:
        return self.data.kind != "synthetic"


def write_json(path: Path, model: BaseModel | dict[str, Any]) -> None:
    """Writes beside and renames, so that a reader never sees half a file."""
    body = model.model_dump(mode="json", by_alias=True) if isinstance(model, BaseModel) else model
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


RECORD_FILE = Versioned("record", RECORD_SCHEMA, "run the variant again with this version", DataError)
LADDER_FILE = Versioned("ladder", LADDER_SCHEMA, "run the ladder again with this version", DataError)


def read_record(path: Path) -> RunRecord:
    """Reads a record that a worker, or any training loop, wrote; raises DataError, see `read_versioned`."""
    return read_versioned(path, RunRecord, RECORD_FILE)


def read_ladder(path: Path) -> LadderRecord:
    """Reads a ladder; raises DataError, see `read_versioned`."""
    return read_versioned(path, LadderRecord, LADDER_FILE)
