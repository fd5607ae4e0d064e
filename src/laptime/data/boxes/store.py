"""The store of detection: image files as they came, one CSV of their boxes, and what tells whether they are whole.

The baseline opens each image from disk and reads the CSV again for each item, as the tutorials do; so both are stored
as files, and a store is `<LAPTIME_HOME>/data/<digest>/` with `images/`, `boxes.csv` and `meta.json`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationError

from laptime.data.boxes.box import Boxed, check_inside, digits
from laptime.data.boxes.columns import COLUMNS
from laptime.data.boxes.sets import BoxSet, read_set
from laptime.data.decode import sizes_of
from laptime.data.disk import check_room, partial_folder, room_for
from laptime.data.meta import META, Sha256, Size
from laptime.data.sources import Say
from laptime.data.split import both_sides
from laptime.data.store import Store
from laptime.errors import DataError, shorten, without_secrets
from laptime.parsing import other_schema, parse_json
from laptime.records import write_json
from laptime.spec import DataKind, DataSpec, Frozen, explain

SCHEMA: Literal["laptime.boxes/1"] = "laptime.boxes/1"
TABLE, IMAGES = "boxes.csv", "images"
_OTHER_SIZE = (
    "{} image(s) are not as wide and high as their annotations say, {} among them: their boxes are right only where "
    "they are in pixels of the images that are here, as a viewer shows them."
)

Names = Annotated[tuple[str, ...], Field(min_length=1)]


class StoredFile(Frozen):
    """One file of a store."""

    sha256: Sha256
    size: Size


class BoxMeta(Frozen):
    """What a store of boxes says about itself.

    Attributes:
        digest: SHA-256 over class names, split and the files' checksums.
        train, test: names of the images below `images/`.
        largest: height and width that hold every image.
        files: by path in the store: the images and the CSV.
        side: pixels that the shorter side of an image becomes; None for the catalogue's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["laptime.boxes/1"] = Field(default=SCHEMA, alias="schema")
    digest: Sha256
    kind: DataKind
    asked: str
    classes: Names
    train: Names
    test: Names
    largest: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]
    files: dict[str, StoredFile]
    notice: str = ""
    side: Annotated[int, Field(ge=1)] | None = None

    def whole(self) -> str:
        """The digest that the content should have."""
        sums = {name: said.sha256 for name, said in sorted(self.files.items())}
        return hashlib.sha256(json.dumps([self.classes, self.train, self.test, sums, self.side]).encode()).hexdigest()


def data_spec(folder: Path, asked: str, kind: DataKind | None = None, notice: str | None = None) -> DataSpec:
    """Opens a store, checking it cheaply, as the data of a run; raises DataError."""
    meta = read_box_meta(folder)
    return DataSpec(
        asked=without_secrets(asked),
        kind=kind or meta.kind,
        digest=meta.digest,
        path=str(folder),
        classes=meta.classes,
        train_count=len(meta.train),
        test_count=len(meta.test),
        notice=meta.notice if notice is None else notice,
    )


def read_box_meta(folder: Path) -> BoxMeta:
    """Reads a store's meta and checks that its files are there with their sizes.

    Raises:
        DataError: something is missing, cut off or of another schema; with the remedy.
    """
    again = fetch_again(folder)
    meta = _parsed(folder / META, again)
    for name, said in meta.files.items():
        try:
            size = (folder / name).stat().st_size
        except OSError as error:
            raise DataError(f"{folder / name} can't be read ({error.strerror}): {again}.") from error
        if size != said.size:
            raise DataError(f"{folder / name} has {size} bytes and should have {said.size}: {again}.")
    return meta


def fetch_again(folder: Path) -> str:
    """The remedy for a store that is damaged."""
    return f"delete {folder} and fetch the data again (laptime data fetch detection)"


def _parsed(path: Path, again: str) -> BoxMeta:
    try:
        fields = parse_json(path.read_bytes())
    except OSError as error:
        raise DataError(f"the data store {path.parent} can't be read ({error}): {again}.") from error
    except ValueError as error:
        raise DataError(f"{path} is damaged (no JSON: {error}): {again}.") from error
    found = fields.get("schema") if isinstance(fields, dict) else None
    if found != SCHEMA:
        raise DataError(f"{path} {other_schema(found, SCHEMA, again)}")
    try:
        meta = BoxMeta.model_validate(fields)
    except ValidationError as error:
        raise DataError(f"{path} is no store of boxes, {explain(error)}: {again}.") from error
    outside = next((name for name in meta.files if not _inside(name)), None)
    if outside is not None:
        raise DataError(f"{path} names the file {shorten(outside)!r}, which is none of the store's: {again}.")
    missing = next((name for name in (*meta.train, *meta.test) if f"{IMAGES}/{name}" not in meta.files), None)
    if missing is not None:
        raise DataError(f"{path} has no file of the image {shorten(missing)!r}: {again}.")
    return meta


