"""Batches that a user's data set reads at once, samples that a collate_fn drops, and what reading them changes."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import run

from laptime.data.own.opened import open_own
from laptime.errors import RunError
from laptime.preflight.inspecting import inspect

_PLAIN = TUPLE.replace("nn.Dropout(), ", "")
_TOGETHER = """
class Items(Dataset):
    def __init__(self, first, last):
        self.first, self.count = first, last - first

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return X[self.first + index], Y[self.first + index]

    def __getitems__(self, indices):
        mean = X[[self.first + i for i in indices]].mean(0)
        return [(x - mean, y) for x, y in map(self.__getitem__, indices)]


class Workload:
"""
_GIVEN = "return TensorDataset(X[:64], Y[:64]), TensorDataset(X[64:], Y[64:])"
_OF_ITEMS = (_GIVEN, "return Items(0, 64), torch.utils.data.Subset(Items(64, 96), range(32))")
_DROPPING = """
def kept(items):
    return torch.utils.data.default_collate([item for item in items if not torch.equal(item[0], X[40])])


class Workload:
    collate_fn = staticmethod(kept)
"""
_COUNTING = """
import itertools
import multiprocessing
import random

import numpy as np


class Noisy(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels
        self.last, self.kept, self.read, self.of_numpy = 0, {}, 0, np.random.default_rng(0)
        self.of_torch, self.of_python = torch.Generator(), random.Random(0)
        self.views, self.seen, self.shared = np.zeros(len(images)), torch.zeros(1), multiprocessing.Value("i", 0)
        self.turns, self.shown = itertools.count(), iter(range(9999))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        self.last = self.kept[index] = index
        CHANGED
        return self.images[index], self.labels[index]


class Masked:
    drawn = 0

    def __init__(self):
        self.batches = 0

    def __call__(self, items):
        MADE
        return torch.utils.data.default_collate(items)


class Workload:
    collate_fn = Masked()
"""
_OF_NOISY = (_GIVEN, "return Noisy(X[:64], Y[:64]), Noisy(X[64:], Y[64:])")


def noticed(file, changed="pass", made="pass"):
    text = _COUNTING.replace("CHANGED", changed).replace("MADE", made)
    return inspect(write(file, _PLAIN, ("\nclass Workload:\n", text), _OF_NOISY)).notice


def test_items_of_a_batch_are_read_at_once_as_dataloader_reads_them(file):
    found = inspect(write(file, _PLAIN, ("\nclass Workload:\n", _TOGETHER), _OF_ITEMS))
    data = open_own(file, "Workload")
    for split in (data.train, data.test):
        images, _ = split.batch(range(8))
        assert torch.allclose(images.mean(0), torch.zeros(3, 8, 8), atol=1e-6)
    assert "resident" in found.own.refused


def test_what_fails_in_a_batch_read_at_once_is_told_with_its_line(file):
    failing = _TOGETHER.replace("        mean = ", "        raise ValueError('no such rows')\n        mean = ")
    with pytest.raises(RunError, match=r"reading items \[0, 1.*at once of the training data.*no such rows.*raise Val"):
        inspect(write(file, _PLAIN, ("\nclass Workload:\n", failing), _OF_ITEMS))


def test_samples_that_a_collate_fn_drops_are_not_taken_for_others(file):
    found = inspect(write(file, _PLAIN, ("\nclass Workload:\n", _DROPPING)))
    assert found.own.refused["resident"] == "its collate_fn makes 7 samples of items 40 to 47"
    train = open_own(file, "Workload").train
    assert len(train.batch(range(32, 48))[0]) == 15
    with pytest.raises(ValueError, match=r"collate_fn made 63 samples of 64 items.*leave resident out"):
        train.whole()


@pytest.mark.parametrize(("first", "dropped"), [(3, "item 3"), (2, "items 2, 3")])
def test_samples_that_a_collate_fn_drops_from_the_first_batch_are_told_by_their_numbers(file, first, dropped):
    kept = _DROPPING.replace(
        "not torch.equal(item[0], X[40])", f"not any(torch.equal(item[0], x) for x in X[{first}:4])"
    )
    seen = rf"holds {4 + first} samples, since its collate_fn drops {dropped} \({file.name}, line \d+: def kept.*Subset"
    with pytest.raises(RunError, match=seen):
        inspect(write(file, _PLAIN, ("\nclass Workload:\n", kept)))


def test_a_batch_in_which_no_item_counts_does_not_blame_single_ones(file):
    constant = "    collate_fn = staticmethod(lambda items: (torch.zeros(3), torch.ones(4)))\n"
    with pytest.raises(RunError, match=r"begins with \[\(3,\)\]"):
        inspect(write(file, _PLAIN, ("\nclass Workload:\n", "\nclass Workload:\n" + constant)))


def test_a_nested_tensor_is_refused_with_what_to_give_instead(file):
    made = "torch.nested.nested_tensor([i[0][0] for i in items], layout=torch.jagged)"
    nested = f"    collate_fn = staticmethod(lambda items: (torch.arange(len(items)), {made}))\n"
    with pytest.raises(RunError, match=r"holds a nested tensor.*let collate_fn give a list of the samples"):
        inspect(write(file, _PLAIN, ("\nclass Workload:\n", "\nclass Workload:\n" + nested)))


@pytest.mark.parametrize(
    ("changed", "made", "name"),
    [
        ("self.read += 1", "pass", "read of its Noisy"),
        ("self.of_numpy.random()", "pass", "of_numpy of its Noisy"),
        ("torch.rand(1, generator=self.of_torch)", "pass", "of_torch of its Noisy"),
        ("self.of_python.random()", "pass", "of_python of its Noisy"),
        ("self.views[index] += 1", "pass", "views of its Noisy"),
        ("self.seen += 1", "pass", "seen of its Noisy"),
        ("self.shared.value += 1", "pass", "shared of its Noisy"),
        ("next(self.turns)", "pass", "turns of its Noisy"),
        ("pass", "self.batches += 1", "batches of its Masked"),
    ],
)
def test_what_reading_items_changes_in_objects_is_told(file, changed, made, name):
    notice = noticed(file, changed, made)
    assert f"changes {name} " in notice
    assert "goes on from the warm-up" in notice


@pytest.mark.parametrize(
    "shown",
    [
        "self.images[next(self.shown) % len(self)]",
        "X[index].add_(1)",
        "self.images[index] + os.urandom(1)[0]",
    ],
)
def test_items_that_are_others_by_what_has_no_name_are_told(shown, file):
    """A stream that heeds no index, a view that is changed in place, and numbers that no seed gives."""
    text = _COUNTING.replace("CHANGED", "import os").replace("MADE", "pass")
    text = text.replace("return self.images[index],", f"return {shown},")
    notice = inspect(write(file, _PLAIN, ("\nclass Workload:\n", text), _OF_NOISY)).notice
    assert f"items of {file.name} ({file.name}, line " in notice
    assert "are others when they are read again with the same random numbers" in notice
    assert "collate_fn draws" not in notice


@pytest.mark.parametrize("drawn", ["THE.drawn.random()", "SHARED.random()"])
def test_items_that_draw_from_what_a_run_puts_back_are_not_told(drawn, file):
    """A generator of the workload or a global begins anew behind the warm-up, and stands in checkpoints."""
    text = _COUNTING.replace("CHANGED", "pass").replace("MADE", "pass")
    text = text.replace("return self.images[index],", f"return self.images[index] + {drawn},")
    text = text.replace("import numpy as np\n", "import numpy as np\n\nSHARED = np.random.default_rng(0)\n")
    begun = "    batch_size = 16\n\n    def __init__(self):\n        global THE\n        THE = self\n"
    begun += "        self.drawn = np.random.default_rng(0)\n"
    changes = (("\nclass Workload:\n", text), ("    batch_size = 16\n", begun), _OF_NOISY)
    assert inspect(write(file, _PLAIN, *changes)).notice.count("goes on from the warm-up") == 0


def test_what_a_reading_notes_or_keeps_once_is_not_told(file):
    assert noticed(file, "torch.rand(1)") == ""


_READY = """
class Ready(Dataset):
    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return {"x": self.images[index], "y": self.labels[index]}

    def __getitems__(self, indices):
        return {"x": self.images[indices], "y": self.labels[indices]}


class Workload:
    collate_fn = staticmethod(lambda batch: batch)
"""


@pytest.mark.parametrize("variant", ["cpu-baseline", "cpu-resident", "cpu-baseline+workers:count=1"])
def test_what_is_read_at_once_may_be_a_batch(file, variant, tmp_path):
    of_items = _GIVEN.replace("TensorDataset", "Ready")
    changes = (("\nclass Workload:\n", _READY), (_GIVEN, of_items), ("x, y = batch", 'x, y = batch["x"], batch["y"]'))
    losses = []
    for text in (_PLAIN, write(file, _PLAIN, *changes) and file.read_text(encoding="utf-8")):
        data = inspect(write(file, text))
        found = run(own_spec(data, variant, learning_rate=0.01, epochs=2), tmp_path / str(len(losses)))
        assert found.error is None
        losses.append([e.train_loss for e in found.epochs])
    assert losses[0] == losses[1]
