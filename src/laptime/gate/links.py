"""What git ignores in a checkout, data above all, seen from the worktrees of its commits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from laptime.errors import UsageError, shorten
from laptime.gate.git import git
from laptime.places import expanded


def places_of(names: Sequence[str], here: Path, top: Path) -> tuple[Path, ...]:
    """Places in a checkout, from its top, whatever links they go through; each once, what lies in another one left out.

    Args:
        names: files and folders as the user names them.
        here: the folder that they are named from.
        top: the checkout.

    Raises:
        UsageError: one is not there, is all of the checkout, or lies outside of it or in its `.git`.
    """
    found = []
    for name in names:
        # Not resolved: data may stand on another disk, behind a link of the checkout.
        place = Path(os.path.abspath(here.resolve() / expanded(name)))  # noqa: PTH100
        if not os.path.exists(place):  # noqa: PTH110 - false for a name that no file can have, too
            raise UsageError(f"--link {shorten(name)!r} is not there: give a file or a folder of the checkout {top}.")
        inside = _inside(place, top)
        if inside is None:
            raise UsageError(f"--link {shorten(name)!r} lies outside of {top}: a training finds it by its whole path.")
        if not inside.parts:
            raise UsageError(f"--link {shorten(name)!r} is the checkout itself: name what git ignores in it.")
        if inside.parts[0] == ".git":
            raise UsageError(f"--link {shorten(name)!r} is git's own, which both commits have: leave it out.")
        found.append(inside)
    return tuple(p for p in dict.fromkeys(found) if not set(p.parents) & set(found))


def _inside(place: Path, top: Path) -> Path | None:
    """A place from the top of the checkout, which may be named through links itself; None where it is not in it."""
    above = next((p for p in (place, *place.parents) if p.resolve() == top.resolve()), None)
    return None if above is None else place.relative_to(above)


def link(places: Sequence[Path], top: Path, folder: Path) -> None:
    """Links files and folders of a checkout into a worktree of one of its commits, which keeps what it has itself.

    Folders become folders whose entries are links: git ignores `data/` only where that is one, and what a training
    writes beside the entries goes away with the worktree. Nothing is written through a link of the commit, which leads
    to a folder of the user's.

    Raises:
        UsageError: a commit has the file itself, or a file or another link in its way.
    """
    for place in places:
        if not _is_behind_a_link(place, top, folder):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            _filled(top / place, folder / place)
    while seen := [name for name in _untracked(folder) if _is_folder(top / name) and (folder / name).is_symlink()]:
        for name in seen:  # as folders they are ignored: `data/raw/`
            (folder / name).unlink()
            _filled(top / name, folder / name)


def _is_behind_a_link(place: Path, top: Path, folder: Path) -> bool:
    """Whether a commit finds it by a link of its own already; raises UsageError where there is no room for it."""
    said, own = f"--link {str(place)!r}", folder / place
    way = next(
        (p for p in reversed((place, *place.parents)) if (folder / p).is_symlink() or (folder / p).is_file()), None
    )
    if way is None and not (own.is_dir() and not (top / place).is_dir()):
        return False
    if way is not None and (folder / way).is_symlink():
        same = (top / way).is_symlink() and (top / way).readlink() == (folder / way).readlink()
        if same and own.exists():
            return True
        raise UsageError(
            f"{said} stands behind the link {str(way)!r} of a commit that is gated: link what that leads to, or name "
            "the data by their whole path."
        )
    if way not in (None, place):
        raise UsageError(f"{said} has no place in a commit that is gated, where {str(way)!r} is a file: leave it out.")
    raise UsageError(f"{said} is part of a commit that is gated: link what git ignores alone.")


def _untracked(folder: Path) -> list[str]:
    found = git(folder, "ls-files", "--others", "--exclude-standard", "-z")
    return [name for name in (found or "").split("\0") if name]


def _is_folder(place: Path) -> bool:
    return place.is_dir() and not place.is_symlink()


def _filled(source: Path, target: Path) -> None:
    if not source.is_dir():
        target.symlink_to(source)
        return
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        own = target / entry.name
        if _is_folder(own) and entry.is_dir():
            _filled(entry, own)
        elif not os.path.lexists(own):
            own.symlink_to(entry)
