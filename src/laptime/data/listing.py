"""Which images an image folder holds: classes, splits, and every way in which it can be wrong."""

from __future__ import annotations

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from laptime.data.choices import ALL, SEED
from laptime.data.split import in_words, parted
from laptime.data.split_folders import holds_both, is_plain, split_folders
from laptime.errors import DataError, UsageError, shorten
from laptime.places import composed, is_text

IMAGE_SUFFIXES = frozenset(
    ("jpg", "jpeg", "jfif", "jpe", "png", "bmp", "gif", "webp", "tif", "tiff", "ppm", "pgm", "pbm", "pnm")
)
# Images all the same, of which nothing here reads a pixel.
_UNREAD = frozenset(("avif", "heic", "heif", "jp2", "jxl", "tga", "svg", "psd", "dng", "cr2", "nef", "arw"))
_TIFF = (".tif", ".tiff")
# Folders that are nobody's data: hidden ones, what Finder adds to an archive, and thumbnails of a Synology's station.
PASSED = (".", "__MACOSX", "@eaDir")
_FORM = "a folder with train/<class>/* and test/<class>/*, or one with <class>/*"


@dataclass(frozen=True)
class Listing:
    """The images of a folder, in the order in which they are stored.

    Attributes:
        train, test: (path relative to the root, label) of each image.
        ignored: files that are no images.
        notice: what the user must know about how the folder was read.
    """

    root: Path
    classes: tuple[str, ...]
    train: tuple[tuple[str, int], ...]
    test: tuple[tuple[str, int], ...]
    ignored: int = 0
    notice: str = ""


@dataclass
class Scan:
    """Everything in a folder: image paths by their folders, and a hash that changes when any file does.

    Attributes:
        images, folders: relative paths; those of images sorted.
        ignored: files that are no images.
        unread: how many images have a form that is not read, by suffix.
    """

    root: Path
    images: list[str] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    ignored: int = 0
    unread: Counter[str] = field(default_factory=Counter)
    key: str = ""


def scan(root: Path) -> Scan:
    """Walks a folder once: names, sizes and times of change, no contents.

    Raises:
        DataError: it is missing, is no folder or can't be read.
    """
    if not root.exists():
        place, mark, choice = str(root).partition("#")
        if mark and Path(place).exists():
            raise DataError(
                f"{shorten(mark + choice)!r} behind {shorten(place)} chooses nothing: give {' or '.join(ALL)} with its "
                "value, or leave it out."
            )
        raise DataError(
            f"the data folder {shorten(str(root))!r} does not exist: give auto, official, synthetic, "
            f"{_FORM}, an archive of such a folder, or an address with s3:// or http(s)://."
        )
    if not root.is_dir():
        raise DataError(f"{root} is neither a folder nor a .tar, .tar.gz, .tar.xz or .zip archive: give {_FORM}.")
    found = Scan(root)
    state = hashlib.sha256()
    folders = [""]
    while folders:
        prefix = folders.pop()
        images, inner = _look(found, prefix)
        state.update("".join(images).encode(errors="surrogateescape"))
        found.folders.update(inner)
        folders += [f"{name}/" for name in sorted(inner, reverse=True)]
    found.images.sort()
    found.key = state.hexdigest()
    return found


def _look(found: Scan, prefix: str) -> tuple[list[str], list[str]]:
    """One folder: name, size and time of change of each image in order, and the folders in it.

    It runs for each of 60,000 files at every start: plain strings, one call to the system for a file.
    """
    # Links to folders are followed where splits and classes stand, not below, where they could run in circles.
    follow = prefix.count("/") < 2
    states: list[str] = []
    inner: list[str] = []
    try:
        entries = os.scandir(found.root / prefix)
    except OSError as error:
        raise DataError(f"the folder {found.root / prefix} can't be read ({error.strerror}): check it.") from error
    with entries:
        for entry in entries:
            name = entry.name
            if entry.is_dir(follow_symlinks=follow):
                if not name.startswith(PASSED) and not (entry.is_symlink() and leads_back(Path(entry.path))):
                    inner.append(prefix + name)
            elif (suffix := name.rpartition(".")[2].lower()) not in IMAGE_SUFFIXES or name.startswith("."):
                if suffix in _UNREAD and not name.startswith("."):
                    found.unread[suffix] += 1
                else:
                    found.ignored += 1
            else:
                found.images.append(prefix + name)
                states.append(f"{prefix}{name}\0{_state(entry)}\n")
    states.sort()
    return states, inner


