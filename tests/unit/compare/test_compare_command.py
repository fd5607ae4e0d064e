from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from compare_examples import ladder, record, records
from typer.testing import CliRunner

from laptime.cli.compare import compare as command
from laptime.cli.compare import compare_runs
from laptime.compare.load import load
from laptime.errors import DataError, LaptimeError, UsageError
from laptime.records import write_json

app = typer.Typer()
app.command()(command)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_json(tmp_path / "one" / "ladder.json", ladder())
    for run in records():
        assert run.spec is not None
        write_json(tmp_path / "one" / f"{run.spec.variant}-{run.spec.repeat}" / "record.json", run)
    return tmp_path / "one"


def test_a_ladder_is_loaded_and_printed(folder: Path, tmp_path: Path) -> None:
    found, runs = load(folder)
    assert found == ladder()
    assert len(runs) == len(records())
    result = CliRunner().invoke(app, [str(folder), "--out", str(tmp_path / "report")])
    assert result.exit_code == 0
    assert "6.80x" in result.stdout
    assert (tmp_path / "report" / "comparison.html").is_file()


def test_json_for_machines(folder: Path) -> None:
    result = CliRunner().invoke(app, [str(folder), "--json"])
    assert json.loads(result.stdout)["schema"] == "laptime.comparison/1"


def test_loose_records_of_one_variant_belong_together(tmp_path: Path) -> None:
    paths = []
    for i, (variant, seconds) in enumerate([("cpu-baseline", 85.0), ("cpu-x", 40.0), ("cpu-x", 41.0)]):
        paths.append(tmp_path / str(i) / "record.json")
        write_json(paths[-1], record(variant, seconds))
    comparison, _, _ = compare_runs([str(p) for p in paths])
    assert {r.variant: r.n for r in comparison.rows} == {"cpu-baseline": 1, "cpu-x": 2}


def test_two_ladders_stay_apart_and_their_rounds_are_not_paired(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "two"
    write_json(other / "ladder.json", ladder().model_copy(update={"id": "another"}))
    for repeat in range(2):
        write_json(other / str(repeat) / "record.json", record("cpu-optimized", 11.0, 0.74, repeat))
    comparison, _, _ = compare_runs([str(folder), str(other)])
    assert comparison.baseline == "cpu-baseline @ one"
    new = comparison.row("cpu-optimized @ two")
    assert new is not None
    assert new.speedup_n == 2


def test_parts_of_one_ladder_are_compared_as_it_was_planned(folder: Path) -> None:
    comparison, found, _ = compare_runs([str(folder), str(folder)])
    assert found == ladder()
    assert comparison.id == ladder().id


@pytest.mark.parametrize("name", ["no-such-place", "abc123"])
def test_what_is_neither_path_nor_run_is_one_sentence(name: str) -> None:
    with pytest.raises(UsageError, match="neither a path nor an MLflow run id: give"):
        compare_runs([name])


def test_a_folder_without_records(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no record\.json below"):
        compare_runs([str(tmp_path)])


def test_a_ladder_that_was_killed_in_its_first_process_has_no_baseline(tmp_path: Path) -> None:
    write_json(tmp_path / "ladder.json", ladder().model_copy(update={"rungs": ()}))
    with pytest.raises(UsageError, match=r"no process of the ladder \S+ has ended.*--resume"):
        compare_runs([str(tmp_path)])


def test_unreadable_records_are_named_in_one_sentence(folder: Path) -> None:
    bad = folder / "bad" / "record.json"
    bad.parent.mkdir()
    bad.write_text("{")
    (folder / "old").mkdir()
    (folder / "old" / "record.json").write_text('{"schema": "laptime.record/0"}')
    with pytest.raises(DataError) as caught:
        load(folder)
    assert "2 of" in str(caught.value)
    assert str(bad) in str(caught.value)
    assert "laptime.record/0" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "x"}', '{"schema": "laptime.ladder/1"}'])
def test_a_bad_ladder_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "ladder.json").write_text(text)
    with pytest.raises(LaptimeError, match="the ladder"):
        load(tmp_path)
