"""The metrics of a variant's run: curves of its processes one behind another, and figures of the run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence

from laptime.records import EpochRecord, LadderRecord, RunRecord, SystemSample
from laptime.tracking.base import MetricRow
from laptime.tracking.steps import inference_metrics, step_metrics

# Curves of quality are comparable between processes only one by one: the first repeat's are shown.
QUALITY = (
    *("train_loss", "train_accuracy", "test_loss", "test_accuracy"),
    *("test_map50", "test_map", "test_score", "test_error"),
)
# Times of all repeats stand behind one another, so that a slow process can be seen.
TIMING = ("epoch_s", "samples_per_s", "data_wait_s", "evaluate_s", "checkpoint_s", "peak_memory_mib")
# What every epoch has.
TIMED = "epoch_s"
# Figures of a run that its records hold; the others come from the comparison.
SUMMARY = ("warmup_s", "compile_s", "startup_s", "peak_memory_mib")


def curves(ladder: LadderRecord, records: Sequence[RunRecord]) -> Iterator[MetricRow]:
    """What epochs have, of each process behind the one before it."""
    for record in records:
        repeat = repeat_of(record)
        names = QUALITY + TIMING if repeat == 0 else TIMING
        for epoch in record.epochs:
            at = epoch.ended_at or record.ended_at or time.time()
            step = repeat * _epochs(ladder, record) + epoch.index
            yield from _rows(epoch, names, step, at)
            yield from (MetricRow(name, value, step, at) for name, value in step_metrics(epoch).items())


def _epochs(ladder: LadderRecord, record: RunRecord) -> int:
    return record.spec.epochs if record.spec else ladder.epochs


def _rows(epoch: EpochRecord, names: Sequence[str], step: int, at: float) -> Iterator[MetricRow]:
    for name in names:
        value = getattr(epoch, name)
        if value is not None:
            yield MetricRow(name, value, step, at)


def system_rows(ladder: LadderRecord, samples: Sequence[SystemSample]) -> Iterator[MetricRow]:
    """The machine while a process trained, as MLflow's system metrics; a step is a second of the ladder."""
    begin = ladder.started_at or 0.0
    for sample in samples:
        for name, value in sample.values.items():
            yield MetricRow(f"system/{name}", value, max(0, round(sample.at - begin)), sample.at)


def summaries(records: Sequence[RunRecord]) -> Iterator[MetricRow]:
    """Medians over the processes that came through; of an epoch over all kept epochs."""
    done = [r for r in records if r.status == "done"]
    at = next((r.ended_at for r in reversed(records) if r.ended_at), None) or time.time()
    values = {name: [v for r in done if (v := getattr(r, name)) is not None] for name in SUMMARY}
    # Where the epochs hold the peak memory, it is a curve already, and two series of one name would mix.
    if any(e.peak_memory_mib is not None for r in done for e in r.epochs):
        values.pop("peak_memory_mib")
    values["epoch_s_median"] = [s for r in done for s in r.laps]
    for name, found in values.items():
        if found:
            yield MetricRow(name, statistics.median(found), 0, at)
    yield from figure_rows(inference_metrics(done), at)


def figure_rows(figures: Mapping[str, float], at: float | None) -> list[MetricRow]:
    """Figures of a run, at step 0; `at` is in seconds since 1970, None for now."""
    when = at or time.time()
    return [MetricRow(name, value, 0, when) for name, value in figures.items()]


def repeat_of(record: RunRecord) -> int:
    """Which of its variant's processes a record is, from 0."""
    return record.spec.repeat if record.spec else 0
