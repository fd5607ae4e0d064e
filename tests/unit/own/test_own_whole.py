"""All training samples as one batch, read some at a time."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch.utils.data import TensorDataset, default_collate

from laptime.data.own import opened as own
from laptime.data.own.opened import OwnSplit

IMAGES, LABELS = torch.randn(11, 3, 4, 4), torch.arange(11)


@pytest.fixture
def some_at_a_time(monkeypatch):
    monkeypatch.setattr(own, "_AT_ONCE", 3 * (3 * 4 * 4 * 4 + 8))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_all_samples_are_read_in_parts_of_a_few_into_their_layout(some_at_a_time, layout):
    seen = []
    split = OwnSplit(TensorDataset(IMAGES, LABELS), lambda items: (seen.append(len(items)), default_collate(items))[1])
    images, labels = split.whole(torch.device("cpu"), layout)
    assert torch.equal(images, IMAGES)
    assert torch.equal(labels, LABELS)
    assert images.is_contiguous(memory_format=layout)
    assert seen == [1, 2, 3, 3, 3]  # one tells how many bytes an item has
    assert split.whole(torch.device("cpu"), layout)[0] is images
    assert len(seen) == 5


def test_few_samples_are_one_batch_and_none_is_read_alone(some_at_a_time):
    split = OwnSplit(TensorDataset(IMAGES[:5], LABELS[:5]), default_collate)
    assert torch.equal(split.whole()[0], IMAGES[:5])

    def of_two(items):
        assert len(items) > 1
        return default_collate(items)

    for count in range(2, 12):
        split = OwnSplit(TensorDataset(IMAGES[:count], LABELS[:count]), of_two)
        assert torch.equal(split.whole()[0], IMAGES[:count])


@pytest.mark.parametrize("last", [torch.zeros(4), torch.zeros(1), torch.zeros(3, dtype=torch.int64)])
def test_items_of_several_forms_are_what_the_collate_fn_makes_of_all(some_at_a_time, last, monkeypatch):
    monkeypatch.setattr(own, "_AT_ONCE", 3 * 12)
    items = [torch.randn(3) for _ in range(8)] + [last, last]
    split = OwnSplit(items, lambda some: torch.nn.utils.rnn.pad_sequence(some, batch_first=True))
    assert torch.equal(split.whole(), torch.nn.utils.rnn.pad_sequence(items, batch_first=True))


def test_all_samples_take_little_beside_themselves():
    code = """
import resource, torch
from torch.utils.data import Dataset, default_collate
from laptime.data.own import opened as own
class Images(Dataset):
    def __len__(self): return 3000
    def __getitem__(self, i): return torch.full((3, 100, 100), float(i)), i
own._AT_ONCE = 2**24
split = own.OwnSplit(Images(), default_collate)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
split.batch(range(100))
before = peak()
kept = split.whole()
print((peak() - before) / split.nbytes)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert float(told) < 1.4
