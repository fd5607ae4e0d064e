"""Every reader of files that somebody else may have written, each with a good file and what follows the reading.

What is read is used as a command would use it, since a value that is read and then ends in a traceback is no better
than one that does. A reader takes the path of a file that stands alone in a folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fuzz_inputs import (
    FORMATS,
    checkpoints,
    image,
    npy,
    of_body,
    pickles,
    states,
    tables,
    tar,
    tiff,
    tomls,
    traces,
    zip_file,
)
from fuzz_mutations import Named, of_json, of_lines
from torch import nn
from torchvision.models import ResNet18_Weights

from laptime.advice import advise
from laptime.advice.text import to_markdown as advice_to_markdown
from laptime.advice.text import to_text
from laptime.cli.advise import read_subject
from laptime.cli.compare import compare_runs
from laptime.compare.markdown import to_markdown
from laptime.compare.terminal import to_terminal
from laptime.data import mirror
from laptime.data.archive import unpack
from laptime.data.bands import read_bands
from laptime.data.boxes.store import Told, data_spec, store_folder, verify_boxes
from laptime.data.boxes.tensors import ParsedOnce, ReadAgain, open_boxes
from laptime.data.decode import read_image
from laptime.data.meta import verify_folder
from laptime.data.official import unpickle
from laptime.data.store import Store
from laptime.data.tensors import open_tensors
from laptime.engine import checkpoint
from laptime.engine.checkpoint_pointer import parse_pointer
from laptime.gate import process
from laptime.gate.conclude import conclude
from laptime.gate.records import read_gate
from laptime.gate.reports import to_annotation, to_json, to_junit
from laptime.gate.reports import to_markdown as gate_to_markdown
from laptime.gate.sides import pins
from laptime.gate.words import conditions
from laptime.ladder.probing import read_kept
from laptime.launchers.base import ProgressReader
from laptime.ledger import read_ledger
from laptime.records import read_record
from laptime.spec import read_spec
from laptime.tracking.events import read_journal
from laptime.tracking.journal import is_settled, read_state
from laptime.tracking.logged import preferred, read_comparison
from laptime.workloads.weights import load_weights


@dataclass(frozen=True)
class Reader:
    """One reader.

    Attributes:
        file: the name that its file has.
        read: reads the file and uses what it holds.
        inputs: the bad inputs.
        beside: a folder of good files that stand beside it; None for none.
    """

    name: str
    file: str
    read: Callable[[Path], object]
    inputs: Callable[[str], Iterator[Named]]
    beside: Path | None = None


def _text(name: str) -> str:
    return (FORMATS / name).read_text(encoding="utf-8")


def _json_of(name: str, changes: int = 84) -> Callable[[str], Iterator[Named]]:
    return partial(of_json, _text(name), changes=changes)


def _compared(path: Path) -> None:
    comparison, _, _ = compare_runs([str(path)])
    to_markdown(comparison)
    to_terminal(comparison, 100)
    comparison.model_dump_json(by_alias=True)


def _advised(path: Path) -> None:
    record, trace, probe = read_subject(str(path))
    advice = advise(record, trace, {}, probe)
    to_text(advice)
    advice_to_markdown(advice)
    advice.model_dump_json(by_alias=True)


def _gated(path: Path) -> None:
    gate = read_gate(path)
    gate = gate.model_copy(update={"outcome": conclude(gate)})
    for render in (gate_to_markdown, to_junit, to_annotation, to_json, conditions):
        render(gate)


class _Served:
    """A mirror that is one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url, self.endpoint = folder, "https://mirror.example", "https://mirror.example"

    def read(self, name: str) -> bytes | None:
        return (self.folder / Path(name).name).read_bytes()

    def download(self, name: str, to: Path, size: int, moved: object) -> None:
        raise AssertionError("nothing is downloaded")


def _recalled(path: Path) -> None:
    """The index names the file by a hash of the key."""
    store = Store(path.parent / "stores")
    key = json.loads(_text("index-1.json"))["key"]
    digest = json.loads(_text("index-1.json"))["digest"]
    shutil.copytree(FORMATS / "store-1", store.folder(digest))
    place = store._index(key)
    place.parent.mkdir()
    path.rename(place)
    entry = store.recall(key)
    if entry is not None:
        store.spec(entry, "images")


def _checkpointed(path: Path) -> None:
    pointer = parse_pointer(path.read_bytes(), str(path))
    assert pointer.written or not pointer.written


def _stored(path: Path) -> None:
    verify_folder(path.parent)
    open_tensors(path.parent)


def _opened(path: Path) -> None:
    """Without the checksums, as a run opens a store."""
    data = open_tensors(path.parent)
    assert int(data.train.labels.max()) < len(data.classes)


def _boxed(folder: Path) -> None:
    """Each item as training reads it; then with the checksums, where all could be read."""
    data = open_boxes(data_spec(folder, "boxes"))
    for split in (data.train, data.test):
        for index in range(len(split)):
            split.dataset[index]
    verify_boxes(folder)


def _tabled(path: Path) -> None:
    """Without the meta, whose sizes would tell most of it."""
    names, classes = tuple(f"{n}.png" for n in range(5)), ("disc", "square")
    for kind in (ReadAgain, ParsedOnce):
        data = kind(path.parent, names, classes)
        for index in range(len(data)):
            data[index]


