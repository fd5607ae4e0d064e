"""Tensors and limits."""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from data_samples import MakeFolder
from hypothesis import given
from hypothesis import strategies as st

from laptime.data.fetch import fetch
from laptime.data.limits import check_limits
from laptime.data.tensors import limit, limited, open_tensors
from laptime.errors import UsageError
from laptime.optimizations.data import ItemDataset


def test_open(make_folder: MakeFolder, home: Path) -> None:
    data = fetch("cifar", str(make_folder()), home)
    found = open_tensors(data)
    assert (found.train.images.dtype, found.train.images.shape) == (torch.uint8, (12, 32, 32, 3))
    assert (found.test.labels.dtype, len(found.test)) == (torch.int64, 12)
    assert found.classes == data.classes
    assert found.mean == pytest.approx((0.5, 0.5, 0.5), abs=0.02)
    assert torch.equal(open_tensors(Path(data.path)).test.images, found.test.images)
    before = np.load(Path(data.path) / "train_images.npy")
    found.train.images.zero_()
    assert np.array_equal(np.load(Path(data.path) / "train_images.npy"), before)


def test_limits(make_folder: MakeFolder, home: Path) -> None:
    data = fetch("cifar", str(make_folder()), home)
    train = open_tensors(data).train
    assert sorted(limit(train, 3).labels.tolist()) == [0, 1, 2]
    assert torch.equal(limit(train, 3).images, limit(train, 5).images[:3])
    assert limit(train, None) is train
    assert limit(train, 12) is train
    with pytest.raises(UsageError, match="--limit-train 13 is more than the 12 train"):
        limit(train, 13)
    check_limits(data, 12, None)
    with pytest.raises(UsageError, match="--limit-test 99 is more than the 12 test"):
        check_limits(data, 12, 99)
    with pytest.raises(UsageError, match="--limit-train -3"):
        check_limits(data, -3, None)


@pytest.mark.parametrize("count", [None, 7])
def test_the_images_of_a_store_are_not_sent_to_loader_workers(
    make_folder: MakeFolder, home: Path, count: int | None
) -> None:
    data = open_tensors(fetch("cifar", str(make_folder()), home))
    data = replace(data, train=limit(data.train, count))
    dataset = ItemDataset(data)
    sent = pickle.dumps(dataset)
    assert len(sent) < data.train.images.nbytes / 8
    there = pickle.loads(sent)
    assert len(there) == len(dataset) == (count or 12)
    for index in range(len(dataset)):
        assert torch.equal(there[index][0], dataset[index][0])
        assert there[index][1] == dataset[index][1]
    assert len(pickle.dumps(there)) == len(sent)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.data())
def test_a_limit_holds_every_class_by_its_share(labels: list[int], data: st.DataObject) -> None:
    array = np.array(labels, dtype=np.int64)
    n = data.draw(st.integers(1, len(labels)))
    chosen = limited(array, n)
    assert len(set(chosen.tolist())) == n
    counts = np.bincount(array, minlength=7)
    kept = np.bincount(array[chosen], minlength=7)
    if n >= np.count_nonzero(counts):
        assert np.array_equal(kept > 0, counts > 0)
    assert np.all(np.abs(kept - counts * n / len(labels)) < 7)


def test_the_order_is_fixed() -> None:
    labels = np.arange(1000, dtype=np.int64) % 10
    assert limited(labels, 6).tolist() == ORDER


ORDER = [410, 821, 572, 503, 254, 735]


def test_the_data_layer_starts_without_torch() -> None:
    code = "import sys, laptime.data.__main__, laptime.ladder.data; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
