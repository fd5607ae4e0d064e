"""Where the data of detection comes from: a folder, an archive by path or address, a store, or drawn shapes."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from laptime.data.archive import inner_folder, is_archive, told_of, unpack
from laptime.data.boxes.columns import COLUMNS
from laptime.data.boxes.forms import FORMS, saying
from laptime.data.boxes.store import Told, data_spec, read_box_meta, store_folder, verify_boxes
from laptime.data.choices import BOXES, SEED, SIDE, read_seed, split_choices
from laptime.data.disk import partial_folder, sweep
from laptime.data.folder import fetch_anew, is_archive_url
from laptime.data.listing import scan
from laptime.data.meta import META
from laptime.data.net import shown
from laptime.data.sources import Job
from laptime.data.store import Entry
from laptime.errors import DataError, UsageError, shorten
from laptime.places import expanded, is_text
from laptime.spec import DataSpec

_DRAWN = ("auto", "synthetic")
_SIDES = (64, 2048)
# Folders are read differently by another version of these rules; part of the index key.
_RULES = 7
# Shapes are drawn differently by another version of these; part of the generator's seed.
_DRAWING = 1
NOTICE = (
    "GENERATED STAND-IN, NOT REAL DATA: shapes drawn by laptime, with their boxes. Times are comparable with those on "
    "photographs of these sizes; quality is not judged. Real data: --data DIR, a folder of images and their boxes."
)
_GIVE = (
    f"give a folder with images and their boxes ({FORMS}), an archive of one (a path, or an address with http(s)://), "
    "or synthetic"
)
_SHAPES = ("disc", "square")
# Height and width as photographs have them, in turn.
_SIZES = ((320, 480), (480, 320), (360, 480), (300, 300))


@dataclass(frozen=True)
class Asked:
    """What `--data` says of boxes: `PLACE#boxes=labels.csv#side=800#seed=1`.

    Attributes:
        table: the path below the folder of the file of boxes; empty to find it.
        side: pixels that the shorter side of an image becomes; None for the catalogue's.
        seed: of the split into training and test.
    """

    place: str
    table: str = ""
    side: int | None = None
    seed: int = 0

    @property
    def more(self) -> str:
        """What stands behind the place, as part of an index key."""
        return f"{self.table}|{self.side or ''}{f'|seed={self.seed}' if self.seed else ''}"


def split_asked(text: str) -> Asked:
    """Cuts what `--data` was given; raises UsageError for what can't stand behind a place of boxes."""
    for_boxes = f"images with boxes ({SIDE}800 is for their shorter side)"
    place, given = split_choices(text, (BOXES, SIDE, SEED), for_boxes)
    if given.get(BOXES) == "" or (BOXES in given and place in _DRAWN):
        raise UsageError(f"{BOXES} in {shorten(text)!r} names no file of boxes: leave it out.")
    side = given.get(SIDE)
    low, high = _SIDES
    if side is not None and not (side.isascii() and side.isdigit() and len(side) < 6 and low <= int(side) <= high):
        raise UsageError(f"{shorten(side)!r} behind {SIDE} is no side of an image: give {low} to {high} pixels.")
    return Asked(place, given.get(BOXES, ""), int(side) if side else None, read_seed(given.get(SEED)))


def fetch_boxes(job: Job, asked: str) -> DataSpec:
    """Brings data into the local store, or finds that it is there; see `laptime.data.fetch.fetch`.

    Raises:
        UsageError: there is no such source for boxes.
        DataError: the images or their boxes can't be used; the place is named.
    """
    wanted = split_asked(job.asked)
    store = _named_store(wanted)
    if store is not None:
        return data_spec(store, asked)
    sweep(job.store.root)
    entry = _from_source(job, wanted)
    return data_spec(job.store.folder(entry.digest), asked, entry.kind, entry.notice)


