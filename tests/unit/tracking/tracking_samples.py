"""Small records for the tracking tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from laptime.records import EpochRecord, LadderRecord, Machine, Rung, RunRecord, write_json
from laptime.spec import DataSpec, OptimizationSpec, RunSpec
from laptime.tracking.base import MetricRow, ModelFiles, RunStart, RunStatus
from laptime.tracking.publish import run_folder

DATA = DataSpec(
    asked="synthetic",
    kind="synthetic",
    digest="d" * 64,
    path="nowhere",
    classes=tuple("abcdefghij"),
    train_count=2000,
    test_count=1000,
    notice="generated images",
)


def a_record(variant: str, repeat: int = 0, epochs: int = 2, status: str = "done") -> RunRecord:
    spec = RunSpec(
        workload="cifar",
        variant=variant,
        data=DATA,
        epochs=epochs,
        repeat=repeat,
        seed=repeat,
        optimizations=() if variant.endswith("baseline") else (OptimizationSpec(name="large-batch"),),
    )
    return RunRecord(
        status=status,
        error=None if status == "done" else "it broke",
        spec=spec,
        machine=Machine(fingerprint="m1", cores=2, variables=("OMP_PROC_BIND=close", "OMP_WAIT_POLICY=passive")),
        warmup_s=1.0 + repeat,
        started_at=1000.0 + 100 * repeat,
        ended_at=1090.0 + 100 * repeat,
        epochs=tuple(
            EpochRecord(
                index=i,
                epoch_s=2.0 + i + repeat,
                samples=2000,
                samples_per_s=1000.0,
                train_loss=2.0 / (i + 1),
                train_accuracy=0.3 + 0.1 * i,
                test_loss=2.1 / (i + 1),
                test_accuracy=0.2 + 0.1 * i,
                data_wait_s=0.1,
                evaluate_s=0.2,
                peak_memory_mib=100.0,
                ended_at=1010.0 + 10 * i + 100 * repeat,
            )
            for i in range(epochs)
        ),
    )


def a_ladder(
    ladder_id: str = "20260101-000000-cifar-abcd", variants: Sequence[str] = ("cpu-baseline",)
) -> LadderRecord:
    return LadderRecord(
        id=ladder_id,
        workload="cifar",
        preset="quick",
        device="cpu",
        data=DATA,
        rungs=tuple(Rung(variant=v) for v in variants),
        epochs=2,
        repeats=1,
        commit="abc123",
        started_at=999.0,
    )


def write_run(ladder_folder: Path, record: RunRecord) -> Path:
    """Writes what the launcher and the worker leave behind."""
    assert record.spec is not None
    folder = run_folder(ladder_folder, record.spec.variant, record.spec.repeat)
    write_json(folder / "spec.json", record.spec)
    write_json(folder / "record.json", record)
    (folder / "log.txt").write_text("epoch 0\n")
    (folder / "samples.png").write_bytes(b"\x89PNG")
    (folder / "model_summary.txt").write_text("ResNet\n")
    return folder


class MemoryStore:
    """A store that can break down after some events; repeats overwrite, as MLflow's do."""

    def __init__(self, breaks_after: int | None = None) -> None:
        self.target = "memory"
        self.run_ids: dict[str, str] = {}
        self.created: list[str] = []
        self.runs: dict[str, dict[str, object]] = {}
        self.left = breaks_after
        self.models: list[str] = []

    def _event(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise ConnectionError("gone")
            self.left -= 1

    def _run(self, key: str) -> dict[str, object]:
        return self.runs[self.run_ids[key]]

    def knows(self, run_ids: Iterable[str]) -> bool:
        return not self.runs.keys().isdisjoint(run_ids)

    def start_run(self, start: RunStart) -> None:
        self._event()
        run_id = f"id-{start.key}"
        if run_id not in self.runs:
            self.created.append(start.key)
            self.runs[run_id] = {"start": start, "metrics": set(), "files": set(), "tags": {}}
        self.runs[run_id]["status"] = "RUNNING"
        self.run_ids[start.key] = run_id

    def log_metrics(self, key: str, rows: Sequence[MetricRow]) -> None:
        self._event()
        self._run(key)["metrics"] |= {(r.name, repr(r.value), r.step, r.at) for r in rows}  # type: ignore[operator]

    def set_tags(self, key: str, tags: Mapping[str, str]) -> None:
        self._event()
        self._run(key)["tags"] |= dict(tags)  # type: ignore[operator]

    def set_note(self, key: str, markdown: str) -> None:
        self._event()
        self._run(key)["note"] = markdown

    def log_artifact(self, key: str, path: Path, folder: str = "") -> None:
        self._event()
        self._run(key)["files"] |= {f"{folder}/{path.name}".strip("/")}  # type: ignore[operator]

    def log_model(self, model: ModelFiles) -> None:
        self.log_models([model])

    def log_models(self, models: Sequence[ModelFiles]) -> Mapping[str, str]:
        self._event()
        self.models += [m.key for m in models]
        return {}

    def end_run(self, key: str, status: RunStatus, ended_at: float) -> None:
        self._event()
        self._run(key).update(status=status, ended_at=ended_at)
