"""Which image of a folder each line of a file of boxes means, and which images are another file's."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath

from laptime.data.boxes.box import Box, Boxed, refused
from laptime.data.boxes.files import images_in
from laptime.data.boxes.forms import named_by_others
from laptime.data.boxes.read import Annotated, Unnamed
from laptime.data.listing import IMAGE_SUFFIXES
from laptime.data.split_folders import word_of, word_within
from laptime.errors import DataError, shorten
from laptime.places import composed, is_text


@dataclass(frozen=True)
class Matched:
    """The images of which is known what they show, and those that are left out.

    Attributes:
        lines: by image what names it, lines without a box and repeated ones, too.
        others: by the path below the folder of another file of boxes the images that only such files name.
        unnamed: images that nothing names and that are left out for it.
    """

    images: tuple[Boxed, ...]
    lines: Mapping[str, Sequence[Box]]
    others: Mapping[str, frozenset[str]]
    unnamed: tuple[str, ...]


def match(root: Path, tables: Mapping[Path, Annotated]) -> Matched:
    """Finds the image of each line, by its path below the root or beside the CSV, else by its name alone.

    A name with a folder stands for another place only where none of the CSV's folders is there. Images that no line
    names are what `unnamed` of what was read says, but for those that another file of boxes names: they are another
    split's.

    Args:
        root: the folder.
        tables: what was read, by the file or folder, of one form.

    Raises:
        DataError: an image isn't there, its name stands for several or leads out of the folder, or can't be written
            to the store's CSV.
    """
    images = images_in(root)
    for path in images:
        if not is_text(str(path.relative_to(root))):
            raise DataError(f"the image {path} has a name that is no UTF-8: rename it.")
    lines = dict[Path, list[Box]]()
    for table, read in tables.items():
        for path, some in _by_image(Finder(root, table, images, [b.image for b in read.boxes]), read.boxes).items():
            lines.setdefault(path, []).extend(some)
    unnamed = set(images) - set(lines)
    other = _of_others(root, tuple(tables), images, unnamed)
    elsewhere = {path for some in other.values() for path in some}
    unknown = _unknown(next(iter(tables.values())).unnamed, unnamed - elsewhere, lines)
    gone = elsewhere | unknown

    def named(path: Path) -> str:
        return path.relative_to(root).as_posix()

    return Matched(
        tuple(Boxed(path, named(path), _once(lines.get(path, ()))) for path in images if path not in gone),
        {named(path): some for path, some in lines.items()},
        {named(path): frozenset(map(named, some)) for path, some in sorted(other.items())},
        tuple(sorted(map(named, unknown))),
    )


def _unknown(kind: Unnamed, unnamed: set[Path], named: Iterable[Path]) -> set[Path]:
    """Those of the images that nothing names of which nobody says that they show nothing."""
    if kind == "background":
        return set()
    beside = {path.parent for path in named} if kind == "background beside others" else set()
    return {path for path in unnamed if path.parent not in beside}


def _once(lines: Iterable[Box]) -> tuple[Box, ...]:
    """The boxes of one image, each once: of two on one thing a detector can find one at most."""
    return tuple({(box.label, box.sides): box for box in reversed(list(lines)) if box.sides}.values())[::-1]


def split_of(path: Path) -> str:
    """The word for a split that the name of a file holds, or that of a folder on its way; empty where none does."""
    return word_within(path.stem) or word_of(path.parts[:-1])


class Finder:
    """The images of a folder by what one CSV calls them.

    Args:
        root: the folder.
        table: the CSV.
        images: below the folder.
        names: all that the CSV calls them.
    """

    def __init__(self, root: Path, table: Path, images: Iterable[Path], names: Iterable[str]) -> None:
        self.root, self.table, self.known = root, table, set(images)
        self.by_name: dict[str, list[Path]] = {}
        for path in sorted(self.known):
            self.by_name.setdefault(composed(path.name), []).append(path)
        self.exact = {name: self._exact(name) for name in dict.fromkeys(names)}
        self.split = split_of(Path(os.path.relpath(table, root)))
        # Folders of another machine mean nothing here; where some of them do, an image has to be in the one named.
        self.foreign = not any(there and "/" in _plain(name) for name, there in self.exact.items())

    def found(self, name: str) -> list[Path]:
        """The images that a name may stand for."""
        there, plain = self.exact[name], _plain(name)
        if there:
            return [there]
        alike = self.by_name.get(composed(PurePosixPath(plain).name), []) if self.foreign or "/" not in plain else []
        # Of train2017/1.jpg and val2017/1.jpg the first for annotations/instances_train2017.json.
        own = [path for path in alike if self.split and word_of(path.relative_to(self.root).parts[:-1]) == self.split]
        return own or alike

    def leads_out(self, name: str) -> bool:
        """Whether a relative path goes up past the folder, from there and from the CSV alike."""
        plain = _plain(name)
        if ".." not in plain.split("/") or plain.startswith("/") or PureWindowsPath(name).drive:
            return False
        return not any(path.is_relative_to(self.root) for path in self._places(plain))

    def near(self, name: str) -> str | None:
        """The name of an image that differs in its suffix alone, or in small and capital letters."""
        stem = PurePosixPath(_plain(name).lower()).stem
        return next((n for n in self.by_name if n.lower() == stem or PurePosixPath(n.lower()).stem == stem), None)

    def unread(self, name: str) -> bool:
        """Whether there is such a file, though none that is listed as an image."""
        with suppress(OSError):  # a name that is too long for one
            return any(path.is_file() and path.is_relative_to(self.root) for path in self._places(_plain(name)))
        return False

    def _exact(self, name: str) -> Path | None:
        return next((p for text in (name, _plain(name)) for p in self._places(text) if p in self.known), None)

    def _places(self, text: str) -> list[Path]:
        """Where a path leads, without ways up: nothing but what was listed below the folder is ever opened."""
        return [Path(os.path.normpath(base / text)) for base in (self.root, self.table.parent)]


def _plain(name: str) -> str:
    """A name with slashes, as Windows takes them, too."""
    return name.replace("\\", "/")


def _by_image(finder: Finder, boxes: Sequence[Box]) -> dict[Path, list[Box]]:
    """The lines of each image; raises DataError."""
    lines = dict[Path, list[Box]]()
    for box in boxes:
        found = finder.found(box.image)
        if len(found) != 1 or finder.leads_out(box.image):
            raise refused(box.place, no_image(finder, box.image, len(found)))
        lines.setdefault(found[0], []).append(box)
    return lines


def no_image(finder: Finder, name: str, found: int) -> str:
    """What is said of a name that stands for no image, or for several."""
    root, called = finder.root, shorten(name)
    if finder.leads_out(name):
        return f"{called!r} leads out of {root}: give its path below it"
    if found:
        return f"{found} images are called {called!r}: give its path below {root}"
    if finder.unread(name):
        return f"{called!r} has none of the suffixes {', '.join(sorted(IMAGE_SUFFIXES))}: rename the file"
    near = finder.near(name)
    if near is not None:
        return f"no image {called!r} is in {root}, but {shorten(near)!r} is: write the name with the file's own suffix"
    return f"no image {called!r} is in {root}: add it or remove what names it"


def _of_others(root: Path, tables: Sequence[Path], images: Sequence[Path], unnamed: set[Path]) -> dict[Path, set[Path]]:
    """Of images that these files don't name those that others do, by file.

    A name that stands for several leaves all of them out: an image of a test must not be trained on as background.
    """
    found = {}
    for other, names in named_by_others(root, tables):
        finder = Finder(root, other, images, names)
        found[other] = unnamed.intersection(path for name in names for path in finder.found(name))
    return {other: some for other, some in found.items() if some}
