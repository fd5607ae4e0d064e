"""Every reader of files that somebody else may have written, each with a good file and what follows the reading.

What is read is used as a command would use it, since a value that is read and then ends in a traceback is no better
than one that does. A reader takes the path of a file that stands alone in a folder.
"""

from __future__ import annotations

import gzip
import io
import json
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
import torch
from fuzz_mutations import Named, of_bytes, of_json, of_lines
from PIL import Image
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
from laptime.data.decode import read_image
from laptime.data.meta import verify_folder
from laptime.data.official import unpickle
from laptime.data.store import Store
from laptime.data.tensors import open_tensors
from laptime.engine import checkpoint
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

FORMATS = Path(__file__).parents[2] / "golden" / "formats"


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
    pointer = checkpoint._parsed(path.read_bytes(), str(path))
    assert pointer.written or not pointer.written


def _stored(path: Path) -> None:
    verify_folder(path.parent)
    open_tensors(path.parent)


def _opened(path: Path) -> None:
    """Without the checksums, as a run opens a store."""
    data = open_tensors(path.parent)
    assert int(data.train.labels.max()) < len(data.classes)


def _weighed(path: Path) -> None:
    load_weights(nn.Sequential(nn.Linear(2, 2)), str(path), ResNet18_Weights.IMAGENET1K_V1, ("1", "2"))


def _packed(path: Path) -> None:
    unpack(path, path.parent / "into", limit=1 << 20)


def _pickled(path: Path) -> None:
    with path.open("rb") as file:
        unpickle(file, path.name)


def _followed(path: Path) -> None:
    for event in ProgressReader(path).events():
        event.get("event")


def _gated_record(path: Path) -> None:
    process._cut_down("base", 0, path, (1.0, 2.0, path.with_name("log.txt")))


PROBE = {"gains": {"compile": 1.2, "compile@512": 1.4}, "costs_s": {"compile": 30.0}, "refusals": {}, "seconds": 60}


def _probed(path: Path) -> None:
    found = read_kept(path)
    if found is not None:
        found.model_dump_json()
        advise(read_record(FORMATS / "record-1.json"), None, {}, found)


def _of_body(body: bytes) -> Callable[[str], Iterator[Named]]:
    return partial(of_bytes, body)


def _image(kind: str, **how: object) -> bytes:
    file = io.BytesIO()
    pixels = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    Image.fromarray(pixels).save(file, kind, **how)
    return file.getvalue()


def _tiff() -> bytes:
    file = io.BytesIO()
    values = np.arange(8 * 8 * 5, dtype=np.uint16).reshape(8, 8, 5)
    tifffile.imwrite(file, values, photometric="minisblack", planarconfig="contig", compression="zlib")
    return file.getvalue()


def _tar(mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for name in ("a/" + "n" * 120 + "é.png", "b/1.png"):
            member = tarfile.TarInfo(name)
            member.size = 700
            tar.addfile(member, io.BytesIO(b"x" * 700))
    return file.getvalue()


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in ("a/1.png", "b/é.png"):
            zipped.writestr(name, b"x" * 700)
    return file.getvalue()


def _saved(state: object) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def _states(name: str) -> Iterator[Named]:
    """Files of weights: bent ones, and whole ones of what is no state dict for the net."""
    good = {"0.weight": torch.ones(2, 2), "0.bias": torch.ones(2)}
    yield from of_bytes(_saved(good), name)
    for what, state in {
        "a list": [1, 2],
        "a tensor": torch.ones(3),
        "keys of numbers": {1: torch.ones(2, 2)},
        "other shapes": {k: torch.ones(3, 3) for k in good},
        "other kinds": {k: v.to(torch.complex64) for k, v in good.items()},
        "sparse ones": {k: v.to_sparse() for k, v in good.items()},
        "on no device": {k: v.to("meta") for k, v in good.items()},
        "a name of 10,000 letters": {"\x1b\n" + "n" * 10_000: torch.ones(1)},
    }.items():
        yield what, _saved(state)
    yield "a pickle that runs code", _evil()
    yield "an old one that runs code", pickle.dumps({"0.weight": _Evil()})


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code of the file ran')",)


def _evil() -> bytes:
    return _saved({"0.weight": _Evil()})


def _checkpoints(name: str) -> Iterator[Named]:
    good = (FORMATS / "checkpoint-1" / "checkpoint-1.pt").read_bytes()
    yield from of_bytes(good, name)
    held = torch.load(io.BytesIO(good), weights_only=True)
    for key in held:
        for value in (None, [], "x" * 500, 3, torch.ones(2), {}, "[" * 5000):
            yield f"{key} is {str(value)[:10]}", _saved({**held, key: value})
    yield "a list", _saved([held])
    yield "a pickle that runs code", _saved({**held, "state": _Evil()})


def _npy(name: str) -> Iterator[Named]:
    good = (FORMATS / "store-1" / f"{name.rpartition(' ')[2]}.npy").read_bytes()
    yield from of_bytes(good, name)
    end = good.index(b"\n") + 1
    for header in (
        "{'descr': '|O', 'fortran_order': False, 'shape': (6, 4, 4, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999, 4, 4, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-6, 4, 4, 3), }",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (6L, 4, 4, 3), }",
        "{'descr': '<i8', 'fortran_order': True, 'shape': (6,), }",
        "{'descr': [('a', '<i8'), ('b', ('<i8', (2**9,)))], 'fortran_order': False, 'shape': (6,), }",
        "{'descr': ((((), ), ), ), 'fortran_order': False, 'shape': (6,), }",
        "{'descr': '<i8', 'shape': (6,)}",
        "(" * 150,
        "-" * 9000 + "1",
        "[" * 9000,
        "__import__('os').system('exit 3')",
        "{'descr': 'é', 'fortran_order': False, 'shape': ()}",
    ):
        body = header.encode("latin-1").ljust(end - 11) + b"\n"
        yield header[:60], b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body + good[end:]
    yield "version 3", b"\x93NUMPY\x03\x00" + good[8:]


