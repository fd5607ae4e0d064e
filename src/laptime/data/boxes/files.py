"""The files of a folder of images with boxes, and which image a file of annotations stands beside."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from laptime.data.listing import IMAGE_SUFFIXES, PASSED, leads_back
from laptime.errors import DataError, shorten

# Links to folders are followed as far down as those of class folders are.
_FOLLOWED = 2


def ending(root: Path, *suffixes: str) -> list[Path]:
    """The files below a folder whose names end so in any case of letters, sorted, without hidden ones and dead links.

    Raises:
        DataError: a folder, or what a link leads to, can't be read.
    """
    found, folders = list[Path](), [(root, 0)]
    while folders:
        folder, depth = folders.pop()
        try:
            with os.scandir(folder) as entries:
                shown = [entry for entry in entries if not entry.name.startswith(PASSED)]
            found += [Path(e.path) for e in shown if e.name.lower().endswith(suffixes) and _is_file(e)]
        except OSError as error:
            raise DataError(f"{error.filename} can't be read ({error.strerror}): check it.") from error
        folders += [(Path(entry.path), depth + 1) for entry in shown if _is_followed(entry, depth >= _FOLLOWED)]
    return sorted(found, key=lambda path: path.parts)


def _is_file(entry: os.DirEntry[str]) -> bool:
    """Asked for each of 100,000 files several times: without a call to the system, but for links."""
    return Path(entry.path).is_file() if entry.is_symlink() else entry.is_file()


def _is_followed(entry: os.DirEntry[str], deep: bool) -> bool:
    if not entry.is_symlink():
        return entry.is_dir()
    path = Path(entry.path)
    return path.is_dir() and not (deep or leads_back(path))


def images_in(root: Path) -> list[Path]:
    """The images below a folder, by their suffixes, sorted; raises DataError."""
    return ending(root, *(f".{suffix}" for suffix in IMAGE_SUFFIXES))


def bytes_of(path: Path, form: str) -> bytes:
    """What a file of boxes holds; `form` is the remedy. Raises DataError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"the boxes {path} can't be read ({error.strerror}): {form}.") from error


class Beside:
    """The images of a folder by their names without suffix, as tools name the file of an image's annotations."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.by_stem: dict[str, list[Path]] = {}
        for path in images_in(root):
            self.by_stem.setdefault(path.stem, []).append(path)
        self.taken: dict[Path, Path] = {}

    def of(self, path: Path, name: str = "") -> str | None:
        """The image that a file of annotations stands for, as a path below the root; None where there is none.

        Of several one that has the name that the file says, then that of the file's own folder, then the one that
        shares most folders with it: `labels/train/1.txt` is for `images/train/1.jpg`, `valid/labels/1.txt` for
        `valid/images/1.jpg`, and for no mask in `valid/masks`.

        Raises:
            DataError: several images are meant, or one for which another file stands already.
        """
        found = self.by_stem.get(path.stem, [])
        near = [(image.name == name, *self._near(path, image)) for image in found]
        best = [image for image, key in zip(found, near, strict=True) if key == max(near)]
        if not best:
            return None
        if len(best) > 1:
            raise DataError(
                f"{path} may stand for {len(best)} images ({', '.join(shorten(str(p)) for p in best[:3])}): keep "
                "one, or bring images and annotations of one part into folders of one name."
            )
        other = self.taken.setdefault(best[0], path)
        if other != path:
            raise DataError(
                f"{other} and {path} both say the boxes of {best[0]}: remove one, or name the folder that is meant "
                "behind the place of the data (#boxes=FOLDER)."
            )
        return best[0].relative_to(self.root).as_posix()

    def _near(self, path: Path, image: Path) -> tuple[bool, int, bool]:
        own, its = (Counter(p.relative_to(self.root).parts[:-1]) for p in (path, image))
        return path.parent == image.parent, (own & its).total(), any("image" in name.lower() for name in its)
