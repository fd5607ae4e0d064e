"""Specs refuse what they don't know; records ignore it; both say in one sentence what is wrong."""

import json

import pytest
from pydantic import ValidationError
from tests.unit.conftest import make_spec

from laptime.errors import DataError, UsageError
from laptime.ladder.climb import fastest_s
from laptime.records import EpochRecord, ProfileRecord, RunRecord, read_record, write_json, write_text
from laptime.spec import read_spec


def test_a_spec_survives_the_file(tmp_path):
    spec = make_spec(epochs=3)
    write_json(tmp_path / "spec.json", spec)
    assert read_spec(tmp_path / "spec.json") == spec


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"schema": "laptime.spec/99"}, "laptime.spec/99"),
        ({"epochs": 0}, "epochs"),
        ({"nonsense": 1}, "nonsense"),
        ({"device": "tpu"}, "tpu"),
    ],
)
def test_a_wrong_spec_is_one_sentence(tmp_path, change, named):
    fields = make_spec().model_dump(mode="json", by_alias=True) | change
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(UsageError) as error:
        read_spec(path)
    assert named in str(error.value)
    assert "\n" not in str(error.value)


def test_a_seed_that_no_spec_s_file_could_hold_is_refused_before_one_is_written():
    assert make_spec(seed=10**18 - 1).seed == 10**18 - 1
    with pytest.raises(ValidationError, match="seed"):
        make_spec(seed=10**18)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"schema": 3}'])
def test_a_file_that_is_no_spec_or_record(tmp_path, text):
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"file\.json"):
        read_spec(path)
    with pytest.raises(DataError, match=r"file\.json"):
        read_record(path)


def test_a_record_of_a_newer_version_is_read_without_its_new_fields(tmp_path):
    record = RunRecord(status="done", spec=make_spec(), epochs=(EpochRecord(index=0, epoch_s=1.5, samples=3),))
    fields = record.model_dump(mode="json", by_alias=True) | {"novelty": 1}
    fields["epochs"][0]["novelty"] = 2
    path = tmp_path / "record.json"
    path.write_text(json.dumps(fields))
    assert read_record(path) == record


@pytest.mark.parametrize("folder", ["/etc", "../x", "a/b", "..", ".", "", "a\\b", "C:", "a\n"])
def test_a_profile_s_folder_leads_nowhere_else(tmp_path, folder):
    path = tmp_path / "record.json"
    profile = {"schedule": "1,1,5,1", "folder": folder}
    path.write_text(json.dumps({"schema": "laptime.record/1", "status": "done", "profile": profile}))
    with pytest.raises(DataError, match=r"profile\.folder: .*plain name of a folder") as caught:
        read_record(path)
    assert "\n" not in str(caught.value)
    assert ProfileRecord(schedule="1,1,5,1", folder="a profile.2").folder == "a profile.2"


def test_two_lines_write_a_record_from_any_loop(tmp_path):
    path = tmp_path / "record.json"
    path.write_text(
        '{"schema": "laptime.record/1", "status": "done", "epochs": [{"index": 0, "epoch_s": 2.0, "samples": 8}]}'
    )
    assert read_record(path).kept[0].epoch_s == 2.0


def test_digest_is_of_what_is_trained():
    spec = make_spec()
    assert (
        spec.digest() == make_spec(seed=9, repeat=2, timeout_s=5, profile="full", ceilings={"copy_gb_s": 9.0}).digest()
    )
    assert spec.digest() != make_spec(epochs=2).digest()


def test_nothing_half_written_stays(tmp_path):
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"x": {1, 2}})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a.md").mkdir()
    with pytest.raises(IsADirectoryError):
        write_text(tmp_path / "a.md", "a report that has a folder in its place")
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]


def test_epochs_that_differ_by_design_count_by_their_mean():
    def epoch(index: int, seconds: float, side: int | None = None, kept: bool = True) -> EpochRecord:
        return EpochRecord(index=index, epoch_s=seconds, samples=10, image_side=side, kept=kept)

    alike = RunRecord(status="done", epochs=(epoch(0, 9.0, kept=False), epoch(1, 3.0), epoch(2, 1.0)))
    assert alike.laps == (3.0, 1.0)
    grown = RunRecord(status="done", epochs=(epoch(0, 1.0, 24), epoch(1, 2.0, 32), epoch(2, 6.0, 32)))
    assert grown.laps == (3.0,)
    assert fastest_s(grown) == 3.0
    chosen = (epoch(0, 5.0).model_copy(update={"trained_share": share}) for share in (1.0, 0.5))
    assert RunRecord(status="done", epochs=tuple(chosen)).laps == (5.0,)
