"""A generated stand-in: shapes and sizes of the real data, learnable, and never mistaken for it.

Each image carries three cues: the direction and frequency of a grating, a shape, and the shape's colour.
Each cue tells the class with probability 0.7 and else is drawn at random, so that no net gets everything
right (the best guess is right about 87 times in 100) and one that sees a single cue stays near 73.

Everything is computed in integers from a generator whose stream is fixed (PCG64's raw output), so that
machines and versions of numpy agree to the bit.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from laptime.data.sources import Job
from laptime.data.store import Entry
from laptime.data.writer import Images, Labels, Plan, publish, writing
from laptime.errors import UsageError

VERSION = 1
NOTICE = (
    "GENERATED STAND-IN, NOT REAL DATA: the images were made by laptime. Times are comparable with those "
    "on real data of this shape; quality is not judged."
)
CLASSES = tuple(f"pattern-{i}" for i in range(10))

_BLOCK = 500
_CUE_OF_256 = 180
_NOISE = 52
_SINE = np.array([round(127 * math.sin(2 * math.pi * i / 256)) for i in range(256)], dtype=np.int16)
# Phase steps by pixel along x and y, in 1/256 of a turn; scaled with the image, so that it shows as many
# waves.
_WAVES = np.array(
    [(24, 0), (0, 24), (17, 17), (17, -17), (48, 0), (0, 48), (34, 34), (34, -34), (44, 18), (18, -44)],
    dtype=np.int32,
)
_HUES = np.array(
    [
        (70, -40, -40),
        (-40, 70, -40),
        (-40, -40, 70),
        (60, 60, -50),
        (60, -50, 60),
        (-50, 60, 60),
        (70, 70, 70),
        (-70, -70, -70),
        (75, 15, -60),
        (-60, 15, 75),
    ],
    dtype=np.int16,
)

Ints = NDArray[np.int32]


class Synthetic:
    """The stand-in, with as many images as the workload's real data unless told otherwise."""

    def __init__(self, train_count: int | None = None, test_count: int | None = None) -> None:
        self.given = (train_count, test_count)

    def stored(self, job: Job) -> Entry | None:
        """See Source."""
        return job.store.recall(self._key(job))

    def fetch(self, job: Job) -> Entry:
        """See Source; fails for want of room, or where bands are asked for."""
        if job.bands:
            raise UsageError("the stand-in has three channels and no bands: leave out #bands=, or give real images.")
        return self.stored(job) or job.store.remember(self._key(job), self._make(job))

    def _counts(self, job: Job) -> dict[str, int]:
        train, test = self.given
        return {
            "train": job.workload.train_count if train is None else train,
            "test": job.workload.test_count if test is None else test,
        }

    def _key(self, job: Job) -> str:
        counts = self._counts(job)
        return f"synthetic/{VERSION}|{job.workload.image_size}|{counts['train']}|{counts['test']}"

    def _make(self, job: Job) -> Entry:
        side, counts = job.workload.image_size, self._counts(job)
        plan = Plan("synthetic", "synthetic", CLASSES, counts["train"], counts["test"], side, side)
        total, done = sum(counts.values()), 0
        with writing(job.store, plan) as writer:
            for number, (split, count) in enumerate(counts.items()):
                for start in range(0, count, _BLOCK):
                    images, labels = block(number, start, side)
                    keep = min(_BLOCK, count - start)
                    writer.add(split, images[:keep], labels[:keep])
                    done += keep
                    job.say("generating", done, total)
            meta = publish(job.store, writer, NOTICE)
        return Entry(meta.digest, "synthetic", NOTICE)


