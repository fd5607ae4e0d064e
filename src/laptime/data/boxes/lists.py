"""Splits that files list: YOLO's data.yaml with its folders and lists, and Pascal VOC's ImageSets."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from laptime.data.boxes.box import at
from laptime.data.boxes.files import ending
from laptime.data.boxes.match import Finder, Matched, no_image
from laptime.data.boxes.splits import BOTH, Part, listed, says_both
from laptime.data.boxes.yolo import lines_of, yaml_of
from laptime.data.split_folders import TEST_NAMES, TRAIN_NAMES, plain_word, word_within
from laptime.errors import shorten

_FLAGS = ("1", "0", "-1")


@dataclass
class _Listed:
    """The images of one part, and a sentence for the first that isn't there."""

    names: set[str] = field(default_factory=set)
    missing: str = ""

    def lacks(self, sentence: str) -> None:
        self.missing = self.missing or sentence


def by_yaml(root: Path, matched: Matched) -> tuple[list[Part], str]:
    """The parts that YAML files with the classes' names say, and these files; none without a training and a test.

    A part is a folder, a text file that lists images, or several of these. A place counts from `path`, from the YAML
    file or from the root; where it leads to another machine's, from the first of its folders that is here.

    Raises:
        DataError: a file can't be read.
    """
    found, files = dict[str, _Listed](), list[str]()
    images = [image.name for image in matched.images] + list(matched.unnamed)
    known = {folder for name in images for folder in (root / name).parents} | set(ending(root, ".txt"))
    for path in ending(root, ".yaml", ".yml"):
        fields = yaml_of(path)
        yaml = _Yaml(root, path, str(fields.get("path", "")), known)
        said = {word: places for key in fields if (word := plain_word(key)) and (places := _places(fields[key]))}
        if "names" in fields and says_both(said):
            files.append(path.relative_to(root).as_posix())
            for word, place in ((word, place) for word, places in said.items() for place in places):
                _add(found.setdefault(word, _Listed()), yaml, place, images)
    return [Part(word, word, frozenset(part.names), part.missing) for word, part in found.items()], listed(files)


def _places(value: object) -> list[str]:
    some = value if isinstance(value, list) else [value]
    return [text.strip() for text in some if isinstance(text, str) and text.strip()]


@dataclass(frozen=True)
class _Yaml:
    """A YAML file below the root, the place from which its places count, and the folders and lists that there are."""

    root: Path
    path: Path
    base: str
    known: set[Path]

    def leads_to(self, place: str) -> Path | None:
        """The folder or list of images, below the root, that a place means."""
        plain = place.replace("\\", "/")
        for text in (plain, *_tails(plain)):
            for top in (self.path.parent / self.base, self.path.parent, self.root / self.base, self.root):
                found = Path(os.path.normpath(top / text))
                if found in self.known and found.is_relative_to(self.root):
                    return found
        return None


def _tails(plain: str) -> Iterator[str]:
    """A path without its first folders, and ever more of them, up to one that says a split."""
    folders = [part for part in PurePosixPath(plain).parts if part not in ("..", "/")]
    for start, folder in enumerate(folders):
        yield "/".join(folders[start:])
        if plain_word(folder) or word_within(folder):
            return


def _add(part: _Listed, yaml: _Yaml, place: str, images: Sequence[str]) -> None:
    """Adds the images of one place."""
    found = yaml.leads_to(place)
    if found is None:
        part.lacks(
            f"{yaml.path} names {shorten(place)!r}, which is no folder or list of images in {yaml.root}: correct it."
        )
    elif found.suffix.lower() == ".txt" and found.is_file():
        _add_lines(part, yaml.root, found, images)
    else:
        part.names.update(name for name in images if (yaml.root / name).is_relative_to(found))


def _add_lines(part: _Listed, root: Path, path: Path, images: Iterable[str]) -> None:
    lines = [(number, text) for number, line in enumerate(lines_of(path), start=1) if (text := line.strip())]
    finder = Finder(root, path, [root / name for name in images], [text for _, text in lines])
    for number, text in lines:
        found = finder.found(text)
        if len(found) != 1 or finder.leads_out(text):
            part.lacks(f"{at(path, number)}: {no_image(finder, text, len(found))}.")
        else:
            part.names.add(found[0].relative_to(root).as_posix())


def by_image_sets(root: Path, matched: Matched) -> tuple[list[Part], str]:
    """The parts that `ImageSets/Main` lists by its files that are called as splits, and that folder.

    Those of one class (`cat_train.txt`) are none. An image is the one that its line names, without a suffix, beside the
    folder `ImageSets`. `trainval` is the training where there is no `train`.

    Raises:
        DataError: a file can't be read.
    """
    found, folders = dict[str, _Listed](), list[str]()
    words = (*TRAIN_NAMES, *TEST_NAMES, BOTH)
    for path in ending(root, ".txt"):
        if [part.lower() for part in path.parts[-3:-1]] == ["imagesets", "main"] and path.stem.lower() in words:
            folders.append(path.parent.relative_to(root).as_posix())
            _add_stems(found.setdefault(path.stem.lower(), _Listed()), root, path, matched)
    if not found.keys().isdisjoint(TRAIN_NAMES):
        found.pop(BOTH, None)
    parts = [Part(word, f"{word}.txt", frozenset(part.names), part.missing) for word, part in found.items()]
    return (parts if says_both(found) else []), listed(folders)


def _add_stems(part: _Listed, root: Path, path: Path, matched: Matched) -> None:
    beside = path.parents[2]
    start = "" if beside == root else f"{beside.relative_to(root).as_posix()}/"
    # Masks are called as their images, and no annotation names them.
    names = [*matched.unnamed, *(image.name for image in matched.images)]
    stems = {PurePosixPath(name).stem: name for name in names if name.startswith(start)}
    for number, line in enumerate(lines_of(path), start=1):
        stem = _stem(line, stems)
        if stem in stems:
            part.names.add(stems[stem])
        elif stem:
            part.lacks(f"{at(path, number)}: no image {shorten(stem)!r} is in {beside}: add it or remove the line.")


def _stem(line: str, stems: Collection[str]) -> str:
    """What a line calls an image: a name, perhaps with a suffix, or with a number behind it."""
    text = line.strip()
    if text in stems:
        return text
    *before, last = text.rsplit(maxsplit=1) or [""]
    name = before[0] if before and last in _FLAGS else text
    return name if name in stems else PurePosixPath(name.replace("\\", "/")).stem
