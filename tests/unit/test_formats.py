"""Files that earlier versions wrote: each is read as it was, an older schema with a remedy, a newer one with another.

What stands in tests/golden/formats was written once and is never written again: a change that can't read it breaks
what users have on their disks. Another schema gets files of its own beside these.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from laptime.compare.sides import load_sides
from laptime.data.boxes.store import SCHEMA as BOXES_SCHEMA
from laptime.data.boxes.store import data_spec, read_box_meta, verify_boxes
from laptime.data.boxes.tensors import open_boxes
from laptime.data.meta import read_meta, verify_folder
from laptime.data.mirror import LATEST_SCHEMA, _latest
from laptime.data.store import Entry, Store
from laptime.data.tensors import open_tensors
from laptime.engine import checkpoint
from laptime.engine.checkpoint_pointer import parse_pointer
from laptime.errors import LaptimeError
from laptime.gate.conclude import conclude
from laptime.gate.records import read_gate
from laptime.records import LadderRecord, RunRecord, read_ladder, read_record
from laptime.spec import read_spec
from laptime.tracking.events import Ended, Filed, Measured, Modelled, Noted, Started, Tagged, read_journal
from laptime.tracking.journal import Journal, read_state
from laptime.tracking.logged import preferred, read_comparison

FORMATS = Path(__file__).parents[1] / "golden" / "formats"


def test_a_spec() -> None:
    spec = read_spec(FORMATS / "spec-1.json")
    assert (spec.variant, spec.data.digest, spec.epochs) == ("cpu-resident", "d1", 4)
    # Runs and checkpoints are found by it: another one would make strangers of them.
    assert spec.digest() == "7b6f86ebfcb50a7b1d4115f2951e0fb3595d45883d8683034f7cdd7b0c6207bf"


def test_a_record() -> None:
    record = read_record(FORMATS / "record-1.json")
    assert record.spec == read_spec(FORMATS / "spec-1.json")
    assert [e.breakdown.steps for e in record.kept if e.breakdown]
    assert record.machine.ceilings.gemm_fp32_gflops == 223.0


def test_a_ladder() -> None:
    ladder = read_ladder(FORMATS / "ladder-1.json")
    assert (ladder.workload, ladder.rungs[0].variant, len(ladder.rungs)) == ("cifar", "cpu-baseline", 11)


def test_what_stands_beside_a_record(tmp_path: Path) -> None:
    shutil.copy(FORMATS / "record-1.json", tmp_path / "record.json")
    shutil.copy(FORMATS / "advice-1.json", tmp_path / "advice.json")
    (tmp_path / "profile").mkdir()
    shutil.copy(FORMATS / "trace-1.json", tmp_path / "profile" / "breakdown.json")
    sides = load_sides(tmp_path)
    assert sides.traces.keys() == sides.advice.keys() == {"cpu-resident"}
    assert sides.unreadable == []


@pytest.mark.parametrize(("name", "by_turns"), [("gate-1.json", False), ("gate-2.json", True)])
def test_a_gate_says_what_it_said(name: str, by_turns: bool) -> None:
    gate = read_gate(FORMATS / name)
    assert gate.by_turns is by_turns
    assert gate.outcome is not None
    assert conclude(gate) == gate.outcome


def test_a_comparison_names_its_fastest() -> None:
    assert preferred(read_comparison(FORMATS / "comparison-1.json"))[-1] == "cpu-baseline"


def test_a_journal_with_all_its_events(tmp_path: Path) -> None:
    header, events = read_journal(FORMATS / "journal-1.jsonl")
    assert header.target == "embedded"
    assert {type(e) for e in events} == {Started, Measured, Tagged, Noted, Filed, Modelled, Ended}
    shutil.copy(FORMATS / "journal-1.jsonl", tmp_path / "a.jsonl")
    shutil.copy(FORMATS / "replay-1.json", tmp_path / "a.state.json")
    assert read_state(tmp_path / "a.jsonl").applied == len(events)
    Journal(tmp_path / "a.jsonl").close()  # it can be continued


def test_a_journal_that_lost_its_first_line_is_refused(tmp_path: Path) -> None:
    """Else its first event would pass for the header, and be lost."""
    lines = (FORMATS / "journal-1.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_text("".join(lines[1:]))
    with pytest.raises(LaptimeError, match=r"names no schema.*move it out of the folder"):
        read_journal(tmp_path / "a.jsonl")


@pytest.mark.parametrize("version", ["laptime.replay/2", "other"])
def test_another_state_of_a_replay_is_taken_for_none(tmp_path: Path, version: str) -> None:
    (tmp_path / "a.state.json").write_text((FORMATS / "replay-1.json").read_text().replace("laptime.replay/1", version))
    assert read_state(tmp_path / "a.jsonl").applied == 0


@pytest.mark.parametrize(("name", "channels"), [("store-1", 3), ("store-2", 2)])
def test_a_store(name: str, channels: int) -> None:
    meta = verify_folder(FORMATS / name)
    data = open_tensors(FORMATS / name)
    assert tuple(data.train.images.shape) == (6, 4, 4, channels)
    assert meta.fields() == json.loads((FORMATS / name / "meta.json").read_text())


def test_a_store_of_boxes() -> None:
    folder = FORMATS / "boxes-1"
    meta = verify_boxes(folder)
    data = open_boxes(data_spec(folder, "boxes"))
    assert (data.classes, data.side, data.largest) == (("disc", "square"), 64, (16, 16))
    assert data.test.dataset[0].boxes.tolist() == [[1.0, 2.0, 9.0, 11.0], [3.0, 3.0, 7.5, 8.0]]
    assert [data.train.dataset[i].labels.tolist() for i in range(4)] == [[2], [1], [1], []]
    assert meta.model_dump(mode="json", by_alias=True) == json.loads((folder / "meta.json").read_text())


def test_an_entry_of_the_index(tmp_path: Path) -> None:
    fields = json.loads((FORMATS / "index-1.json").read_text())
    store = Store(tmp_path)
    shutil.copytree(FORMATS / "store-1", store.folder(fields["digest"]))
    store._index(fields["key"]).parent.mkdir()
    shutil.copy(FORMATS / "index-1.json", store._index(fields["key"]))
    assert store.recall(fields["key"]) == Entry(fields["digest"], "folder")


def test_a_checkpoint() -> None:
    place = FORMATS / "checkpoint-1"
    pointer = parse_pointer((place / "latest.json").read_bytes(), str(place))
    assert pointer.spec == checkpoint.identity(read_spec(FORMATS / "spec-1.json"))
    found = checkpoint._unpacked((place / pointer.written[0].name).read_bytes())
    assert (len(found.epochs), found.epochs[0].epoch_s) == (1, 1.5)


class _Mirror:
    url = endpoint = "https://mirror.example"

    def __init__(self, body: bytes) -> None:
        self.body = body

    def read(self, name: str) -> bytes:
        return self.body

    def download(self, name: str, to: Path, size: int, moved: object) -> None:
        raise AssertionError(name)


def test_what_a_mirror_says() -> None:
    digest = read_meta(FORMATS / "store-1").digest
    assert _latest(_Mirror((FORMATS / "latest-1.json").read_bytes()), "cifar") == digest


def _checkpoints(path: Path) -> None:
    parse_pointer(path.read_bytes(), str(path))


READ: dict[str, Callable[[Path], object]] = {
    "spec-1.json": read_spec,
    "record-1.json": read_record,
    "ladder-1.json": read_ladder,
    "gate-1.json": read_gate,
    "gate-2.json": read_gate,
    "journal-1.jsonl": read_journal,
    "store-2/meta.json": lambda p: read_meta(p.parent),
    "boxes-1/meta.json": lambda p: read_box_meta(p.parent),
    "checkpoint-1/latest.json": _checkpoints,
    "latest-1.json": lambda p: _latest(_Mirror(p.read_bytes()), "cifar"),
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize(
    ("version", "words"), [("999", "newer laptime .*upgrade laptime"), ("0", "has schema"), ("x", "has schema")]
)
def test_another_version_is_refused_with_what_to_do(tmp_path: Path, name: str, version: str, words: str) -> None:
    text = (FORMATS / name).read_text()
    schema = json.loads(text.partition("\n")[0] if name.endswith("l") else text)["schema"]
    path = tmp_path / Path(name).name.replace("meta-1", "meta")
    path.write_text(text.replace(schema, f"{schema.rpartition('/')[0]}/{version}", 1))
    with pytest.raises(LaptimeError, match=words) as caught:
        READ[name](path)
    assert str(caught.value).isprintable()


def test_what_is_written_now_has_the_schema_of_the_golden_files() -> None:
    """Who changes a schema adds a golden file and says in docs/record.md what becomes of the older ones."""
    written = {
        "record-1.json": RunRecord.model_fields["schema_"].default,
        "ladder-1.json": LadderRecord.model_fields["schema_"].default,
        "latest-1.json": LATEST_SCHEMA,
        "spec-1.json": read_spec(FORMATS / "spec-1.json").schema_,
        "boxes-1/meta.json": BOXES_SCHEMA,
    }
    for name, schema in written.items():
        assert json.loads((FORMATS / name).read_text())["schema"] == schema