def look_for_boxes(job: Job) -> DataSpec | None:
    """Refuses what `fetch_boxes` would, as far as names on this machine tell; returns what is stored already.

    Raises:
        LaptimeError: as `fetch_boxes`.
    """
    wanted = split_asked(job.asked)
    store = _named_store(wanted)
    if store is not None:
        return data_spec(store, job.asked)
    _require_source(wanted)
    entry = job.store.recall(_key(job, wanted))
    if "://" not in wanted.place and (path := _local(wanted.place)).is_dir():
        _named_table(path, wanted)
    return data_spec(job.store.folder(entry.digest), job.asked) if entry else None


def verify_stored(job: Job, asked: str) -> DataSpec:
    """Checks every byte of what is stored for a source; never asks the network. Raises DataError."""
    wanted = split_asked(job.asked)
    store = _named_store(wanted)
    if store is not None:
        verify_boxes(store)
        return data_spec(store, asked)
    entry = job.store.recall(_key(job, wanted))
    if entry is None:
        raise job.nothing_stored(asked)
    verify_boxes(job.store.folder(entry.digest))
    return data_spec(job.store.folder(entry.digest), asked, entry.kind, entry.notice)


def _named_store(asked: Asked) -> Path | None:
    """The store whose folder is given as the place, None for other places.

    Raises:
        UsageError: a file of boxes, a seed or another side is asked for, which were chosen when the store was written.
    """
    if "://" in asked.place or asked.place in _DRAWN:
        return None
    path = _local(asked.place)
    if not (path / META).is_file():
        return None
    chosen = f"{BOXES}{asked.table}" if asked.table else f"{SEED}{asked.seed}" if asked.seed else f"{SIDE}{asked.side}"
    if asked.table or asked.seed or (asked.side and asked.side != read_box_meta(path).side):
        raise UsageError(
            f"the store {path} was not written with {shorten(chosen)}: give the folder that it was made of, with that "
            "behind it."
        )
    return path


def _local(place: str) -> Path:
    """The path of a place on this machine; raises DataError where no record could hold it."""
    path = expanded(place).resolve()
    if not is_text(str(path)):
        raise DataError(f"{shorten(str(path))} has a name that is no UTF-8: rename it.")
    return path


def _require_source(asked: Asked) -> None:
    scheme, found, _ = asked.place.partition("://")
    if asked.place == "official" or (found and (scheme not in ("http", "https") or not is_archive_url(asked.place))):
        raise UsageError(f"{shorten(asked.place)!r} is no source of boxes: {_GIVE}.")


def _from_source(job: Job, asked: Asked) -> Entry:
    _require_source(asked)
    place, key = asked.place, _key(job, asked)
    if "://" in place:
        return fetch_anew(place, key, job, lambda archive: _unpacked(job, archive, asked))
    before = job.store.recall(key)
    if before is not None:
        return before
    if place in _DRAWN:
        return job.store.remember(key, _drawn(job, asked))
    path = _local(place)
    if path.is_file():
        return job.store.remember(key, _unpacked(job, path, asked))
    return job.store.remember(key, _stored(job, path, asked))


def _key(job: Job, asked: Asked) -> str:
    """What tells a source and its state: a folder that was changed since is another one; raises DataError."""
    place, table = asked.place, asked.more
    if place in _DRAWN:
        counts = f"{job.workload.train_count}+{job.workload.test_count}"
        return f"boxes/{_RULES}|synthetic|{counts}|{table}"
    if "://" in place:
        return f"boxes/{_RULES}|{place}|{table}"
    path = _local(place)
    if path.is_file() and is_archive(path.name):
        return f"boxes/{_RULES}|{path}|{_state(path)}|{table}"
    if not path.is_dir():
        wrong = "is no folder and no archive" if path.exists() else "does not exist"
        raise DataError(f"{shorten(place)!r} {wrong}: {_GIVE}.")
    # Other files of boxes say which images are not this one's.
    tables = {*saying(path), *([path / asked.table] if (path / asked.table).is_file() else ())}
    told = "".join(f"{p}|{_state(p)}|" for p in sorted(tables)).encode(errors="surrogateescape")
    states = hashlib.sha256(told).hexdigest()
    return f"boxes/{_RULES}|{path}|{scan(path).key}|{states}|{table}"


