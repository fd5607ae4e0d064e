"""Training items that a step changes: a loss that writes into its data set, for the next epoch to read."""

import pytest
import torch
from tests.own_files import IMPORTS, write
from torch.utils.data import Dataset, default_collate

from laptime.data.own.fed_back import Reread
from laptime.data.own.opened import OwnSplit
from laptime.preflight.inspecting import inspect

# Labels that go on from what the net has found (temporal ensembling, self-adaptive training).
_SOFT = (
    IMPORTS
    + """
class Soft(Dataset):
    def __init__(self, x, y):
        self.x, self.soft = x, F.one_hot(y, 2).float()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.soft[index], index


TRAIN, TEST = Soft(X[:64], Y[:64]), Soft(X[64:], Y[64:])


class Workload:
    batch_size = 16

    def data(self):
        return TRAIN, TEST

    def model(self):
        return nn.Sequential(nn.Flatten(), nn.Linear(192, 2))

    def loss(self, model, batch):
        x, soft, index = batch
        scores = model(x)
        if model.training:
            TRAIN.soft[index] = 0.9 * soft + 0.1 * scores.detach().softmax(1)
        return F.cross_entropy(scores, soft)
"""
)
_NOISY = ("return self.x[index],", "return self.x[index] + 0.1 * torch.randn(3, 8, 8),")
_APART = ("resident", "workers", "pinned", "ddp", "flat-reduce")


@pytest.mark.parametrize("noisy", [False, True])
def test_what_has_a_copy_of_the_items_is_left_out(noisy, file):
    """Loader workers and ranks went on with the first labels in silence; so does what goes on from the warm-up."""
    data = inspect(write(file, _SOFT, *([_NOISY] if noisy else [])))
    for name in _APART:
        assert "loss() changes what its items are" in data.own.refused[name]
    assert "which goes on from the warm-up and is in no checkpoint: let the net of model() hold it" in data.notice


def test_random_items_alone_are_none_that_a_step_changes(file):
    data = inspect(write(file, _SOFT, _NOISY, ("if model.training:", "if False:")))
    assert not {"workers", "pinned", "ddp", "flat-reduce"} & data.own.refused.keys()
    assert "goes on from the warm-up" not in data.notice


class InTurn(Dataset):
    """One item that is what is given, reading after reading."""

    def __init__(self, *given):
        self.given = list(given)

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return torch.tensor(self.given.pop(0))


@pytest.mark.parametrize(("readings", "changed"), [((0, 0, 1, 1), True), ((0, 0, 1, 0), False), ((0, 1, 1, 1), False)])
def test_what_is_seldom_another_by_itself_is_not_what_a_step_changes(readings, changed):
    """As by a generator of its own, in one of thirty readings."""
    assert Reread(OwnSplit(InTurn(*readings), default_collate), 1).changed() is changed


_HANDED_OUT = """
    batch_size = 1

    @staticmethod
    def collate_fn(items):
        if len(items) == 1:
            return items[0][:2]
        return [torch.cat(side) for side in zip(*(item[:2] for item in items))]
"""


def test_a_batch_that_is_the_data_sets_own_memory_is_changed_in_it(file):
    """A collate_fn that copies nothing, and a loss that writes to its batch: each epoch began with other items."""
    views = ("self.x[index], self.soft[index], index", "self.x[index : index + 1], self.soft[index : index + 1]")
    writes = ("x, soft, index = batch", "x, soft = batch\n        x.mul_(0.9)")
    kept = ("            TRAIN.soft[index] = 0.9 * soft + 0.1 * scores.detach().softmax(1)", "            pass")
    data = inspect(write(file, _SOFT, ("\n    batch_size = 16\n", _HANDED_OUT), views, writes, kept))
    assert "loss() changes what its items are" in data.own.refused["workers"]
    assert "which goes on from the warm-up" in data.notice


_TAGGED = """
    batch_size = 16

    @staticmethod
    def collate_fn(items):
        x, soft, index = torch.utils.data.default_collate(items)
        return x.as_subclass(Tagged), soft, index
"""


def test_tensors_of_a_class_of_their_own_are_not_kept(file):
    """What an index takes out of them may be a plain tensor, which a loss may treat otherwise."""
    kind = ("class Soft(Dataset):", "class Tagged(torch.Tensor):\n    pass\n\n\nclass Soft(Dataset):")
    silent = ("if model.training:", "if False:")
    found = inspect(write(file, _SOFT, silent, kind, ("\n    batch_size = 16\n", _TAGGED)))
    assert "tensors of a class of their own (Tagged)" in found.own.refused["resident"]
