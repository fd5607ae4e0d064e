"""A user's own image folders, decoded once: the same items, and no file read in a step."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from tests.own_files import FOLDER, TUPLE, own_spec, write
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, RandomCrop, RandomHorizontalFlip, ToTensor

from laptime.data.decoded import OBJECT_BYTES, bytes_of, decoded, needed_bytes, paths_of, refusal
from laptime.engine.build import make_recipe, open_data
from laptime.engine.check import check_one_step
from laptime.optimizations import decoded as optimization
from laptime.preflight.inspecting import inspect
from laptime.spec import OptimizationSpec
from laptime.worker import run

RANDOM = Compose([RandomCrop(8, 2), RandomHorizontalFlip(), ToTensor()])


class Transformed(Dataset):
    """What people put around a part of a folder, to give it transforms of its own."""

    def __init__(self, part):
        self.part = part

    def __len__(self):
        return len(self.part)

    def __getitem__(self, index):
        image, label = self.part[index]
        return RANDOM(image), label


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder, pixels = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for number in range(24):
        place = folder / "train" / f"class_{number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.integers(0, 256, (12 + number % 3, 10, 3), dtype=np.uint8)).save(place / f"{number}.jpg")
    return folder


class Counted:
    """A loader that counts what it reads."""

    def __init__(self, mode: str = "RGB"):
        self.read, self.mode = [], mode

    def __call__(self, path):
        self.read.append(path)
        return Image.open(path).convert(self.mode)


def whole(loader, root):
    return ImageFolder(root / "train", RANDOM, loader=loader)


KINDS = {
    "folder": whole,
    "some": lambda loader, root: Subset(whole(loader, root), [5, 1, 9]),
    "transformed": lambda loader, root: Transformed(Subset(ImageFolder(root / "train", loader=loader), [3, 1, 20])),
    "joined": lambda loader, root: ConcatDataset([whole(loader, root), Subset(whole(loader, root), [0, 2])]),
}
FILES = {"folder": 24, "some": 3, "transformed": 3, "joined": 24}


@pytest.mark.parametrize("kind", KINDS)
def test_items_are_the_same_and_no_file_is_read_for_them(kind, root):
    loader = Counted()
    given = KINDS[kind](loader, root)
    assert refusal(given) is None
    before, mine = len(set(paths_of(given))), vars(given).copy()
    loader.read.clear()
    kept = decoded(given)
    assert before == len(loader.read) == len(set(loader.read)) == FILES[kind]
    assert vars(given) == mine  # the user's own stays as it is

    def items(dataset):
        torch.manual_seed(3)
        return [dataset[i] for i in [*range(len(dataset)), *range(len(dataset))]]

    loader.read.clear()
    found = items(kept)
    assert not loader.read
    assert all(torch.equal(a, b) and x == y for (a, x), (b, y) in zip(found, items(given), strict=True))


def test_a_transform_that_draws_on_an_image_draws_on_a_copy(root):
    def draws(image):
        image.putpixel((0, 0), (image.getpixel((0, 0))[0] ^ 255, 0, 0))
        return image.getpixel((0, 0))

    kept = decoded(ImageFolder(root / "train", draws))
    assert kept[0] == kept[0]


def opened(path):
    """As a loader has it that converts nothing: an image that its file still belongs to."""
    return Image.open(path)


@pytest.mark.parametrize(
    ("asks", "told"),
    [
        (lambda image: image.filename[-5:], "AttributeError"),
        (lambda image: image.format, ""),
        (lambda image: image.draft("L", (4, 4)) and None, ""),
    ],
)
def test_transforms_that_ask_for_the_file_of_an_image_leave_it_there(root, asks, told):
    """A copy in memory has pixels alone, of which such a transform makes other items, or none."""

    def transform(image):
        asked = asks(image)
        return ToTensor()(image) + len(asked or "")

    dataset = Subset(ImageFolder(root / "train", transform, loader=opened), range(4, 20))
    reason = refusal(dataset)
    assert reason.startswith("its transforms make other items of an image in memory: they ask for its file")
    assert told in reason


def test_items_that_hold_another_tensor_for_an_image_of_a_file_are_others(root):
    def transform(image):
        return [ToTensor()(image), *([torch.tensor(0)] if image.format else [])]  # as the class behind it

    dataset = Subset(ImageFolder(root / "train", transform, loader=opened), range(1))
    assert refusal(dataset).startswith("its transforms make other items")


@pytest.mark.parametrize("transform", [RANDOM, Compose([np.array, torch.tensor]), None])
def test_transforms_of_pixels_alone_have_them_from_memory(root, transform):
    before = torch.get_rng_state()
    assert refusal(ImageFolder(root / "train", transform, loader=opened)) is None
    assert torch.equal(torch.get_rng_state(), before)


def test_a_loader_process_that_is_not_forked_reads_its_files(root):
    kept = decoded(ImageFolder(root / "train"))
    sent = pickle.loads(pickle.dumps(kept))
    assert not sent.loader.kept
    assert np.array_equal(np.asarray(sent[3][0]), np.asarray(kept[3][0]))


def test_an_image_is_taken_for_what_pillow_keeps_of_it():
    # In a process of its own that gives nothing back, so that no image stands where another one stood.
    code = """
