"""The split that a set of boxes says itself: its training, its test, and what is left aside.

What is called so, and which of several is taken, is as for folders of images (see `laptime.data.split_folders`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from laptime.data.boxes.box import Box, Boxed, refused, sides
from laptime.data.boxes.match import Matched
from laptime.data.choices import BOXES, SEED
from laptime.data.split import in_words
from laptime.data.split_folders import TEST_NAMES, TRAIN_NAMES, plain_word, word_within
from laptime.errors import DataError, UsageError, shorten

# Folders of one part that a notice lists.
_LISTED = 2
# VOC's own name for both of its parts that are trained on.
BOTH = "trainval"
_TRAINS, _TESTS = (*TRAIN_NAMES, BOTH), TEST_NAMES
_DRAWN = f"give a file or folder of boxes behind {BOXES}, of which a fifth is then kept for the test"


@dataclass(frozen=True)
class Part:
    """A part of a set.

    Attributes:
        word: for a split, as people call it; any other of a part that is none.
        label: what a message calls it.
        names: its images below the folder.
        missing: a sentence for what it should hold and isn't there; empty where all is.
    """

    word: str
    label: str
    names: frozenset[str]
    missing: str = ""


@dataclass(frozen=True)
class Sides:
    """Names of the images to train and to test on, and sentences on how they were chosen."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    said: str = ""


def says_both(words: Iterable[str]) -> bool:
    """Whether there are a training and a test among some words."""
    found = set(words)
    return not (found.isdisjoint(_TRAINS) or found.isdisjoint(_TESTS))


def ordered(words: Iterable[str]) -> tuple[list[str], list[str]]:
    """Words for training and for tests, the preferred first."""
    found = set(words)
    return [word for word in _TRAINS if word in found], [word for word in _TESTS if word in found]


def by_lines(matched: Matched, labels: Mapping[str, str]) -> list[Part]:
    """The parts by what each line, or its file, says; those of files that were not read by what they name.

    An image that no line names belongs to the part that alone has images in its folder.

    Args:
        matched: the images.
        labels: of the parts, by word.

    Raises:
        DataError: a line says no part.
    """
    names: dict[str, set[str]] = {word: set() for word in labels}
    beside = dict[str, set[str]]()
    for name, lines in matched.lines.items():
        for word in {_word(box) for box in lines}:
            names.setdefault(word, set()).add(name)
            beside.setdefault(_folder(name), set()).add(word)
    for image in matched.images:
        words = beside.get(_folder(image.name), set())
        if image.name not in matched.lines and len(words) == 1:
            names[min(words)].add(image.name)
    parts = [Part(word, labels.get(word, word), frozenset(some)) for word, some in names.items()]
    return parts + [Part("", name, some) for name, some in matched.others.items()]


def _word(box: Box) -> str:
    word = plain_word(box.split)
    if not word:
        raise refused(
            box.place, f"its split is {shorten(box.split)!r}, where other lines say train and test: write one of these"
        )
    return word


def by_column(matched: Matched) -> list[Part]:
    """The parts by a column of the CSV, none where it says no training and no test; raises DataError."""
    words = {plain_word(box.split) for lines in matched.lines.values() for box in lines}
    return by_lines(matched, {}) if says_both(words) else []


def by_folders(matched: Matched) -> list[Part]:
    """The parts by the folders of the images; none where they don't say a training and a test.

    Where plain names (train, test_set) don't say both, names with such a word in them do (train2017 beside val2017), if
    each image with boxes is in one. What leads to all images says nothing.
    """
    names = [image.name for image in matched.images] + list(matched.unnamed)
    known = {image.name for image in matched.images}
    boxed = {image.name for image in matched.images if image.boxes}
    start = len(PurePosixPath(os.path.commonpath(map(_folder, names))).parts) if names else 0
    for find in (plain_word, lambda name: plain_word(name) or word_within(name)):
        found = {name: said for name in names if (said := _said(name, start, find))}
        if says_both(word for word, _ in found.values()) and (find is plain_word or found.keys() >= boxed):
            return [_of_folders(word, found, known) for word in sorted({word for word, _ in found.values()})]
    return []


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


def _said(name: str, start: int, find: Callable[[str], str]) -> tuple[str, str] | None:
    """The word of the first folder on an image's way, after a number of them, that has one, and its path."""
    folders = name.split("/")[:-1]
    return next(
        ((word, "/".join(folders[: n + 1])) for n in range(start, len(folders)) if (word := find(folders[n]))), None
    )


