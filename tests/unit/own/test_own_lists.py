"""Batches of lists of samples, as torchvision's detectors take them."""

import pytest
import torch
from tests.own_files import TUPLE, own_spec, write
from tests.plain_loop import run

from laptime.errors import LaptimeError
from laptime.preflight.inspecting import inspect
from laptime.values.trees import samples

DETECTOR = """
import torch
from torch import nn

class Things(torch.utils.data.Dataset):
    def __init__(self, first, last):
        self.numbers = range(first, last)

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, i):
        number = self.numbers[i]
        boxes = torch.rand(3, 4, generator=torch.Generator().manual_seed(number))
        return torch.full((3, 8, 8 + number % 3), 0.5), {"boxes": boxes, "image_id": number}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 1)

    def forward(self, images, targets=None):
        found = torch.stack([self.layer(image[None]).mean((0, 2, 3)) for image in images])
        if not self.training:
            return [{"boxes": each} for each in found]
        wanted = torch.stack([target["boxes"].mean(0) for target in targets])
        return {"boxes": (found - wanted).square().mean(), "more": found.square().mean()}

class Workload:
    batch_size = 3
    collate_fn = staticmethod(lambda items: tuple(zip(*items)))

    def data(self):
        return Things(0, 12), Things(12, 18)

    def model(self):
        return Net()

    def loss(self, model, batch):
        images, targets = batch
        if not model.training:
            return torch.tensor(torch.nan)
        return sum(model(list(images), list(targets)).values())

    def evaluate(self, model, batches):
        return float(sum(len(model(list(images))) for images, _ in batches) / 6)
"""


def test_images_and_targets_in_lists_are_a_batch_as_torchvisions_detectors_take_it(file):
    """Of three images each has three channels and three boxes, so that only the lists tell samples from these."""
    found = inspect(write(file, DETECTOR))
    assert found.own.quality == "score"
    assert "hold something besides tensors" in found.own.refused["resident"]
    assert "dp" in found.own.refused
    assert not {"workers", "fused-optimizer", "large-batch"} & set(found.own.refused)


def test_lists_without_dictionaries_ask_for_a_tensor_in_front(file):
    change = ("tuple(zip(*items))", "([x for x, _ in items], [y['boxes'] for _, y in items])")
    with pytest.raises(
        LaptimeError, match=r"begins with \[\(3, 8, 8\)\].*\[B, \.\.\.\]: put torch\.arange\(len\(items\)\) in front"
    ):
        inspect(write(file, DETECTOR, ("batch_size = 3", "batch_size = 2"), change))


# As sentence-transformers has it: what is compared stands in one list, each side a dictionary of tensors [B, ...].
SIDES = (
    ("tuple(zip(*items))", "{'sides': [{'ids': torch.rand(len(items), 4)} for _ in 'ab']}"),
    ("images, targets = batch", "images = batch['sides'][0]['ids']"),
    ("batch_size = 3", "batch_size = 4"),
)


def test_dictionaries_that_are_not_samples_are_told_with_what_tells_them_apart(file):
    with pytest.raises(LaptimeError, match=r"taken for 2 samples.*2 dictionaries in a list.* beside that list") as said:
        inspect(write(file, DETECTOR, *SIDES))
    assert "begins with" not in str(said.value)


def test_a_tensor_beside_a_list_of_dictionaries_says_how_many_samples_there_are():
    sides = [{"ids": torch.rand(4, 2)}, {"ids": torch.rand(4, 3)}]
    assert samples({"sides": sides, "index": torch.arange(4)}) == 4


PADDED = """
from torch.nn.utils.rnn import pad_sequence

LENGTHS = {lengths}

class Workload(Workload):
    @staticmethod
    def collate_fn(items):
        texts, labels = zip(*items)
        return pad_sequence(texts, True), torch.tensor(labels)

    def data(self):
        texts = [(torch.full((LENGTHS[i % len(LENGTHS)], 3), 0.5), i % 2) for i in range(64)]
        return texts, texts[:16]

    def model(self):
        return nn.Linear(3, 2)

    def loss(self, model, batch):
        return F.cross_entropy(model(batch[0].mean(1)), batch[1])
"""


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ("[9, 4, 5]", "depend on what else is in its batch"),
        ("[4] * 8 + [6] * 24", "its collate_fn makes another shape of items 8 to 15 than of the first"),
        ("[4]", ""),
    ],
)
def test_padded_items_are_not_kept_though_the_first_is_the_longest(file, lengths, reason):
    """All of them as one batch would be padded to the longest of all, which a mean over the length sees."""
    refused = inspect(write(file, TUPLE + PADDED.replace("{lengths}", lengths))).own.refused
    assert reason in refused["resident"] if reason else "resident" not in refused


def test_a_tuple_whose_class_refuses_a_length_is_taken_as_it_is(file, tmp_path):
    """As e3nn's Irrep is, of which its layers hold some."""
    sort = """
class Sort(tuple):
    def __len__(self):
        raise NotImplementedError

class Workload:
    sort = (Sort((1, 2)), Sort((3, 4)))
"""
    data = inspect(write(file, TUPLE, ("\nclass Workload:\n", sort)))
    assert run(own_spec(data, warmup_epochs=1), tmp_path / "run").error is None