import psutil
from PIL import Image
kept = []
for mode in ("L", "P", "1", "I;16", "RGB", "RGBA", "LA", "CMYK", "I", "F"):
    before = psutil.Process().memory_info().rss
    kept += [Image.new(mode, (1000, 900), 1) for _ in range(10)]
    print(mode, (psutil.Process().memory_info().rss - before) / 10)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for mode, taken in map(str.split, told.splitlines()):
        assert bytes_of(Image.new(mode, (1000, 900))) == pytest.approx(float(taken), rel=0.15), mode


def test_room_is_that_of_the_files_that_are_asked_for(root):
    whole = ImageFolder(root / "train")
    assert needed_bytes(whole) - 24 * OBJECT_BYTES == pytest.approx(24 * 13 * 10 * 4, rel=0.05)
    assert needed_bytes(Subset(whole, [0, 0, 1])) - 2 * OBJECT_BYTES == pytest.approx(2 * 13 * 10 * 4, rel=0.1)


def test_small_images_are_taken_for_what_they_take_beside_their_pixels():
    code = """
import psutil
from PIL import Image
from laptime.data.decoded import decoded, needed_bytes
class Small:
    samples = [(f"/images/class{i % 100:03}/{i:06}.jpg", 0) for i in range(50_000)]
    loader = staticmethod(lambda path: Image.new("RGB", (16, 16), 1))
needed, before = needed_bytes(Small()), psutil.Process().memory_info().rss
kept = decoded(Small(), 2)
print(needed / (psutil.Process().memory_info().rss - before))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 0.8 < float(told) < 1.3


def _is_fixed(self, name, value):
    if name == "loader" and hasattr(self, "loader"):
        raise AttributeError(name)
    object.__setattr__(self, name, value)


def test_what_can_not_be_kept_is_refused_with_the_reason(root):
    assert "no files with one loader, as torchvision's ImageFolder" in refusal(TensorDataset(torch.zeros(2, 3)))
    grey = ImageFolder(root / "train", loader=Counted("L"))
    assert "no files with one loader" in refusal(ConcatDataset([ImageFolder(root / "train"), grey]))
    holds_itself = Transformed(grey)
    holds_itself.whole = holds_itself
    assert "no files with one loader" in refusal(holds_itself)
    fixed = type("Fixed", (ImageFolder,), {"__setattr__": _is_fixed})
    assert "can't be copied with another loader (AttributeError)" in refusal(fixed(root / "train"))
    as_tensors = ImageFolder(root / "train", loader=lambda path: torch.zeros(3))
    assert "its loader gives a Tensor, and images of PIL or arrays" in refusal(as_tensors)
    at_random = ImageFolder(root / "train", loader=lambda path: np.random.rand(4, 4))
    assert "gives another image when it reads a file again" in refusal(at_random)
    folder = ImageFolder(root / "train")
    folder.samples = [("missing.jpg", 0)]
    assert refusal(folder) == "its loader can't read missing.jpg by itself: FileNotFoundError"


@pytest.fixture
def spec(file):
    data = inspect(write(file, FOLDER))
    assert "decoded" not in data.own.refused
    assert "random augmentation" in data.own.refused["resident"]
    few = {"limit_train": 20, "limit_test": 4, "warmup_epochs": 1}
    return own_spec(data, batch_size=8, learning_rate=1e-2, epochs=2, **few)


DECODED = (OptimizationSpec(name="decoded"),)


def test_a_training_learns_the_same(spec, tmp_path):
    plain = run(spec, tmp_path / "plain")
    kept = run(spec.model_copy(update={"optimizations": DECODED}), tmp_path / "kept")
    assert [e.train_loss for e in kept.epochs] == [e.train_loss for e in plain.epochs]
    assert [e.test_accuracy for e in kept.epochs] == [e.test_accuracy for e in plain.epochs]
    checked = check_one_step(spec.model_copy(update={"optimizations": DECODED}), open_data(spec), 8)
    assert checked is not None
    assert checked.passed


def test_too_little_memory_is_noted(spec, monkeypatch):
    monkeypatch.setattr(optimization, "free_memory", lambda: 100)
    opened = open_data(spec)
    recipe = make_recipe(spec, opened, DECODED)
    assert recipe.data.train.dataset is opened.train.dataset
    assert "samples stay where they are" in recipe.notes[-1]


def test_other_data_have_no_such_folder(file):
    data = inspect(write(file, TUPLE))
    assert "no files with one loader" in data.own.refused["decoded"]
