"""What git ignores in a checkout, data above all, seen from the worktrees of its commits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from laptime.errors import UsageError, shorten


def places_of(names: Sequence[str], here: Path, top: Path) -> tuple[Path, ...]:
    """Places in a checkout, from its top, whatever links they go through.

    Args:
        names: files and folders as the user names them.
        here: the folder that they are named from.
        top: the checkout.

    Raises:
        UsageError: one is not there, is all of the checkout, or lies outside of it.
    """
    found = []
    for name in names:
        # Not resolved: data may stand on another disk, behind a link of the checkout.
        place = Path(os.path.abspath(here.resolve() / Path(name).expanduser()))  # noqa: PTH100
        if not place.exists():
            raise UsageError(f"--link {shorten(name)!r} is not there: give a file or a folder of the checkout {top}.")
        if place == top:
            raise UsageError(f"--link {shorten(name)!r} is the checkout itself: name what git ignores in it.")
        if not place.is_relative_to(top):
            raise UsageError(f"--link {shorten(name)!r} lies outside of {top}: a training finds it by its whole path.")
        found.append(place.relative_to(top))
    return tuple(found)


def link(places: Sequence[Path], top: Path, folder: Path) -> None:
    """Links files and folders of a checkout into a worktree of one of its commits, which keeps what it has itself.

    Folders become folders whose entries are links: git ignores `data/` only where that is one, and what a training
    writes beside the entries goes away with the worktree.

    Raises:
        UsageError: a commit has the file itself.
    """
    for place in places:
        if (folder / place).is_file():
            raise UsageError(f"--link {str(place)!r} is part of a commit that is gated: link what git ignores alone.")
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        _filled(top / place, folder / place)


def _filled(source: Path, target: Path) -> None:
    if not source.is_dir():
        target.symlink_to(source)
        return
    target.mkdir(exist_ok=True)
    for entry in source.iterdir():
        own = target / entry.name
        if own.is_dir() and entry.is_dir():
            _filled(entry, own)
        elif not own.exists():
            own.symlink_to(entry)
