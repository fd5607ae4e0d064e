"""A folder of images and boxes as what is trained and tested on: what says the boxes, their images, and both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from laptime.data.boxes.box import Boxed, one_sided, sides, written_twice
from laptime.data.boxes.forms import find_table, read_table, tables_of
from laptime.data.boxes.lists import by_image_sets, by_yaml
from laptime.data.boxes.match import Matched, match, split_of
from laptime.data.boxes.read import Annotated
from laptime.data.boxes.splits import Part, Sides, by_column, by_folders, by_lines, follow, listed, ordered, says_both
from laptime.data.boxes.voc import without_voc
from laptime.data.split import in_words
from laptime.errors import shorten


@dataclass(frozen=True)
class BoxSet:
    """What a folder comes to.

    Attributes:
        images: of both sides.
        train, test: their names.
        classes: of their boxes.
        said: sentences on what was read, changed and left out.
    """

    images: tuple[Boxed, ...]
    train: tuple[str, ...]
    test: tuple[str, ...]
    classes: tuple[str, ...]
    said: tuple[str, ...]


def read_set(root: Path, table: str, seed: int) -> BoxSet:
    """Reads a folder, whose own split is followed, unless a file or folder of boxes is named.

    Args:
        root: the folder.
        table: the path below it of the file or folder of boxes; empty to find it.
        seed: of a split that is made here.

    Raises:
        UsageError: a seed, and the folder says its split.
        DataError: a box or the split can't be used.
    """
    words = {} if table else _parts_of_tables(root)
    if words:
        return _of_tables(root, words, seed)
    path = root / table if table else find_table(root)
    read = read_table(root, path)
    matched = match(root, {path: read})
    parts, by = ([], "") if table else _own_parts(root, path, matched)
    if parts:
        return _made(read, matched, follow(root, matched.images, parts, by, seed))
    train, test = sides(matched.images, path, seed)
    said = f"A fifth of the images, {in_words(seed)}, is kept for the test." if seed else ""
    return _made(read, matched, Sides(train, test, said))


def _own_parts(root: Path, path: Path, matched: Matched) -> tuple[list[Part], str]:
    """The parts that a set says, by lists before folders, and what says them; none where it says no split."""
    if path.is_dir():
        parts, by = by_yaml(root, matched) if without_voc(path) else by_image_sets(root, matched)
    else:
        parts, by = by_column(matched), path.relative_to(root).as_posix()
    return (parts, f" of {by}") if parts else (by_folders(matched), "")


def _parts_of_tables(root: Path) -> dict[Path, str]:
    """The files of boxes by the splits that their names and folders say; none where not both sides have one.

    Of COCO's own files those of whole things are meant.
    """
    words = {path: split_of(path.relative_to(root)) for path in tables_of(root)}
    whole = {word for path, word in words.items() if "instances" in path.name.lower()}
    words = {p: "" if word in whole and "instances" not in p.name.lower() else word for p, word in words.items()}
    return words if says_both(words.values()) else {}


def _of_tables(root: Path, words: Mapping[Path, str], seed: int) -> BoxSet:
    read, labels = dict[Path, Annotated](), dict[str, str]()
    for side in ordered(words.values()):
        for word in side:
            some = {path: _read_as(word, root, path) for path, said in words.items() if said == word}
            read |= some
            labels[word] = listed(path.relative_to(root).as_posix() for path in some)
            if any(box.sides for one in some.values() for box in one.boxes):
                break
    is_json = all(path.suffix.lower() == ".json" for path in read)
    whole = Annotated(f"Boxes are those of {len(read)} files (COCO's form)." if is_json else "")
    for one in read.values():
        whole.join(one)
    matched = match(root, read)
    chosen = follow(root, matched.images, by_lines(matched, labels), "", seed)
    return _made(whole, replace(matched, others={}), chosen)


def _read_as(word: str, root: Path, path: Path) -> Annotated:
    """What a file says, each line as one of a part."""
    read = read_table(root, path)
    return replace(read, boxes=[replace(box, split=word) for box in read.boxes])


def _made(read: Annotated, matched: Matched, chosen: Sides) -> BoxSet:
    used = {*chosen.train, *chosen.test}
    images = tuple(image for image in matched.images if image.name in used)
    classes = tuple(sorted({box.label for image in images for box in image.boxes}))
    said = [*read.said(), chosen.said, *_told_of(matched, images)]
    said += [*one_sided(images, chosen.test), *written_twice(classes)]
    return BoxSet(images, chosen.train, chosen.test, classes, tuple(filter(None, said)))


def _told_of(matched: Matched, images: Sequence[Boxed]) -> list[str]:
    """A sentence for images of other files, for those that nothing names, for repeated boxes, and for background."""
    left_out = len({name for some in matched.others.values() for name in some})
    by, name = " and ".join(map(shorten, matched.others)), "name" if len(matched.others) > 1 else "names"
    said = [f"{left_out} image(s) that only {by} {name} are left out."] if left_out else []
    unnamed = len(matched.unnamed)
    said += [f"{unnamed} image(s) that no annotation names are left out."] if unnamed else []
    lines = sum(bool(box.sides) for image in images for box in matched.lines.get(image.name, ()))
    again = lines - sum(len(image.boxes) for image in images)
    said += [f"{again} box(es) that repeat another of the same image are passed over."] if again else []
    bare = sum(not image.boxes for image in images)
    return said + ([f"{bare} image(s) without boxes are taken as background."] if bare else [])
