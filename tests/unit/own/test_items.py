"""Which item of a user's data set could not be read is told by its own index, whatever stands around it."""

import importlib.util
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from laptime.data.own.begun import worker_start
from laptime.data.own.workers import Staying
from laptime.own.items import item_in
from laptime.own.user_code import complaint
from laptime.values.draws import SeededItems

FILE = """
import torch
from torch.utils.data import Dataset

class Volume:
    def __getitem__(self, index):
        raise ValueError("no label\\nof two lines: empty")

class Photos(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        VALUE
        return torch.zeros(2)

class Together(Photos):
    def __getitems__(self, indices):
        return [Volume()[0] for _ in indices]

class Plain:
    def __getitem__(self, index):
        raise KeyError(index)
"""


@pytest.fixture
def opened(tmp_path):
    def with_line(value="Volume()[0]"):
        file = tmp_path / "photos.py"
        file.write_text(FILE.replace("VALUE", value))
        found = importlib.util.spec_from_file_location("photos", file)
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    return with_line


def error_of(read) -> Exception:
    try:
        read()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


@pytest.mark.parametrize("index", [12, torch.tensor(12), np.int64(12)])
def test_an_index_is_told_whatever_it_is_and_whatever_wraps_the_data(opened, index):
    photos = opened().Photos()
    assert item_in(error_of(lambda: photos[index])) == "item 12 of Photos"
    assert item_in(error_of(lambda: Subset(photos, [3, index])[1])) == "item 12 of Photos"
    assert item_in(error_of(lambda: Subset(photos, [3, index]).__getitems__([1]))) == "item 12 of Photos"


def test_data_that_are_no_data_set_of_torch_s_have_items_too(opened):
    said = complaint(error_of(lambda: opened().Plain()[7]), Path(opened().__file__))
    assert said.startswith("KeyError: 7, at item 7 of Plain (photos.py, line ")


def test_the_items_of_a_batch_that_is_read_at_once_are_told(opened):
    assert item_in(error_of(lambda: opened().Together().__getitems__([5, 9]))) == "one of items 5, 9 of Together"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("index = index * 7; Volume()[0]", ""),  # another item's number would send its reader astray
        ("index = index.tolist() if torch.is_tensor(index) else index; Volume()[0]", "item 4 of Photos"),
    ],
)
def test_an_index_that_was_given_another_value_is_not_told(opened, value, said):
    assert item_in(error_of(lambda: opened(value).Photos()[4])) == said


def test_errors_beside_items_tell_none():
    assert item_in(error_of(lambda: {}[3])) == ""
    assert item_in(error_of(lambda: TensorDataset(torch.zeros(2), torch.zeros(3)))) == ""


class Calling(Dataset):
    def __getitem__(self, index):
        raise ValueError from error_of(lambda: {}[index])


def test_the_error_that_one_was_raised_from_is_asked_too():
    def read():
        try:
            Calling()[2]
        except ValueError:
            raise RuntimeError("elsewhere") from None

    assert item_in(error_of(read)) == "item 2 of Calling"


def test_a_loader_worker_hands_on_the_item_and_all_lines_of_its_error(opened):
    module = opened()
    seeded = SeededItems(Staying(Subset(module.Photos(), range(1, 100))))
    sampler = [((0, 0), [8])]
    loader = DataLoader(seeded, batch_sampler=sampler, num_workers=1, multiprocessing_context=worker_start())
    error = error_of(lambda: next(iter(loader)))
    said = complaint(error, Path(module.__file__))
    assert said.startswith(
        "ValueError: no label of two lines: empty [in a loader worker], at item 9 of Photos (photos.py, line 7: "
    )
    assert "Raised at item" in "".join(traceback.format_exception(error))
