"""The two checkouts of a gate: folders that were named, or commits of the repository that it is called in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from laptime.catalogue.own import is_own
from laptime.errors import UsageError
from laptime.gate.git import commit_of, find_base, is_dirty, no_checkout, top_of
from laptime.gate.links import link, places_of
from laptime.gate.records import Side, SideInfo
from laptime.gate.request import GateRequest
from laptime.gate.sides import Say
from laptime.gate.worktrees import worktree
from laptime.places import expanded


@contextlib.contextmanager
def checkouts(request: GateRequest, here: Path, room: Path, say: Say) -> Iterator[tuple[SideInfo, SideInfo]]:
    """Both checkouts, as the request names them: two folders, or two commits of the repository in `here`.

    Raises:
        UsageError: they can't be found, or are the same.
        RunError: a commit can't be checked out.
    """
    if request.base_dir and request.head_dir:
        yield _folder("base", request.base_dir), _folder("head", request.head_dir)
    elif request.command_base != request.command_head and not request.base:
        yield _folder("base", str(here)), _folder("head", str(here))
    else:
        with _commits(request, here, room, say) as infos:
            yield infos


@contextlib.contextmanager
def _commits(request: GateRequest, here: Path, room: Path, say: Say) -> Iterator[tuple[SideInfo, SideInfo]]:
    """Worktrees of both commits; a checkout with changes that are not committed is head itself."""
    top = top_of(here)
    if top is None:
        raise UsageError(no_checkout(here))
    head, dirty = commit_of(top), is_dirty(top)
    if head is None:
        raise UsageError(f"{top} has no commit yet: commit what is there, or give --base-dir and --head-dir.")
    ref, base = ("HEAD", head) if request.aa and not request.base else find_base(top, request.base)
    if base == head and not dirty and not request.aa:
        raise UsageError(
            f"--base {ref!r} leads to {base[:12]}, which is head itself: commit the change first, give another base, "
            "or measure the noise with --aa 20."
        )
    inside, links = _inside(request, here, top), places_of(request.link, here, top)
    with contextlib.ExitStack() as stack:
        base_folder = stack.enter_context(worktree(top, base, room / "base"))
        head_folder = base_folder if request.aa else top
        if not dirty and not request.aa:
            head_folder = stack.enter_context(worktree(top, head, room / "head"))
        for folder in {base_folder, head_folder} - {top}:
            link(links, top, folder)
        if dirty and not request.aa:
            say(f"{top} has changes that are not committed: head is gated as it is.")
        yield (
            SideInfo(ref=ref, sha=base, folder=str(base_folder), inside=inside),
            SideInfo(ref="HEAD", sha=head, dirty=dirty and not request.aa, folder=str(head_folder), inside=inside),
        )


def _inside(request: GateRequest, here: Path, top: Path) -> str:
    """The folder of the repository that the gate is called in, where what trains is named by it; else its top."""
    by_place = request.command_base or is_own(request.workload)
    found = here.resolve()
    return str(found.relative_to(top)) if by_place and found != top and found.is_relative_to(top) else ""


def _folder(side: Side, name: str) -> SideInfo:
    folder = expanded(name).resolve()
    if not folder.is_dir():
        raise UsageError(f"--{side}-dir {name!r} is no folder: give {side}'s checkout.")
    inside = top_of(folder) is not None
    return SideInfo(
        sha=(commit_of(folder) or "") if inside else "", dirty=inside and is_dirty(folder), folder=str(folder)
    )
