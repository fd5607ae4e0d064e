"""What a store says about itself: `meta.json`, its checks, and the digest over the content."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.lib import format as npy
from pydantic import ConfigDict, Field, ValidationError

from laptime.errors import DataError, shorten
from laptime.parsing import other_schema, parse_json
from laptime.spec import DataKind, Frozen, explain

# Bytes of three channels, and what else there is; a store has the oldest schema that can say what it holds.
STORE_SCHEMA, BANDS_SCHEMA = "laptime.data/1", "laptime.data/2"
BYTES_SCALE = 255
META = "meta.json"
ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")
_BLOCK = 1 << 22

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0, le=2**50)]
Channels = tuple[float, ...]


class FileMeta(Frozen):
    """One array file: SHA-256 and bytes of the whole file, header included."""

    sha256: Sha256
    size: Size
    dtype: str
    shape: tuple[Size, ...]


class StoreMeta(Frozen):
    """One store.

    Attributes:
        asked: what was asked for when it was first written.
        digest: SHA-256 over shapes, bytes and class names.
        mean, std: per channel, of the training images scaled to 0..1.
        scale: the value that stands for 1.
        bands: which bands of multi-spectral images the channels are; none for RGB.
        files: by array name (`train_images`, ...); each stands in `<name>.npy`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: str = Field(default=STORE_SCHEMA, alias="schema")
    digest: Sha256
    kind: DataKind
    asked: str
    classes: tuple[str, ...]
    train_count: Size
    test_count: Size
    mean: Channels
    std: Channels
    files: dict[str, FileMeta]
    notice: str = ""
    scale: Annotated[int, Field(ge=1, lt=2**15)] = BYTES_SCALE
    bands: tuple[int, ...] = ()

    def fields(self) -> dict[str, Any]:
        """What is written: a store of bytes as it was before there were bands, so that older versions read it."""
        if not self.bands:
            return self.model_dump(mode="json", by_alias=True, exclude={"scale", "bands"})
        return {**self.model_dump(mode="json", by_alias=True), "schema": BANDS_SCHEMA}

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files.values())


