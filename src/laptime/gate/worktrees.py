"""Checkouts of single commits beside the user's own, with the submodules that theirs has."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from laptime.errors import RunError
from laptime.gate.git import ask_git, git
from laptime.host.scratch import PREFIX

# The mode of a submodule among the entries of a commit.
_SUBMODULE = "160000"


@contextlib.contextmanager
def worktree(repository: Path, commit: str, folder: Path) -> Iterator[Path]:
    """A checkout of a commit beside the user's own; it goes away at the end. The user's post-checkout hook runs in it.

    A submodule that the user's checkout has, or had, is there at the commit that this one wants, by a worktree of its
    own repository: nothing is cloned or fetched.

    Raises:
        RunError: git can't make it, or the clone of a submodule lacks the commit.
    """
    at = _as_repository(repository)
    _forget_killed(repository, at)
    with contextlib.ExitStack() as stack:
        stack.callback(git, repository, *at, "worktree", "remove", "--force", str(folder))
        made = ask_git(repository, *at, "worktree", "add", "--detach", "--force", str(folder), commit)
        # With all files there it is a hook of the user's that failed, which git itself does not undo either.
        if made.returncode != 0 and git(folder, "rev-parse", "--show-toplevel") != str(folder.resolve()):
            raise RunError(f"git can't check out {commit[:12]}: {' '.join(made.stderr.split())[:300]}")
        for place, wanted in _submodules(folder):
            own = _repository_of(repository, folder, place)
            if own is not None:
                _have(own, wanted, place)
                stack.enter_context(worktree(own, wanted, folder / place))
        yield folder


def _submodules(folder: Path) -> list[tuple[str, str]]:
    """The places of a checkout's submodules and the commits that it wants of them."""
    entries = (git(folder, "ls-files", "--stage", "-z") or "").split("\0")
    known = [entry.partition("\t") for entry in entries if entry.startswith(_SUBMODULE)]
    return [(place, fields.split()[1]) for fields, _, place in known]


def _repository_of(repository: Path, folder: Path, place: str) -> Path | None:
    """Where the user's checkout has a submodule of a commit: at its place, or in git's own folder under its name.

    The second where the place is another one now, or the submodule is gone from the checkout. None where it is not
    there, as in a clone whose submodules were not asked for: the training has to do without in the user's checkout,
    too.
    """
    if (repository / place / ".git").exists():
        return repository / place
    told = git(folder, "config", "--null", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$") or ""
    keys = {path: key for key, _, path in (entry.partition("\n") for entry in told.split("\0"))}
    common = git(repository, *_as_repository(repository), "rev-parse", "--git-common-dir")
    if place not in keys or common is None:
        return None
    found = repository / common / "modules" / keys[place].removeprefix("submodule.").removesuffix(".path")
    return found if (found / "HEAD").is_file() else None


def _have(own: Path, wanted: str, place: str) -> None:
    at = _as_repository(own)
    if git(own, *at, "cat-file", "-e", f"{wanted}^{{commit}}") is None:
        raise RunError(
            f"the clone of the submodule {place!r} lacks {wanted[:12]}, which a commit that is gated wants: "
            f"git {shlex.join(at or ('-C', str(own)))} fetch origin {wanted}."
        )


def _as_repository(folder: Path) -> tuple[str, ...]:
    """Options for a folder of git's own: that of a submodule would lead git to a checkout that may be gone."""
    if (folder / ".git").exists():
        return ()
    return f"--git-dir={folder}", f"--work-tree={folder}"


def _forget_killed(repository: Path, at: tuple[str, ...]) -> None:
    """Takes the worktrees of killed gates off git's list; the user's own stay, be their disk away for the moment."""
    listed = (git(repository, *at, "worktree", "list", "--porcelain") or "").splitlines()
    for folder in (Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree ")):
        if any(part.startswith(PREFIX) for part in folder.parts[:-1]) and not folder.exists():
            git(repository, *at, "worktree", "remove", "--force", str(folder))