def _pickles(name: str) -> Iterator[Named]:
    good = {"data": np.zeros((2, 4), np.uint8), "labels": [0, 1]}
    yield from of_bytes(pickle.dumps(good, 2), name)
    yield "code", pickle.dumps({"data": _Evil()})
    yield "a list", pickle.dumps([1])
    for text in (b"cos\nsystem\n(S'exit 3'\ntR.", b"cbuiltins\neval\n(S'1'\ntR.", b"(" * 100_000, b"\x80\x04\x8c\xff"):
        yield text[:20].decode("latin-1"), text


def _tomls(name: str) -> Iterator[Named]:
    good = '[project]\nname = "x"\ndependencies = ["torch", "numpy>=2"]\nrequires-python = ">=3.11"\n'
    yield from of_bytes(good.encode(), name)
    for text in (
        "project = 3",
        "project = []",
        "[project]\ndependencies = 3",
        "[project]\ndependencies = [1, 'a', []]",
        "[project]\ndependencies = {a = 1}",
        "x = " + "[" * 5000,
        "x = " + "9" * 5000,
        "\ufeff[project]\n",
    ):
        yield text[:40], text.encode()
    yield "Latin-1", good.replace("x", "é").encode("latin-1")
    yield "UTF-16", good.encode("utf-16")


def _traces(name: str) -> Iterator[Named]:
    args = {"External id": 2, "Input Dims": [[8, 3], []], "Input type": ["float", "float"]}
    common = {"ph": "X", "pid": 1, "tid": 1}
    events: list[dict[str, object]] = []
    for step in range(3):
        at = 1000.0 * step
        events += [
            {**common, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 990, "args": {}},
            {**common, "cat": "cpu_op", "name": "aten::mm", "ts": at + 10, "dur": 300, "args": args},
            {**common, "cat": "user_annotation", "name": "gloo:all_reduce", "ts": at + 400, "dur": 90, "args": args},
            {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 20, "dur": 5, "args": args},
            {**common, "cat": "kernel", "name": "gemm", "ts": at + 30, "dur": 200, "args": {**args, "stream": 7}},
            {**common, "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": at + 500, "dur": 9, "args": {"bytes": 4096}},
            {**common, "cat": "python_function", "name": "train.py(3): step", "ts": at + 1, "dur": 900, "args": {}},
        ]
    meta = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "GPU"}], "distributedInfo": {"rank": 0}}
    text = json.dumps({**meta, "traceEvents": events})
    changes = 90
    if name == "packed trace":
        yield "cut off gzip", gzip.compress(text.encode())[:-9]
        yield "32 MiB of blanks", gzip.compress(b'{"traceEvents": [' + b" " * (32 << 20))
        yield "a name of 40 MiB", gzip.compress(b'{"traceEvents": [{"name": "' + b"n" * (40 << 20))
        yield from of_bytes(gzip.compress(text.encode()), name)
    else:
        yield from of_json(text, name, changes)


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
    Reader("images train_images", "train_images.npy", _opened, _npy, FORMATS / "store-1"),
    Reader("labels train_labels", "train_labels.npy", _opened, _npy, FORMATS / "store-1"),
    Reader("index of the stores", "index.json", _recalled, _json_of("index-1.json")),
    Reader("mirror", "latest.json", lambda p: mirror._latest(_Served(p.parent), "cifar"), _json_of("latest-1.json")),
    Reader("pointer of checkpoints", "latest.json", _checkpointed, _json_of("checkpoint-1/latest.json")),
    Reader("checkpoint", "checkpoint-1.pt", lambda p: checkpoint._unpacked(p.read_bytes()), _checkpoints),
    Reader("weights", "weights.pt", _weighed, _states),
    Reader("tar", "a.tar", _packed, _of_body(_tar("w"))),
    Reader("tar.gz", "a.tar.gz", _packed, _of_body(_tar("w:gz"))),
    Reader("tar.xz", "a.tar.xz", _packed, _of_body(_tar("w:xz"))),
    Reader("zip", "a.zip", _packed, _of_body(_zip())),
    Reader("pickle of the official data", "batch", _pickled, _pickles),
    Reader("PNG", "a.png", read_image, _of_body(_image("PNG"))),
    Reader("JPEG", "a.jpg", read_image, _of_body(_image("JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0"))),
    Reader("GIF", "a.gif", read_image, _of_body(_image("GIF"))),
    Reader("GeoTIFF", "a.tif", lambda p: read_bands(p, (5, 1)), _of_body(_tiff())),
    Reader("trace", "trace.json", _advised, _traces),
    Reader("packed trace", "trace.json.gz", _advised, _traces),
    Reader("settings of a gated side", "pyproject.toml", lambda p: pins(p.parent), _tomls),
)
