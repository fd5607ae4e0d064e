"""Which records a comparison takes from folders: each once, each ladder's rounds by themselves, no trials."""

from __future__ import annotations

from pathlib import Path

import pytest
from compare_examples import data, epochs, record

from laptime.cli.compare import compare_runs
from laptime.compare.markdown import to_markdown
from laptime.errors import DataError
from laptime.records import LadderRecord, Rung, RunRecord, write_json

SECONDS = (80, 90, 100)


def runs(variant: str, faster: float = 1.0) -> list[RunRecord]:
    """Three rounds of a variant on a machine that gets slower."""
    found = [record(variant, 0, 0.6, repeat) for repeat in range(len(SECONDS))]
    times = [epochs(seconds / faster, 0.6) for seconds in SECONDS]
    return [r.model_copy(update={"epochs": e}) for r, e in zip(found, times, strict=True)]


def write(folder: Path, name: str, *records: RunRecord) -> Path:
    variants = dict.fromkeys(r.spec.variant for r in records if r.spec)
    rungs = tuple(Rung(variant=v) for v in variants)
    ladder = LadderRecord(id=name, workload="cifar", preset="full", device="cpu", data=data(), rungs=rungs)
    write_json(folder / "ladder.json", ladder)
    for run in records:
        assert run.spec is not None
        write_json(folder / f"{run.spec.variant}-{run.spec.repeat}" / "record.json", run)
    return folder


def test_ladders_in_folders_of_one_name_stay_apart(tmp_path: Path) -> None:
    before = write(tmp_path / "before" / "out", "A", *runs("cpu-baseline"))
    after = write(tmp_path / "after" / "out", "B", *runs("cpu-baseline", 2.0))
    comparison, _, _ = compare_runs([str(before), str(after)])
    rows = {r.variant: r for r in comparison.rows}
    assert set(rows) == {"cpu-baseline @ A", "cpu-baseline @ B"}
    assert rows["cpu-baseline @ B"].speedup == pytest.approx(2.0)


def test_a_folder_above_ladders_is_each_of_them(tmp_path: Path) -> None:
    one = write(tmp_path / "all" / "L1", "1", *runs("cpu-baseline"))
    two = write(tmp_path / "all" / "L2", "2", *runs("cpu-x", 2.0))
    by_name, _, _ = compare_runs([str(one), str(two)])
    above, _, _ = compare_runs([str(tmp_path / "all")])
    assert above.rows == by_name.rows
    assert above.row("cpu-x @ L2").speedup_low < 1.5  # rounds of other hours are no pairs
    assert "| `cpu-x @ L2` |" in to_markdown(above)
    alone, _, _ = compare_runs([str(one / "ladder.json")])
    assert [r.variant for r in alone.rows] == ["cpu-baseline"]
    write_json(tmp_path / "comparison.json", alone)
    with pytest.raises(DataError, match=r"comparison\.json is a file of another kind"):
        compare_runs([str(tmp_path / "comparison.json")])


def test_trials_below_count_as_little_as_in_the_ladder_itself(tmp_path: Path) -> None:
    folder = write(tmp_path / "all" / "L1", "1", *runs("cpu-baseline"), *runs("cpu-x", 2.0))
    for aside in ("trials", "verify"):
        write_json(folder / aside / "cpu-x-0" / "record.json", runs("cpu-x", 50.0)[0])
    whole, ladder, records = compare_runs([str(tmp_path / "all")])
    assert ladder is not None
    assert len(records) == 6
    assert whole.row("cpu-x").speedup == pytest.approx(2.0)


@pytest.mark.parametrize("more", ["L1", "L1/.", "L1/cpu-x-0/record.json", "L1/ladder.json", "."])
def test_what_is_named_twice_counts_once(tmp_path: Path, more: str) -> None:
    folder = write(tmp_path / "L1", "1", *runs("cpu-baseline"), *runs("cpu-x", 2.0))
    once, _, _ = compare_runs([str(folder)])
    twice, _, _ = compare_runs([str(folder), str(tmp_path / more)])
    assert twice.rows == once.rows
    assert twice.row("cpu-x").n == 3