def _state(entry: os.DirEntry[str]) -> str:
    try:
        found = entry.stat()
    except OSError as error:
        raise DataError(f"the image {entry.path} can't be read ({error.strerror}): restore or remove it.") from error
    if not stat.S_ISREG(found.st_mode):
        raise DataError(f"{entry.path} has an image's name and is no file: remove it.")
    return f"{found.st_size}\0{found.st_mtime_ns}"


def leads_back(link: Path) -> bool:
    """Whether a link leads to a folder that it lies in, so that what is there would be met again and again."""
    return link.parent.resolve().is_relative_to(link.resolve())


def arrange(found: Scan, seed: int = 0) -> Listing:
    """Finds classes and splits; the seed is that of a split that is made here.

    Raises:
        UsageError: a seed, and the folder holds a split.
        DataError: no class, one class, an empty class, a class in one split only, no test images, ...
    """
    train, test = split_folders(found)
    if train:
        if not test:
            raise DataError(
                f"{found.root} has a {shorten(train[0])} folder and no test images: add test/<class>/* (val or "
                f"valid will do), or give {found.root / train[0]} itself, of which a fifth is then kept for the test."
            )
        if seed:
            raise UsageError(
                f"{found.root} is split already ({shorten(train[0])}, {shorten(test[0])}), so there is nothing for "
                f"{SEED}{seed} to choose: leave it out."
            )
        return _two_folders(found, train, test)
    if test:
        raise DataError(f"{found.root} has a {shorten(test[0])} folder and no train folder: add train/<class>/*.")
    return _one_folder(found, seed)


def _two_folders(found: Scan, train: list[str], test: list[str]) -> Listing:
    train_by, test_by = _by_class(found, f"{train[0]}/"), _by_class(found, f"{test[0]}/")
    _check_classes(found, train_by, train[0])
    if not test_by:
        raise DataError(
            f"{found.root / test[0]} has no folder for each class: sort its images into {test[0]}/<class>/*, or give "
            f"{found.root / train[0]} itself, of which a fifth is then kept for the test."
        )
    for only, here, there in (
        (train_by.keys() - test_by.keys(), train[0], test[0]),
        (test_by.keys() - train_by.keys(), test[0], train[0]),
    ):
        if only:
            name = shorten(min(only))
            alike = [n for n in train_by.keys() ^ test_by.keys() if n not in only and _plain(n) == _plain(min(only))]
            remedy = f"rename {there}/{shorten(alike[0])}, if it is that" if alike else f"add {there}/{name}"
            raise DataError(
                f"the class {name!r} of {found.root} stands in {here} and not in {there}: both need every class, so "
                f"{remedy}, or remove {here}/{name}."
            )
    _check_classes(found, test_by, test[0])
    classes = tuple(sorted(train_by))
    aside = [*train[1:], *test[1:]]
    notice = f"{', '.join(map(shorten, aside))} left aside, {shorten(test[0])} is the test." if aside else ""
    if not (is_plain(train[0]) and is_plain(test[0])):
        notice = f"{shorten(train[0])} is taken for the training and {shorten(test[0])} for the test. {notice}".strip()
    sides = (_labelled(classes, train_by), _labelled(classes, test_by))
    loose = _loose(found, sides, tuple(f"{name}/" for name in aside))
    return Listing(found.root, classes, *sides, found.ignored, f"{notice} {loose}".strip())


def _plain(name: str) -> str:
    """A class's name without what two hands write in two ways: capitals, blanks, signs."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _loose(found: Scan, sides: Sequence[Sequence[object]], aside: tuple[str, ...] = ()) -> str:
    """What is said of images that stand in no class's folder, and of those whose form is not read."""
    count = len(found.images) - sum(map(len, sides)) - sum(image.startswith(aside) for image in found.images)
    said = [f"{count} image(s) outside of the classes' folders were left out."] if count else []
    if found.unread:
        forms = ", ".join(f".{suffix}" for suffix in sorted(found.unread))
        said.append(f"{found.unread.total()} image(s) of a form that is not read ({forms}) were left out: save as PNG.")
    return " ".join(said)