def _boxes_of_a_folder(path: Path) -> None:
    """All the way into a store, and out of it."""
    store = Store(path.parent.with_name(f"{path.parent.name}-stores"))
    meta = store_folder(path.parent, path.name, store, Told("folder", "boxes"), lambda *_: None)
    _boxed(store.folder(meta.digest))


def _weighed(path: Path) -> None:
    load_weights(nn.Sequential(nn.Linear(2, 2)), str(path), {"imagenet": ResNet18_Weights.IMAGENET1K_V1}, ("1", "2"))


def _packed(path: Path) -> None:
    unpack(path, path.parent / "into", limit=1 << 20)


def _pickled(path: Path) -> None:
    with path.open("rb") as file:
        unpickle(file, path.name)


def _followed(path: Path) -> None:
    for event in ProgressReader(path).events():
        event.get("event")


def _gated_record(path: Path) -> None:
    process.cut_down("base", 0, path, (1.0, 2.0, path.with_name("log.txt")))


PROBE = {"gains": {"compile": 1.2, "compile@512": 1.4}, "costs_s": {"compile": 30.0}, "refusals": {}, "seconds": 60}


def _probed(path: Path) -> None:
    found = read_kept(path)
    if found is not None:
        found.model_dump_json()
        advise(read_record(FORMATS / "record-1.json"), None, {}, found)


READERS = (
    Reader("spec", "spec.json", lambda p: read_spec(p).digest(), _json_of("spec-1.json")),
    Reader("record, compared", "record.json", _compared, _json_of("record-1.json", 400)),
    Reader("record, advised", "record.json", _advised, _json_of("record-1.json", 400)),
    Reader("record of a gated command", "record.json", _gated_record, _json_of("record-1.json", 400)),
    Reader(
        "ladder, compared",
        "ladder.json",
        lambda p: _compared(p.parent),
        _json_of("ladder-1.json", 200),
        FORMATS / "record-1.json",
    ),
    Reader(
        "advice", "advice.json", lambda p: _compared(p.parent), _json_of("advice-1.json"), FORMATS / "record-1.json"
    ),
    Reader("summary of a trace", "breakdown.json", _advised, _json_of("trace-1.json", 200)),
    Reader("gate", "gate.json", _gated, _json_of("gate-1.json", 400)),
    Reader("comparison", "comparison.json", lambda p: preferred(read_comparison(p)), _json_of("comparison-1.json")),
    Reader("ledger", "ledger.json", lambda p: read_ledger(p).find("cifar", "x"), partial(of_json, '{"entries": [{}]}')),
    Reader(
        "journal", "a.jsonl", lambda p: (read_journal(p), is_settled(p)), partial(of_lines, _text("journal-1.jsonl"))
    ),
    Reader(
        "state of a replay", "a.state.json", lambda p: read_state(p.with_name("a.jsonl")), _json_of("replay-1.json")
    ),
    Reader("result of a slow probe", "compile.json", _probed, partial(of_json, json.dumps(PROBE))),
    Reader("progress", "progress.jsonl", _followed, partial(of_lines, '{"event": "phase", "phase": "x"}\n' * 3)),
    Reader("store", "meta.json", _stored, _json_of("store-1/meta.json"), FORMATS / "store-1"),
    Reader("store of bands", "meta.json", _stored, _json_of("store-2/meta.json"), FORMATS / "store-2"),
    Reader("images train_images", "train_images.npy", _opened, npy, FORMATS / "store-1"),
    Reader("labels train_labels", "train_labels.npy", _opened, npy, FORMATS / "store-1"),
    Reader("boxes of a folder", "boxes.csv", _boxes_of_a_folder, tables, FORMATS / "boxes-1" / "images"),
    Reader(
        "store of boxes", "meta.json", lambda p: _boxed(p.parent), _json_of("boxes-1/meta.json"), FORMATS / "boxes-1"
    ),
    Reader("boxes of a store", "boxes.csv", _tabled, tables, FORMATS / "boxes-1"),
    Reader("index of the stores", "index.json", _recalled, _json_of("index-1.json")),
    Reader("mirror", "latest.json", lambda p: mirror._latest(_Served(p.parent), "cifar"), _json_of("latest-1.json")),
    Reader("pointer of checkpoints", "latest.json", _checkpointed, _json_of("checkpoint-1/latest.json")),
    Reader("checkpoint", "checkpoint-1.pt", lambda p: checkpoint._unpacked(p.read_bytes()), checkpoints),
    Reader("weights", "weights.pt", _weighed, states),
    Reader("tar", "a.tar", _packed, of_body(tar("w"))),
    Reader("tar.gz", "a.tar.gz", _packed, of_body(tar("w:gz"))),
    Reader("tar.xz", "a.tar.xz", _packed, of_body(tar("w:xz"))),
    Reader("zip", "a.zip", _packed, of_body(zip_file())),
    Reader("pickle of the official data", "batch", _pickled, pickles),
    Reader("PNG", "a.png", read_image, of_body(image("PNG"))),
    Reader("JPEG", "a.jpg", read_image, of_body(image("JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0"))),
    Reader("GIF", "a.gif", read_image, of_body(image("GIF"))),
    Reader("GeoTIFF", "a.tif", lambda p: read_bands(p, (5, 1)), of_body(tiff())),
    Reader("trace", "trace.json", _advised, traces),
    Reader("packed trace", "trace.json.gz", _advised, traces),
    Reader("settings of a gated side", "pyproject.toml", lambda p: pins(p.parent), tomls),
)
