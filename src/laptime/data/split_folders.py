"""Which folders or files are the training and which the test, by what people call them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Protocol

# In any case of letters; of several the first is taken.
TRAIN_NAMES = ("train", "training")
TEST_NAMES = (
    *("test", "testing", "val", "valid", "validation"),
    *("eval", "evaluation", "dev", "holdout"),
)
# What stands beside them in a folder's name: training_set, seg_train, test-images.
_BESIDE = re.compile(r"^(seg|data|images?)[ _-]|[ _-]?(set|data|dataset|split|images?|imgs)$")


class Found(Protocol):
    """What a folder holds: relative paths of its images and of its folders."""

    images: list[str]
    folders: set[str]


def split_folders(found: Found) -> tuple[list[str], list[str]]:
    """The folders of training and test, the preferred first; of tests those that share classes with the training.

    Where plain names (train, test_set) don't say both, names with such a word in them do (train2017 beside val2017),
    if nothing else holds folders and both hold the same ones.
    """
    train, test = _named(found, TRAIN_NAMES), _named(found, TEST_NAMES)
    if not (train and test):
        train, test = _worded(found) or (train, test)
    if train:
        classes = _inner(found, train[0])
        test.sort(key=lambda folder: not classes & _inner(found, folder))
    return train, test


def is_plain(folder: str) -> bool:
    """Whether a path's first folder is a split by its plain name."""
    return bool(plain_word(folder.partition("/")[0]))


def plain_word(name: str) -> str:
    """The word for a split that a name is, whatever stands beside it: train of Train_set; empty where it is none."""
    core = _core(name)
    return core if core in (*TRAIN_NAMES, *TEST_NAMES) else ""


def word_within(name: str) -> str:
    """The word for a split that a longer name holds: val of instances_val2017; empty where it holds none, or two."""
    words = _words(name)
    train, test = (next((word for word in names if word in words), "") for names in (TRAIN_NAMES, TEST_NAMES))
    return "" if train and test else train or test


def word_of(folders: Iterable[str]) -> str:
    """The word of the first folder of a path that is called as a split; empty where none is."""
    return next((word for folder in folders if (word := plain_word(folder) or word_within(folder))), "")


def holds_both(folders: Collection[str]) -> bool:
    """Whether there are a training and a test among some names."""
    cores = {_core(folder) for folder in folders}
    return bool(cores.intersection(TRAIN_NAMES) and cores.intersection(TEST_NAMES))


def _named(found: Found, names: tuple[str, ...]) -> list[str]:
    """The folders at the top that are splits by their names, the preferred first; those with classes before others.

    One with images and no folders, beside folders of other names, is a class: trains, among other vehicles.
    """
    top = [folder for folder in found.folders if "/" not in folder]
    others = not all(map(is_plain, top))
    holding = _holding(found)
    splits = [folder for folder in top if _core(folder) in names and (folder in holding or not others)]
    order = sorted(splits, key=lambda name: (name not in holding, names.index(_core(name)), len(name), name.swapcase()))
    return [_unwrapped(found, folder) for folder in order]


def _worded(found: Found) -> tuple[list[str], list[str]] | None:
    """The splits by a word in their names; None where another folder, or another class, speaks against it."""
    sides: tuple[list[str], list[str]] = ([], [])
    for folder in sorted(_holding(found), key=lambda name: (len(name), name)):
        word = word_within(folder)
        if not word:
            return None
        sides[word in TEST_NAMES].append(_unwrapped(found, folder))
    if not all(sides) or any(_inner(found, s) != _inner(found, sides[0][0]) for side in sides for s in side):
        return None
    return sides


def _holding(found: Found) -> set[str]:
    """The folders at the top that hold folders."""
    return {folder.partition("/")[0] for folder in found.folders if "/" in folder}


def _inner(found: Found, folder: str) -> set[str]:
    """The names of the folders in a folder."""
    start = len(folder) + 1
    return {f[start:] for f in found.folders if f.startswith(f"{folder}/") and "/" not in f[start:]}


def _words(name: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]+", name.lower()))


def _core(folder: str) -> str:
    """A folder's name without what stands beside the split's: training_set is training."""
    return _BESIDE.sub("", folder.lower())


def _unwrapped(found: Found, folder: str) -> str:
    """A split's folder, or the only one in it where that has its name: seg_train/seg_train."""
    inner, name = f"{folder}/{folder}", f"{folder}/"
    within = {f for f in found.folders if f.startswith(name) and f.count("/") == 1}
    loose = any(image.startswith(name) and image.count("/") == 1 for image in found.images)
    return inner if within == {inner} and not loose else folder
