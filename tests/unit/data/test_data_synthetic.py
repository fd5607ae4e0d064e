"""The stand-in: the same on every machine, balanced, learnable, and said to be one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from laptime.catalogue import find_workload
from laptime.data.sources import Job, quiet
from laptime.data.store import Store
from laptime.data.synthetic import NOTICE, Synthetic, block


def test_it_is_the_same_everywhere() -> None:
    images, labels = block(0, 0, 32)
    assert (images.shape, images.dtype) == ((500, 32, 32, 3), np.uint8)
    assert np.bincount(labels).tolist() == [50] * 10
    assert hashlib.sha256(images.tobytes()).hexdigest()[:16] == "f11f44c573f948b0"


def test_other_blocks_are_other_images() -> None:
    train, test, later = block(0, 0, 32)[0], block(1, 0, 32)[0], block(0, 500, 32)[0]
    assert not np.array_equal(train, test)
    assert not np.array_equal(train, later)


def test_other_sizes() -> None:
    assert block(0, 0, 64)[0].shape == (500, 64, 64, 3)


def test_a_small_one_begins_as_the_large(tmp_path: Path) -> None:
    job = Job(find_workload("cifar"), "synthetic", Store(tmp_path), quiet)
    entry = Synthetic(700, 20).fetch(job)
    data = job.store.spec(entry, "synthetic")
    assert (data.kind, data.train_count, data.test_count, data.notice) == ("synthetic", 700, 20, NOTICE)
    assert np.array_equal(np.load(Path(data.path) / "train_images.npy")[500:], block(0, 500, 32)[0][:200])
    assert Synthetic(700, 20).fetch(job) == entry


def test_a_grating_tells_the_class_more_often_than_chance() -> None:
    # The nearest mean spectrum, of 1,500 images: far from chance (10 %), far from perfect.
    parts = [block(0, 500 * i, 32) for i in range(4)]
    spectra = [np.abs(np.fft.rfft2(images.mean(axis=3))) for images, _ in parts]
    labels = np.concatenate([labels for _, labels in parts[:3]])
    known = np.concatenate(spectra[:3])
    means = np.stack([known[labels == c].mean(axis=0) for c in range(10)])
    distance = ((spectra[3][:, None] - means[None]) ** 2).sum(axis=(2, 3))
    share = float((distance.argmin(axis=1) == parts[3][1]).mean())
    assert 0.3 < share < 0.9