def _one_folder(found: Scan, seed: int) -> Listing:
    by = _by_class(found, "")
    _check_classes(found, by, "")
    _check_kinds(found, by)
    _check_splits(found, by)
    classes = tuple(sorted(by))
    train: dict[str, list[str]] = {}
    test: dict[str, list[str]] = {}
    for name, images in sorted(by.items()):
        if len(images) < 2:
            raise DataError(
                f"the class {shorten(name)!r} of {found.root} has one image, which can't be split into "
                "training and test: add more, or give train/<class>/* and test/<class>/*."
            )
        train[name], test[name] = parted(images, seed)
    sides = (_labelled(classes, train), _labelled(classes, test))
    said = (f"A fifth of each class, {in_words(seed)}, is kept for the test.", _deeper(by), _loose(found, sides))
    return Listing(found.root, classes, *sides, found.ignored, " ".join(part for part in said if part))


def _deeper(by: dict[str, list[str]]) -> str:
    """What is said where the folders that are classes hold folders alone: they may be data sets, one beside another."""
    inner = {name: {image.split("/")[1] for image in images} for name, images in by.items()}
    if any(len(names) < 2 or image.count("/") < 2 for name, names in inner.items() for image in by[name]):
        return ""
    few = ", ".join(shorten(name, 40) for name in sorted(by)[:2])
    below = ", ".join(shorten(name, 40) for name in sorted(inner[min(by)])[:2])
    meant = f"where {below} and so on are meant, give the folder {shorten(min(by), 40)} alone."
    return f"Classes are {few}{', ...' if len(by) > 2 else ''}, none of which holds an image itself: {meant}"


def _check_kinds(found: Scan, by: dict[str, list[str]]) -> None:
    """Refuses data sets beside one another: the same folders in each, with TIFFs in some alone."""
    tiffs = {name for name, images in by.items() if images and all(i.lower().endswith(_TIFF) for i in images)}
    inner = [{image.split("/")[1] for image in images if image.count("/") > 1} for images in by.values()]
    if _deeper(by) and tiffs and tiffs != by.keys() and all(names == inner[0] for names in inner):
        listed, few = (", ".join(shorten(n, 40) for n in sorted(names)[:3]) for names in (by, inner[0]))
        raise DataError(
            f"{found.root} holds data sets beside one another ({listed}), each with the folders {few} and so on, and "
            f"TIFFs in {shorten(min(tiffs), 40)} alone: give one of them, such as {found.root / min(tiffs)}."
        )


def _check_splits(found: Scan, by: dict[str, list[str]]) -> None:
    """Refuses classes that are split one by one, whose test would be trained on."""
    inner = [{image.split("/")[1] for image in images if image.count("/") > 1} for images in by.values()]
    if all(map(holds_both, inner)):
        raise DataError(
            f"each class of {found.root} holds splits of its own ({', '.join(sorted(map(shorten, inner[0])))}), which "
            "are read at the top alone: bring them into the form train/<class>/* and test/<class>/*."
        )


def _by_class(found: Scan, prefix: str) -> dict[str, list[str]]:
    start = len(prefix)
    below = (folder[start:] for folder in found.folders if folder.startswith(prefix))
    by: dict[str, list[str]] = {composed(name): [] for name in below if "/" not in name}
    for image in found.images:
        name, slash, _ = image[start:].partition("/")
        if image.startswith(prefix) and slash:
            by[composed(name)].append(image)
    return by


def _check_classes(found: Scan, by: dict[str, list[str]], split: str) -> None:
    where = found.root / split if split else found.root
    if not by:
        raise DataError(f"{where} has no class: give {_FORM}, one folder for each class.")
    if len(by) == 1:
        only = next(iter(by))
        inner = any(folder.startswith(f"{split}/{only}/".lstrip("/")) for folder in found.folders)
        hint = f"give {_FORM}, with at least two classes."
        if inner:
            hint = f"move what is in {where / only} one folder up." if split else f"did you mean {where / only}?"
        raise DataError(f"{where} has only one class, {shorten(only)!r}, and nothing to tell it from: {hint}")
    for name in sorted(by):
        if not is_text(name):
            raise DataError(f"the class folder {where / name} has a name that is no UTF-8: rename it.")
        if not by[name]:
            raise DataError(f"the class folder {where / name} holds no images: add some or remove it.")


def _labelled(classes: tuple[str, ...], by: dict[str, list[str]]) -> tuple[tuple[str, int], ...]:
    return tuple((image, label) for label, name in enumerate(classes) for image in by[name])