def _of_folders(word: str, found: Mapping[str, tuple[str, str]], known: set[str]) -> Part:
    whole = {name: folder for name, (said, folder) in found.items() if said == word}
    some = {name: folder for name, folder in whole.items() if name in known} or whole
    return Part(word, listed(some.values()), frozenset(some))


def listed(names: Iterable[str]) -> str:
    """A few names, each once, for a message."""
    some = sorted(set(names))
    more = f" and {len(some) - _LISTED} more" if len(some) > _LISTED else ""
    return ", ".join(map(shorten, some[:_LISTED])) + more


def follow(root: Path, images: Sequence[Boxed], parts: Sequence[Part], by: str, seed: int) -> Sides:
    """The sides as the parts of a set say them; of its training a fifth is the test where no other part has boxes.

    Args:
        root: the folder.
        images: of which is known what they show.
        parts: a training and a test among them.
        by: what says them, behind their labels: " of data.yaml".
        seed: of a split that is made here.

    Raises:
        UsageError: a seed, where there is nothing to choose.
        DataError: an image of a part isn't there or is on both sides, or the training has no boxes.
    """
    boxed = {image.name for image in images if image.boxes}
    trains, tests = (_ranked(parts, words) for words in (_TRAINS, _TESTS))
    train = next((part for part in trains if part.names & boxed), None)
    if train is None:
        raise DataError(
            trains[0].missing
            or f"{trains[0].label}{by}, the training of {root}, has no image with boxes: add them, or {_DRAWN}."
        )
    test = next((part for part in tests if part.names & boxed), None)
    if test is None:
        told = f"No image of {listed(part.label for part in tests)}{by} has boxes, so a fifth of {train.label}"
        return _fifth(root, images, _whole(train), told, seed)
    known = {image.name for image in images}
    if train.names & known == test.names & known:
        return _fifth(root, images, train, f"{train.label} and {test.label}{by} are the same images: a fifth", seed)
    _check(root, _whole(train), _whole(test), by)
    if seed:
        raise UsageError(
            f"{root} is split already ({train.label}, {test.label}{by}), so there is nothing for {SEED}{seed} to "
            "choose: leave it out."
        )
    said = [_told(train, test, known, by), *_aside(parts, train, test), *_outside(parts, known)]
    return Sides(tuple(sorted(train.names & known)), tuple(sorted(test.names & known)), " ".join(said))


def _ranked(parts: Sequence[Part], words: Sequence[str]) -> list[Part]:
    return sorted((part for part in parts if part.word in words), key=lambda part: words.index(part.word))


def _whole(part: Part) -> Part:
    """A part of which nothing is missing; raises DataError."""
    if part.missing:
        raise DataError(part.missing)
    return part


def _check(root: Path, train: Part, test: Part, by: str) -> None:
    """Refuses images that are on both sides; raises DataError."""
    both = train.names & test.names
    if both:
        raise DataError(
            f"{root} has {len(both)} image(s), {shorten(min(both))} among them, in {train.label} and in "
            f"{test.label}{by}, whose test would be trained on: take them out of one, or {_DRAWN}."
        )


def _fifth(root: Path, images: Sequence[Boxed], part: Part, told: str, seed: int) -> Sides:
    train, test = sides([image for image in images if image.name in part.names], root, seed)
    return Sides(train, test, f"{told}, {in_words(seed)}, is kept for the test.")


def _told(train: Part, test: Part, known: set[str], by: str) -> str:
    counts = [len(part.names & known) for part in (train, test)]
    return (
        f"The split is the set's own ({train.label}, {test.label}{by}): {counts[0]} image(s) to train on, "
        f"{counts[1]} as the test."
    )


def _aside(parts: Sequence[Part], train: Part, test: Part) -> list[str]:
    """A sentence for parts with images that are on neither side."""
    used = train.names | test.names
    tests = _ranked(parts, _TESTS)
    bare = tests[: tests.index(test)]
    counts = {part.label: len(part.names - used) for part in parts if part not in bare}
    aside = [f"{label} ({count} image(s))" for label, count in counts.items() if count]
    said = [f"No image of {listed(part.label for part in bare)} has boxes."] if bare else []
    return said + ([f"{', '.join(aside)} left aside, {test.label} is the test."] if aside else [])


def _outside(parts: Sequence[Part], known: set[str]) -> list[str]:
    outside = len(known.difference(*(part.names for part in parts)))
    return [f"{outside} image(s) outside of these parts are left out."] if outside else []
