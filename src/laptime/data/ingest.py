"""The images of a folder into a store."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from laptime.data.bands import in_words
from laptime.data.decode import MixedSizesError, Shape, decode_all, first_shape, is_deep_picture
from laptime.data.listing import Listing
from laptime.data.sources import Job
from laptime.data.split import both_sides
from laptime.data.store import Entry
from laptime.data.writer import Plan, Writer, publish, writing
from laptime.errors import DataError
from laptime.spec import DataKind

# Larger photographs are resized unless a size is given: a store holds every pixel, and a small net sees most of them
# at full depth.
_LARGEST_KEPT = 256
_DEEP = (
    "TIFFs of 16 bits without geographic tags were taken for pictures in which 65535 is white; behind the folder "
    "#bands=1,2,3 reads them as measured values."
)


def ingest(listing: Listing, job: Job, where: str, kind: DataKind = "folder") -> Entry:
    """Decodes the images of a listing into a store; `where` names the folder in the store's meta.

    Raises:
        DataError: an image is unreadable, cut off or a decompression bomb, or lacks a band; or the disk is full.
    """
    first = first_shape(listing.root / listing.train[0][0], job.bands)
    if job.size and first.bands:
        raise DataError(f"{listing.root} holds bands of 16 bits, which are never resized: leave out #size=.")
    side = job.workload.image_size
    small = Shape((side, side), resize=True)
    if job.size:
        return _store(listing, Shape(job.size, resize=True), job, (kind, where, "Images of another size"))
    if max(first.size) > _LARGEST_KEPT and not first.bands:
        return _store(listing, small, job, (kind, where, f"Images of more than {_LARGEST_KEPT} pixels a side"))
    try:
        return _store(listing, first, job, (kind, where, ""))
    except MixedSizesError:
        return _store(listing, small, job, (kind, where, "Images of mixed sizes"))


def _store(listing: Listing, shape: Shape, job: Job, source: tuple[DataKind, str, str]) -> Entry:
    """Writes a store; the source is its kind, where it is, and which images are resized."""
    height, width = shape.size
    plan = Plan(*source[:2], listing.classes, len(listing.train), len(listing.test), height, width, shape.bands)
    deep = not shape.bands and is_deep_picture(listing.root / listing.train[0][0])
    notice = _join(_notice(listing, shape, source[2], asked=job.size is not None), _DEEP if deep else "")
    with writing(job.store, plan) as writer:
        notice = _join(notice, both_sides(_fill(writer, listing, shape, job)))
        meta = publish(job.store, writer, notice)
    return Entry(meta.digest, source[0], notice)


def _fill(writer: Writer, listing: Listing, shape: Shape, job: Job) -> list[str]:
    """Decodes both sides into a store.

    Returns:
        The images of the test whose pixels are those of an image of the training.
    """
    total, done = len(listing.train) + len(listing.test), 0
    job.say("decoding", 0, total)
    trained, both = set[bytes](), list[str]()
    for split, images in (("train", listing.train), ("test", listing.test)):
        labels = np.array([label for _, label in images], dtype=np.int64)
        start = 0
        for block in decode_all(listing.root, [name for name, _ in images], shape):
            writer.add(split, block, labels[start : start + len(block)])
            pixels = [blake2b(np.ascontiguousarray(image).data, digest_size=16).digest() for image in block]
            if split == "train":
                trained.update(pixels)
            else:
                both += [name for (name, _), of in zip(images[start:], pixels, strict=False) if of in trained]
            start += len(block)
            job.say("decoding", done + start, total)
        done += start
    return both


def _notice(listing: Listing, shape: Shape, which: str, asked: bool) -> str:
    ignored = f"{listing.ignored} file(s) that are no images were ignored." if listing.ignored else ""
    height, width = shape.size
    remedy = "" if asked else "; #size=WIDTHxHEIGHT behind the folder chooses another size"
    resized = f"{which} were resized to {width}x{height}, not keeping their proportions{remedy}." if which else ""
    return _join(listing.notice, in_words(shape.bands), resized, ignored)


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