def _state(path: Path) -> str:
    try:
        stat = path.stat()
    except OSError as error:
        raise DataError(f"{path} can't be read ({error.strerror}): restore or remove it.") from error
    return f"{stat.st_size}:{stat.st_mtime_ns}"


def _named_table(root: Path, asked: Asked) -> None:
    """Refuses a file or folder of boxes that is not below the folder; raises UsageError."""
    path = Path(os.path.normpath(root / asked.table))
    if asked.table and not (path.is_file() or (path.is_dir() and path.is_relative_to(root))):
        raise UsageError(
            f"{shorten(asked.table)!r} behind {BOXES} is no file or folder in {root}: give its path below it."
        )


def _stored(job: Job, root: Path, asked: Asked) -> Entry:
    _named_table(root, asked)
    told = Told("folder", shown(asked.place), side=asked.side, seed=asked.seed)
    meta = store_folder(root, asked.table, job.store, told, job.say)
    return Entry(meta.digest, "folder", meta.notice)


def _unpacked(job: Job, archive: Path, asked: Asked) -> Entry:
    with partial_folder(job.store.root) as folder:
        job.say("unpacking", 0, 0)
        unpack(archive, folder)
        with told_of(shown(asked.place), folder):
            return _stored(job, inner_folder(folder), asked)


def _drawn(job: Job, asked: Asked) -> Entry:
    count = job.workload.train_count + job.workload.test_count
    with partial_folder(job.store.root) as folder:
        draw_shapes(folder, count)
        meta = store_folder(
            folder, "", job.store, Told("synthetic", "synthetic", NOTICE, asked.side, asked.seed), job.say
        )
    return Entry(meta.digest, "synthetic", meta.notice)


def draw_shapes(folder: Path, count: int) -> None:
    """Draws images of one to three shapes on noise, and writes the CSV of their boxes beside them.

    From a generator whose stream is fixed (PCG64's raw output), so that machines draw the same.
    """
    stream = np.random.PCG64([_DRAWING, count])
    lines = [",".join(COLUMNS)]
    for number in range(count):
        height, width = _SIZES[number % len(_SIZES)]
        image = Image.fromarray(_noise(stream, height, width))
        pen = ImageDraw.Draw(image)
        for _ in range(1 + _below(stream, 3)):
            side = height // 6 + _below(stream, height // 4)
            left, top = _below(stream, width - side), _below(stream, height - side)
            kind, shade = _below(stream, len(_SHAPES)), 160 + _below(stream, 90)
            sides = (left, top, left + side - 1, top + side - 1)
            (pen.ellipse if kind == 0 else pen.rectangle)(sides, fill=(shade, 255 - shade, 40 + 120 * kind))
            lines.append(f"{number:04}.png,{_SHAPES[kind]},{left},{top},{left + side},{top + side}")
        image.save(folder / f"{number:04}.png", compress_level=1)
    (folder / "shapes.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _below(stream: np.random.PCG64, limit: int) -> int:
    return int(stream.random_raw()) % limit


def _noise(stream: np.random.PCG64, height: int, width: int) -> NDArray[np.uint8]:
    """Grey noise in squares of 8 pixels, uint8 [H, W, 3]."""
    rows, columns = -(-height // 8), -(-width // 8)
    raw = np.asarray(stream.random_raw(rows * columns), dtype=np.uint64)
    grey = ((raw >> np.uint64(33)) % np.uint64(96)).astype(np.uint8).reshape(rows, columns) + np.uint8(40)
    whole = grey.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
    return np.ascontiguousarray(whole[:, :, None].repeat(3, axis=2))
