"""Bad inputs of files that are no JSON: images, archives, arrays, weights, traces, each made of a good one."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import tifffile
import torch
from fuzz_mutations import Named, of_bytes, of_json
from PIL import Image

FORMATS = Path(__file__).parents[2] / "golden" / "formats"


def of_body(body: bytes) -> Callable[[str], Iterator[Named]]:
    return partial(of_bytes, body)


def image(kind: str, **how: object) -> bytes:
    file = io.BytesIO()
    pixels = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    Image.fromarray(pixels).save(file, kind, **how)
    return file.getvalue()


def tiff() -> bytes:
    file = io.BytesIO()
    values = np.arange(8 * 8 * 5, dtype=np.uint16).reshape(8, 8, 5)
    tifffile.imwrite(file, values, photometric="minisblack", planarconfig="contig", compression="zlib")
    return file.getvalue()


def tar(mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as tar:
        for name in ("a/" + "n" * 120 + "é.png", "b/1.png"):
            member = tarfile.TarInfo(name)
            member.size = 700
            tar.addfile(member, io.BytesIO(b"x" * 700))
    return file.getvalue()


def zip_file() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in ("a/1.png", "b/é.png"):
            zipped.writestr(name, b"x" * 700)
    return file.getvalue()


def saved(state: object) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def states(name: str) -> Iterator[Named]:
    """Files of weights: bent ones, and whole ones of what is no state dict for the net."""
    good = {"0.weight": torch.ones(2, 2), "0.bias": torch.ones(2)}
    yield from of_bytes(saved(good), name)
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
        yield what, saved(state)
    yield "a pickle that runs code", evil()
    yield "an old one that runs code", pickle.dumps({"0.weight": Evil()})


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('code of the file ran')",)


def evil() -> bytes:
    return saved({"0.weight": Evil()})


def checkpoints(name: str) -> Iterator[Named]:
    good = (FORMATS / "checkpoint-1" / "checkpoint-1.pt").read_bytes()
    yield from of_bytes(good, name)
    held = torch.load(io.BytesIO(good), weights_only=True)
    for key in held:
        for value in (None, [], "x" * 500, 3, torch.ones(2), {}, "[" * 5000):
            yield f"{key} is {str(value)[:10]}", saved({**held, key: value})
    yield "a list", saved([held])
    yield "a pickle that runs code", saved({**held, "state": Evil()})


def npy(name: str) -> Iterator[Named]:
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


def pickles(name: str) -> Iterator[Named]:
    good = {"data": np.zeros((2, 4), np.uint8), "labels": [0, 1]}
    yield from of_bytes(pickle.dumps(good, 2), name)
    yield "code", pickle.dumps({"data": Evil()})
    yield "a list", pickle.dumps([1])
    for text in (b"cos\nsystem\n(S'exit 3'\ntR.", b"cbuiltins\neval\n(S'1'\ntR.", b"(" * 100_000, b"\x80\x04\x8c\xff"):
        yield text[:20].decode("latin-1"), text


def tomls(name: str) -> Iterator[Named]:
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


def tables(name: str) -> Iterator[Named]:
    """CSVs of boxes: bent as any file, other ways of writing one, and lines that say what is no box."""
    good = (FORMATS / "boxes-1" / "boxes.csv").read_text()
    header, *lines = good.splitlines()
    yield from of_bytes(good.encode(), name)
    yield "UTF-16", good.encode("utf-16")
    yield "Latin-1", good.replace("disc", "d\xeesc").encode("latin-1")
    yield "a byte order mark", good.encode("utf-8-sig")
    yield "semicolons", good.replace(",", ";").encode()
    yield "tabs", good.replace(",", "\t").encode()
    yield "other line ends", "\r".join([header, *lines]).encode()
    yield "a NUL inside", good.replace("disc", "di\0sc").encode()
    yield "no header", "\n".join(lines).encode()
    yield "a header alone", header.encode()
    yield "a column twice", "\n".join([f"{header},class", *(f"{line},cat" for line in lines)]).encode()
    yield "a quote that never ends", good.replace("disc", '"disc', 1).encode()
    yield "a text behind a quote", good.replace("disc", '"disc"x', 1).encode()
    yield "a field of 200,000 letters", good.replace("disc", "n" * 200_000, 1).encode()
    yield "100,000 columns", "\n".join([header, lines[0] + ",1" * 100_000, *lines[1:]]).encode()
    yield "a line cut off", "\n".join([header, *lines[:2], lines[2].rpartition(",")[0]]).encode()
    yield "a name alone", "\n".join([header, *lines, "1.png"]).encode()
    numbers = ("nan", "-inf", "1e999", "1e308", "1e-300", "-1", "0", "-0", "0x1", "1_0", "\u0661", "9" * 5000)
    texts = ("", " ", "x", "n" * 10_000, "\x1b[31m\u202e", '"a\nb"', "../../etc/passwd", "/etc/passwd", "\ud7ff")
    for place in range(6):
        for value in (*numbers, *texts):
            fields = lines[0].split(",")
            fields[place] = value
            yield f"field {place} is {value[:20]!r}", "\n".join([header, ",".join(fields), *lines[1:]]).encode()


def traces(name: str) -> Iterator[Named]:
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