def block(split: int, start: int, side: int) -> tuple[Images, Labels]:
    """One block: images uint8 [500, side, side, 3] and labels [500], whatever else is generated.

    Args:
        split: 0 for train, 1 for test.
        start: index of the block's first image.
        side: height and width.
    """
    stream = np.random.PCG64([VERSION, split, start])
    labels = (np.arange(start, start + _BLOCK) % len(CLASSES)).astype(np.int64)
    wave, shape, hue = (_cue(stream, labels) for _ in range(3))
    texture = _texture(stream, wave, side)
    mask = _shapes(stream, shape, side)
    base = 70 + _draw(stream, (_BLOCK, 3), 116).astype(np.int16)
    gain = 24 + _draw(stream, (_BLOCK,), 40).astype(np.int16)
    image = np.zeros((_BLOCK, side, side, 3), dtype=np.int16)
    image += base[:, None, None, :]
    image += ((texture * gain[:, None, None]) >> 7)[..., None]
    image += mask[..., None] * _HUES[hue][:, None, None, :]
    image += _noise(stream, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8), labels


def _draw(stream: np.random.PCG64, shape: tuple[int, ...], below: int) -> Ints:
    """Whole numbers from 0 to below-1; the bias of the remainder is far below what matters here."""
    raw = np.asarray(stream.random_raw(math.prod(shape)), dtype=np.uint64)
    return ((raw >> np.uint64(33)) % np.uint64(below)).astype(np.int32).reshape(shape)


def _cue(stream: np.random.PCG64, labels: Labels) -> Ints:
    right = _draw(stream, labels.shape, 256) < _CUE_OF_256
    return np.where(right, labels, _draw(stream, labels.shape, len(CLASSES))).astype(np.int32)


def _noise(stream: np.random.PCG64, shape: tuple[int, ...]) -> NDArray[np.int16]:
    count = math.prod(shape)
    raw = np.asarray(stream.random_raw(-(-count // 8)), dtype="<u8").view(np.uint8)[:count]
    return (((raw.astype(np.int16) - 128) * _NOISE) >> 7).reshape(shape)


def _texture(stream: np.random.PCG64, wave: Ints, side: int) -> NDArray[np.int16]:
    steps = _WAVES[wave] * 32 // side + _draw(stream, (len(wave), 2), 9) - 4
    at = np.arange(side, dtype=np.int32)
    phase = _draw(stream, (len(wave), 1, 1), 256) + steps[:, 0, None, None] * at + steps[:, 1, None, None] * at[:, None]
    texture: NDArray[np.int16] = _SINE[phase & 255]
    return texture


def _shapes(stream: np.random.PCG64, shape: Ints, side: int) -> NDArray[np.int16]:
    """Masks [N, side, side] of 0 and 1: a shape of random size at a random place."""
    radius = (side // 6 + _draw(stream, shape.shape, max(1, side // 8)))[:, None, None]
    span = side // 2
    at = np.arange(side, dtype=np.int32)
    u = at - (side // 4 + _draw(stream, shape.shape, span))[:, None, None]
    v = at[:, None] - (side // 4 + _draw(stream, shape.shape, span))[:, None, None]
    mask = np.zeros((len(shape), side, side), dtype=np.int16)
    for number in range(len(CLASSES)):
        chosen = shape == number
        mask[chosen] = _shape(number, u[chosen], v[chosen], radius[chosen])
    return mask


def _shape(number: int, u: Ints, v: Ints, r: Ints) -> NDArray[np.bool_]:
    across, down = np.abs(u), np.abs(v)
    inside = np.maximum(across, down) <= r
    square = u * u + v * v
    shapes = (
        lambda: square <= r * r,
        lambda: inside,
        lambda: across + down <= r,
        lambda: (square <= r * r) & (4 * square >= r * r),
        lambda: inside & ((3 * across <= r) | (3 * down <= r)),
        lambda: inside & (np.abs(across - down) <= r // 3),
        lambda: inside & (3 * down <= r),
        lambda: inside & (3 * across <= r),
        lambda: inside & (2 * across <= v + r),
        lambda: inside & (((u >> 1) + (v >> 1)) % 2 == 0),
    )
    return np.asarray(shapes[number]())
