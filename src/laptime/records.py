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
        """The ceiling in GFLOP/s for a precision (`fp32`, `bf16` or `fp16`); matrix units run both short ones alike."""
        rates = (
            (self.gemm_bf16_gflops, self.conv_bf16_gflops)
            if precision in ("bf16", "fp16")
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
        image_side: height of the training images where it grows with the epochs; None where all are alike.
        ranks_s: seconds of each rank where there are several; the largest is `epoch_s`.
        skew_s: the slowest rank's seconds less the fastest's.
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
    image_side: int | None = None


class CheckRecord(Readable):
    """One step of the variant beside one step of the baseline, from the same weights on the same batch.

    Attributes:
        loss_error: |loss - baseline| / |baseline|.
        gradient_error: ||g - g0|| / ||g0|| over all parameters, in the baseline's layout.
        layer: where the gradient of one layer differs most from the baseline's in the variant's own precision, with
            BatchNorm's statistics held still; None where the precision is all that the variant changes.
        layer_error: ||g - g0|| / ||g0|| of that layer.
    """

    klass: str
    loss_baseline: float
    loss_variant: float
    loss_error: float
    loss_tolerance: float
    gradient_error: float
    gradient_tolerance: float
    layer: str | None = None
    layer_error: float | None = None
    layer_tolerance: float | None = None
    passed: bool

    def findings(self) -> str:
        """Both errors beside what is allowed, in words; each report says the same."""
        text = (
            f"loss by {self.loss_error:.2g} (tolerance {self.loss_tolerance:.2g}), "
            f"gradients by {self.gradient_error:.2g} (tolerance {self.gradient_tolerance:.2g})"
        )
        if self.layer is None or self.layer_error is None or self.layer_tolerance is None:
            return text
        return (
            f"{text}, and from the baseline in its own precision by {self.layer_error:.2g} in {self.layer} "
            f"(tolerance {self.layer_tolerance:.2g})"
        )


class RunRecord(Readable):
    """What one process of one variant produced.

    Attributes:
        precision: `fp32`, `bf16` or `fp16`: which ceiling the throughput is compared with.
        flops_per_sample: floating point operations of one training step by sample, forward and backward.
        startup_s: process start to the first warm-up step (imports, data, model, check).
        settled: the optimizations with what the run chose by timing written out, such as which layers became products.
        removed_parameters: those that dead taps took out.
        ranks: processes that trained together, 1 for an ordinary run.
        cautions: what was seen beside the run that puts its times in doubt, such as another process on its GPU.
    """

    schema_: str = Field(default=RECORD_SCHEMA, alias="schema")
    status: Status
    error: str | None = None
    spec: RunSpec | None = None
    machine: Machine = Machine()
    epochs: tuple[EpochRecord, ...] = ()
    check: CheckRecord | None = None
    settled: tuple[OptimizationSpec, ...] = ()
    ranks: int = 1
    precision: str = "fp32"
    parameters: int | None = None
    removed_parameters: int = 0
    model_mib: float | None = None
    flops_per_sample: float | None = None
    startup_s: float | None = None
    warmup_s: float | None = None
    compile_s: float | None = None
    peak_memory_mib: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    commit: str | None = None
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    @property
    def kept(self) -> tuple[EpochRecord, ...]:
        return tuple(e for e in self.epochs if e.kept)

    @property
    def laps(self) -> tuple[float, ...]:
        """Seconds of the kept epochs; their mean alone where they differ by design, since images grow.

        A fastest or a middle one of those would be an epoch of small images or of large ones.
        """
        seconds = tuple(e.epoch_s for e in self.kept)
        return (sum(seconds) / len(seconds),) if len({e.image_side for e in self.kept}) > 1 else seconds


class ProbeRecord(Readable):
    """What a few seconds of probing said about this machine: which numeric rungs may enter.

    Attributes:
        gains: speed of an optimization over not having it, on small representative shapes.
        lacking: what the device lacks for an optimization, in words.
    """

    machine: Machine = Machine()
    gains: dict[str, float] = Field(default_factory=dict)
    lacking: dict[str, str] = Field(default_factory=dict)
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
