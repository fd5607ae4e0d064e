"""The images of a folder into a store."""

from __future__ import annotations

import numpy as np

from laptime.data.bands import in_words
from laptime.data.decode import MixedSizesError, Shape, decode_all, first_shape
from laptime.data.listing import Listing
from laptime.data.sources import Job
from laptime.data.store import Entry
from laptime.data.writer import Plan, Writer, publish, writing
from laptime.spec import DataKind


def ingest(listing: Listing, job: Job, where: str, kind: DataKind = "folder") -> Entry:
    """Decodes the images of a listing into a store; `where` names the folder in the store's meta.

    Raises:
        DataError: an image is unreadable, cut off or a decompression bomb, or lacks a band; or the disk is full.
    """
    shape = first_shape(listing.root / listing.train[0][0], job.bands)
    try:
        return _store(listing, shape, job, (kind, where))
    except MixedSizesError:
        side = job.workload.image_size
        return _store(listing, Shape((side, side), resize=True), job, (kind, where))


def _store(listing: Listing, shape: Shape, job: Job, source: tuple[DataKind, str]) -> Entry:
    height, width = shape.size
    plan = Plan(*source, listing.classes, len(listing.train), len(listing.test), height, width, shape.bands)
    notice = _notice(listing, shape)
    with writing(job.store, plan) as writer:
        _fill(writer, listing, shape, job)
        meta = publish(job.store, writer, notice)
    return Entry(meta.digest, source[0], notice)


def _fill(writer: Writer, listing: Listing, shape: Shape, job: Job) -> None:
    total, done = len(listing.train) + len(listing.test), 0
    job.say("decoding", 0, total)
    for split, images in (("train", listing.train), ("test", listing.test)):
        labels = np.array([label for _, label in images], dtype=np.int64)
        start = 0
        for block in decode_all(listing.root, [name for name, _ in images], shape):
            writer.add(split, block, labels[start : start + len(block)])
            start += len(block)
            job.say("decoding", done + start, total)
        done += start


def _notice(listing: Listing, shape: Shape) -> str:
    ignored = f"{listing.ignored} file(s) that are no images were ignored." if listing.ignored else ""
    height, width = shape.size
    resized = (
        f"images of mixed sizes were resized to {width}x{height}, not keeping their proportions."
        if shape.resize
        else ""
    )
    return _join(listing.notice, in_words(shape.bands), resized, ignored)


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