@dataclass(frozen=True)
class Content:
    """What counts of an array for the digest: its form and the SHA-256 of its bytes.

    The file's header stays out because its padding is numpy's business and may change.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: str


def digest_of(classes: tuple[str, ...], contents: dict[str, Content], scale: int = BYTES_SCALE) -> str:
    """SHA-256 over class names, the content of the four arrays and, where it is not that of bytes, the scale."""
    fields: dict[str, Any] = {
        "classes": classes,
        "arrays": {name: [c.dtype, c.shape, c.sha256] for name, c in sorted(contents.items())},
    }
    if scale != BYTES_SCALE:
        fields["scale"] = scale
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def parse_meta(text: str | bytes, where: str) -> StoreMeta:
    """Reads a `meta.json` from a store or a mirror; `where` names it in messages.

    Raises:
        DataError: it is no JSON, of another schema, or does not hang together.
    """
    try:
        fields = parse_json(text)
    except ValueError as error:
        raise DataError(f"{where} is damaged (no JSON: {error}): {_again(where)}.") from error
    found = fields.get("schema") if isinstance(fields, dict) else None
    if found not in (STORE_SCHEMA, BANDS_SCHEMA):
        raise DataError(f"{where} {other_schema(found, BANDS_SCHEMA, _again(where))}")
    try:
        meta = StoreMeta.model_validate(fields)
    except ValidationError as error:
        raise DataError(f"{where} is not valid, {explain(error)}: {_again(where)}.") from error
    problem = _mismatch(meta)
    if problem:
        raise DataError(f"{where} is not valid, {problem}: {_again(where)}.")
    return meta


def _mismatch(meta: StoreMeta) -> str:
    if tuple(sorted(meta.files)) != tuple(sorted(ARRAYS)):
        return f"it lists the arrays {', '.join(sorted(meta.files))}"
    dtype, channels = ("int16", len(meta.bands)) if meta.bands else ("uint8", 3)
    if len(meta.mean) != channels or len(meta.std) != channels:
        return f"it gives {len(meta.mean)} means and {len(meta.std)} deviations for {channels} channels"
    for split, count in (("train", meta.train_count), ("test", meta.test_count)):
        images, labels = meta.files[f"{split}_images"], meta.files[f"{split}_labels"]
        if images.dtype != dtype or labels.dtype != "int64" or labels.shape != (count,):
            return f"the {split} arrays are of other types or counts than it says"
        if len(images.shape) != 4 or images.shape[0] != count or images.shape[3] != channels:
            return f"the {split} images are not [{count}, height, width, {channels}]"
    return ""


def _again(where: str) -> str:
    if "://" in where:
        return "push the data there again"
    return f"delete {Path(where).parent} and fetch the data again (laptime data fetch)"


def read_meta(folder: Path) -> StoreMeta:
    """Reads a store's meta and checks cheaply that its files are whole: sizes and headers, not the bytes.

    Raises:
        DataError: something is missing, cut off or of another schema; with the remedy.
    """
    path = folder / META
    try:
        text = path.read_bytes()
    except OSError as error:
        raise DataError(f"the data store {folder} can't be read ({error}): {_again(str(path))}.") from error
    meta = parse_meta(text, str(path))
    for name in ARRAYS:
        _check_file(folder / f"{name}.npy", meta.files[name])
    return meta


def _check_file(path: Path, said: FileMeta) -> None:
    remedy = _again(str(path))
    try:
        size = path.stat().st_size
        if size != said.size:
            raise DataError(f"{path} has {size} bytes and should have {said.size}: {remedy}.")
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("error")  # headers of Python 2 are not ours
            if npy.read_magic(file) != (1, 0):
                raise DataError(f"{path} is no array file of version 1.0: {remedy}.")
            shape, fortran, dtype = npy.read_array_header_1_0(file)
            end = file.tell()
    except OSError as error:
        raise DataError(f"{path} can't be read ({error}): {remedy}.") from error
    except DataError:
        raise
    except Exception as error:  # a header is Python's syntax, and a damaged one raises anything
        raise DataError(f"{path} has a damaged header: {remedy}.") from error
    if (shape, dtype, fortran) != (said.shape, np.dtype(said.dtype), False):
        raise DataError(
            f"{path} holds {shorten(str(dtype))} {shorten(str(shape))} and should hold {said.dtype} {said.shape}: "
            f"{remedy}."
        )
    if size != end + math.prod(shape) * dtype.itemsize:
        raise DataError(f"{path} has {size} bytes, which are not those of {dtype} {shape}: {remedy}.")


def verify_folder(folder: Path) -> StoreMeta:
    """Reads everything and checks each SHA-256 and the digest.

    Raises:
        DataError: with the file that is wrong and the remedy.
    """
    meta = read_meta(folder)
    contents = {name: _verify_file(folder / f"{name}.npy", meta.files[name]) for name in ARRAYS}
    found = digest_of(meta.classes, contents, meta.scale)
    if found != meta.digest:
        raise DataError(
            f"the content of {folder} has digest {found[:12]} and its meta.json says {meta.digest[:12]}: "
            f"{_again(str(folder / META))}."
        )
    return meta


def _verify_file(path: Path, said: FileMeta) -> Content:
    whole, content = hashlib.sha256(), hashlib.sha256()
    with path.open("rb") as file:
        npy.read_magic(file)
        npy.read_array_header_1_0(file)
        data_start = file.tell()
        file.seek(0)
        whole.update(file.read(data_start))
        while block := file.read(_BLOCK):
            whole.update(block)
            content.update(block)
    if whole.hexdigest() != said.sha256:
        raise DataError(
            f"{path} has the wrong checksum (SHA-256 {whole.hexdigest()[:12]}, should be "
            f"{said.sha256[:12]}): "
            f"{_again(str(path))}."
        )
    return Content(said.dtype, said.shape, content.hexdigest())
