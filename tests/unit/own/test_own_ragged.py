"""Batches that can't be cut: tokens or frames in a row, time first, lengths in a list, images in lists of any sizes."""

import sys

import pytest
from tests.own_files import own_spec, write
from tests.unit.own.test_own_lists import DETECTOR

from laptime.engine.build import build, make_recipe, open_data
from laptime.measure.epochs import Plan, Session
from laptime.measure.marks import StepMarks
from laptime.preflight.inspecting import inspect

# Recordings of any length, frames first, and texts in a row, as CTC takes them; the loss notes what comes.
SPEECH = """
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

SEEN = []

class Recordings(torch.utils.data.Dataset):
    def __init__(self, first, last):
        self.numbers = range(first, last)

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        drawn = torch.Generator().manual_seed(self.numbers[i])
        text = torch.randint(1, 5, (2 + self.numbers[i] % 3,), generator=drawn)
        return torch.rand(4 * len(text), 6, generator=drawn), text

def collate(items):
    frames, texts = zip(*items)
    lengths, sizes = (torch.tensor([len(each) for each in side]) for side in (frames, texts))
    return {"lengths": lengths, "sizes": sizes, "frames": pad_sequence(frames), "texts": torch.cat(texts)}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.head = nn.LSTM(6, 8), nn.Linear(8, 5)

    def forward(self, frames, lengths):
        packed, _ = self.rows(pack_padded_sequence(frames, lengths, enforce_sorted=False))
        return self.head(pad_packed_sequence(packed)[0]).log_softmax(-1)

class Workload:
    batch_size = 4
    collate_fn = staticmethod(collate)

    def data(self):
        return Recordings(0, 14), Recordings(14, 18)

    def model(self):
        return Net()

    def loss(self, model, batch):
        lengths, sizes, texts = batch["lengths"], batch["sizes"], batch["texts"]
        SEEN.append((len(sizes), len(texts) == sizes.sum()))
        return nn.functional.ctc_loss(model(batch["frames"], lengths), texts, lengths, sizes)
"""
# The lengths as numbers in a list, behind the rest.
LISTED = (
    ('"lengths": lengths, "sizes": sizes,', '"sizes": sizes, "lengths": lengths.tolist(),'),
    ("lengths, sizes, texts = batch", "lengths, sizes, texts = torch.tensor(batch"),
    ('batch["lengths"], batch["sizes"]', 'batch["lengths"]), batch["sizes"]'),
)
# What a detector's loss sees of its lists.
IMAGES = (
    ("class Things", "SEEN = []\n\nclass Things"),
    ("images, targets = batch\n", "images, targets = batch\n        SEEN.append((len(images), len(images[0]) == 3))\n"),
    ("Things(0, 12)", "Things(0, 11)"),
)


def warmed_up(file, module, size: int, *chosen: str) -> list[tuple[int, bool]]:
    """What each step of a warm-up has seen that is cut to one step: samples, and whether what belongs to them came.

    Behind them stands the pass that looks whether the first batch's loss is what it was.
    """
    variant = "+".join(("cpu-baseline", *chosen))
    spec = own_spec(inspect(file), variant, batch_size=size, warmup_epochs=1, check=False)
    recipe, marks = make_recipe(spec, open_data(spec), spec.optimizations), StepMarks()
    session = Session(build(recipe, marks), recipe, marks, lambda *_: None)
    seen = sys.modules[module].SEEN
    seen.clear()
    session.warm_up(Plan(1, 1, 1))
    return list(seen)


@pytest.mark.parametrize("changes", [(), LISTED], ids=["tensors", "lists"])
@pytest.mark.parametrize("chosen", [(), ("fused-optimizer",)], ids=["baseline", "fused"])
def test_the_last_smaller_batch_is_what_the_collate_fn_makes_of_so_many_items(file, changes, chosen):
    name = write(file, SPEECH, *changes)
    assert warmed_up(name, file.stem, 4, *chosen) == [(4, True), (2, True), (4, True)]


def test_the_last_smaller_batch_of_lists_has_fewer_samples_and_not_fewer_channels(file):
    name = write(file, DETECTOR, *IMAGES)
    assert warmed_up(name, file.stem, 3) == [(3, True), (2, True), (3, True)]


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_sum_over_the_samples_is_known_where_batches_can_not_be_cut(file, reduction):
    change = ("texts, lengths, sizes)", f'texts, lengths, sizes, reduction="{reduction}")')
    refused = inspect(write(file, SPEECH, change)).own.refused
    assert ("is a sum over the samples" in refused.get("large-batch", "")) is (reduction == "sum")