def _inside(name: str) -> bool:
    """Whether a file's name leads to a place in its store, and to one that the system takes."""
    path = PurePosixPath(name)
    return "\0" not in name and ".." not in path.parts and not path.is_absolute()


def verify_boxes(folder: Path) -> BoxMeta:
    """Reads everything and checks each SHA-256; raises DataError with the file that is wrong."""
    meta = read_box_meta(folder)
    for name, said in meta.files.items():
        found = _checksum(folder / name)
        if found != said.sha256:
            raise DataError(
                f"{folder / name} has the wrong checksum (SHA-256 {found[:12]}, should be {said.sha256[:12]}): "
                f"{fetch_again(folder)}."
            )
    if meta.whole() != meta.digest:
        raise DataError(f"{folder / META} does not belong to its files: {fetch_again(folder)}.")
    return meta


@dataclass(frozen=True)
class Told:
    """What a source says of its data: kind, what was asked for, notice, its images' shorter side, the split's seed."""

    kind: DataKind
    asked: str
    notice: str = ""
    side: int | None = None
    seed: int = 0


def store_folder(root: Path, table: str, store: Store, told: Told, say: Say) -> BoxMeta:
    """Checks a folder of images and boxes whole, and copies it into a store.

    Args:
        root: the folder.
        table: the path below it of the file of boxes; empty to find it.
        store: where it goes.
        told: goes into its meta.
        say: told how far it is.

    Raises:
        UsageError: a seed, and the folder is split already.
        DataError: a box, an image or the folder's split can't be used, or the disk is full.
    """
    say("looking through", 0, 0)
    found = read_set(root, table, told.seed)
    images = found.images
    # The table that is written holds some 60 bytes for a box.
    size = sum(i.path.stat().st_size + 60 * (1 + len(i.boxes)) for i in images)
    with partial_folder(store.root) as folder, room_for(store.root, size):
        check_room(store.root, size)
        largest, resized = _copied(images, folder, say)
        _write_table(images, folder / TABLE)
        names = [f"{IMAGES}/{i.name}" for i in images] + [TABLE]
        files = {n: StoredFile(sha256=_checksum(folder / n), size=(folder / n).stat().st_size) for n in names}
        said = [*found.said] + ([_OTHER_SIZE.format(len(resized), resized[0])] if resized else [])
        said.append(_on_both_sides(found, files))
        meta = BoxMeta(
            digest="0" * 64,
            kind=told.kind,
            asked=told.asked,
            classes=found.classes,
            train=found.train,
            test=found.test,
            largest=largest,
            files=files,
            notice=" ".join(part for part in (told.notice, *said) if part),
            side=told.side,
        )
        meta = meta.model_copy(update={"digest": meta.whole()})
        write_json(folder / META, meta.model_dump(mode="json", by_alias=True))
        store.adopt(folder, meta.digest, read_box_meta)
    return meta


def _on_both_sides(found: BoxSet, files: Mapping[str, StoredFile]) -> str:
    train = {files[f"{IMAGES}/{name}"].sha256 for name in found.train}
    return both_sides([name for name in found.test if files[f"{IMAGES}/{name}"].sha256 in train])


def _copied(images: Sequence[Boxed], folder: Path, say: Say) -> tuple[tuple[int, int], list[str]]:
    """Copies images after decoding each once: what can't be decoded or holds no such box is told now, by its name.

    Returns:
        Height and width that hold every image; and names of those that are not as large as their annotations say.
    """
    height = width = 1
    resized = []
    say("reading", 0, len(images))
    # Closed by us: an error would hold the processes of the pool until somebody has told it.
    with closing(sizes_of([image.path for image in images])) as sizes:
        for done, (image, (rows, columns)) in enumerate(zip(images, sizes, strict=True)):
            say("reading", done, len(images))
            check_inside(image, rows, columns)
            resized += [shorten(image.name)] if _of_another_size(image, rows, columns) else []
            height, width = max(height, rows), max(width, columns)
            to = folder / IMAGES / image.name
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(image.path, to)
    say("reading", len(images), len(images))
    return (height, width), resized


def _of_another_size(image: Boxed, height: int, width: int) -> bool:
    """Whether a line says another width and height than the image has, so that its boxes may be those of another."""
    return any(
        text.replace(".", "", 1).isdecimal() and float(text) != side
        for box in image.boxes
        for text, side in zip(box.size, (width, height), strict=False)
    )


def _write_table(images: Sequence[Boxed], path: Path) -> None:
    """The boxes under the names of the store; a line without numbers is an image without boxes."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(COLUMNS)
        for image in images:
            for box in image.boxes:
                lines.writerow((image.name, box.label, *map(digits, box.sides)))
            if not image.boxes:
                lines.writerow((image.name, *[""] * 5))


def _checksum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{shorten(str(path))} can't be read ({error.strerror}): fetch the data again.") from error
