"""Records as they come together: of several machines and workloads, of several GPUs, moved away, in percent."""

from __future__ import annotations

import pytest
from compare_examples import MACHINE, compare_records, data, ladder, record, records, spec

from laptime.compare.comparison import compare
from laptime.devices import fingerprinted
from laptime.records import EpochRecord, RunRecord


def test_records_of_several_machines_are_cautioned() -> None:
    other = MACHINE.model_copy(update={"fingerprint": "other"})
    moved = record("cpu-x", 40).model_copy(update={"machine": other})
    assert any("2 different machines" in c for c in compare_records([record("cpu-baseline", 85), moved]).cautions)
    settings = MACHINE.model_copy(update={"variables": ("OMP_WAIT_POLICY=passive", "OMP_PROC_BIND=close")})
    passive = record("cpu-x", 40).model_copy(update={"machine": fingerprinted(settings)})
    active = record("cpu-baseline", 85).model_copy(update={"machine": fingerprinted(MACHINE)})
    told = compare_records([active, passive]).cautions
    assert any("2 different settings of the environment (OMP_PROC_BIND, OMP_WAIT_POLICY)" in c for c in told)
    assert not any("machines" in c for c in told)
    told = compare_records([passive, passive.model_copy(update={"spec": spec("cpu-baseline")})]).cautions
    assert any(c.startswith("OMP_WAIT_POLICY=passive is set in the environment") for c in told)
    assert not any("different settings" in c for c in told)
    elsewhere = moved.model_copy(
        update={"spec": spec("cpu-x").model_copy(update={"workload": "mnist", "device": "cuda"})}
    )
    told = " ".join(compare_records([record("cpu-baseline", 85), elsewhere]).cautions)
    assert "2 different workloads" in told
    assert "2 different devices" in told


def test_equal_gpus_are_named_once() -> None:
    found = record("cuda-baseline", 9).model_copy(
        update={"machine": MACHINE.model_copy(update={"gpus": ("H100", "H100", "L4")})}
    )
    assert compare_records([found]).conditions.machine == "2 x H100, L4"


def test_an_accuracy_in_percent_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a share from 0 to 1, and no percentage"):
        EpochRecord(index=0, epoch_s=1.0, samples=1, test_accuracy=80.5)
    assert EpochRecord(index=0, epoch_s=1.0, samples=1, test_accuracy=1.0).test_accuracy == 1.0


def test_a_rung_that_joined_and_has_no_record_is_not_left_out_for_being_faster() -> None:
    some = [r for r in records() if r.spec is not None and r.spec.variant not in ("cpu-bf16", "cpu-threads")]
    found = compare(ladder(), some)
    assert found.row("cpu-bf16").reason == "no record of it was found"
    assert found.row("cpu-threads").reason == "not faster"


@pytest.mark.parametrize("other", [{"workload": "eurosat"}, {"limit_train": 100}])
def test_what_trains_something_else_has_no_speed_up(other: dict[str, object]) -> None:
    def elsewhere(run: RunRecord) -> RunRecord:
        assert run.spec is not None
        return run.model_copy(update={"spec": run.spec.model_copy(update=other)})

    own = [record("cpu-baseline", 85, 0.66), record("cpu-x", 40, 0.66)]
    strange = elsewhere(record("cpu-y", 1, 0.9))
    found = compare_records([*own, strange])
    row = found.row("cpu-y")
    assert row is not None
    assert (row.speedup, row.quality_diff_points, row.verdict) == (None, None, "not judged")
    assert row.epoch_s == pytest.approx(1, rel=0.1)
    assert found.headlines[0].variant == "cpu-x"
    (alone,) = compare_records([own[0], strange]).headlines
    assert alone.variant is None
    assert "trains another workload or amount of data" in alone.sentence


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"weights": "imagenet"}, "other initial weights"),
        ({"limit_test": 100}, "another number of test samples"),
        ({"data": data().model_copy(update={"digest": "d2"})}, "other data"),
        ({"weights": "imagenet", "limit_test": 100}, "another number of test samples and other initial weights"),
    ],
)
def test_what_reaches_another_quality_whatever_was_optimized_is_not_judged(other: dict[str, object], said: str) -> None:
    own = [record(name, seconds, 0.66, r) for name, seconds in (("cpu-baseline", 85), ("cpu-x", 40)) for r in range(3)]
    for run in [record("cpu-y", 30, 0.9, r) for r in range(3)]:
        assert run.spec is not None
        own.append(run.model_copy(update={"spec": run.spec.model_copy(update=other)}))
    found = compare_records(own)
    row = found.row("cpu-y")
    assert row is not None
    assert (row.verdict, row.verdict_reason) == ("not judged", f"it has {said} than the baseline")
    assert row.quality == pytest.approx(0.9)
    assert row.quality_diff_points is None
    assert row.speedup is not None
    beside = found.row("cpu-x")
    assert beside is not None
    assert beside.verdict == "kept"


@pytest.mark.parametrize(
    ("status", "ended", "said"),
    [
        ("running", None, "has not come to its end"),
        ("interrupted", 1.0, "was interrupted"),
        ("interrupted", None, "was interrupted"),
        ("running", 1.0, ""),  # as a ladder compares itself
        ("done", 1.0, ""),
    ],
)
def test_a_ladder_that_was_killed_says_that_it_is_not_whole(status: str, ended: float | None, said: str) -> None:
    mine = ladder().model_copy(update={"status": status, "ended_at": ended})
    told = [c for c in compare(mine, records()).cautions if "--resume" in c]
    assert len(told) == bool(said)
    assert all(said in c for c in told)
