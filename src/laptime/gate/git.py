"""Base and head by git: commits, merge bases, worktrees. Nothing in the user's checkout is changed."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from laptime.errors import RunError, UsageError, shorten
from laptime.scratch import PREFIX

# Where a pull request usually goes, in the order of trust.
TARGETS = ("origin/HEAD", "origin/main", "origin/master", "main", "master")


def git(folder: Path, *arguments: str) -> str | None:
    """What git says, None where it refuses or is not there."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def top_of(folder: Path) -> Path | None:
    """The checkout that a folder belongs to, None outside version control."""
    found = git(folder, "rev-parse", "--show-toplevel")
    return Path(found) if found else None


def commit_of(folder: Path, ref: str = "HEAD") -> str | None:
    """The commit of a ref, None where there is none of that name."""
    return git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")


def is_dirty(folder: Path) -> bool:
    """Whether there are changes, files that git does not know among them."""
    return bool(git(folder, "status", "--porcelain"))


def find_base(folder: Path, ref: str | None) -> tuple[str, str]:
    """The commit that head is compared with: where it left its target, never the target's tip.

    Args:
        folder: head's checkout.
        ref: the target; None for the first parent of a merge commit, else the usual targets.

    Returns:
        The ref and the commit.

    Raises:
        UsageError: there is no such commit, or it shares no history with head.
    """
    if ref is None:
        if commit_of(folder, "HEAD^2"):
            return "HEAD^1", commit_of(folder, "HEAD^1") or ""
        ref = next((t for t in TARGETS if commit_of(folder, t)), None)
        if ref is None:
            raise UsageError(f"no branch to compare with in {folder} ({', '.join(TARGETS)}): give --base REF.")
    if commit_of(folder, ref) is None:
        raise UsageError(f"--base {shorten(ref)!r} is no commit in {folder}: fetch it, or give another ref.")
    base = git(folder, "merge-base", ref, "HEAD")
    if not base:
        raise UsageError(
            f"--base {shorten(ref)!r} shares no history with HEAD here: fetch more of it (git fetch --unshallow)."
        )
    return ref, base


@contextlib.contextmanager
def worktree(repository: Path, commit: str, folder: Path) -> Iterator[Path]:
    """A checkout of a commit beside the user's own; it goes away at the end.

    Raises:
        RunError: git can't make it.
    """
    _forget_killed(repository)
    made = subprocess.run(
        ["git", "-C", str(repository), "worktree", "add", "--detach", "--force", str(folder), commit],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if made.returncode != 0:
        raise RunError(f"git can't check out {commit[:12]}: {' '.join(made.stderr.split())[:300]}")
    try:
        yield folder
    finally:
        git(repository, "worktree", "remove", "--force", str(folder))


def _forget_killed(repository: Path) -> None:
    """Takes the worktrees of killed gates off git's list; the user's own stay, be their disk away for the moment."""
    listed = (git(repository, "worktree", "list", "--porcelain") or "").splitlines()
    for folder in (Path(line.removeprefix("worktree ")) for line in listed if line.startswith("worktree ")):
        if folder.parent.name.startswith(PREFIX) and not folder.exists():
            git(repository, "worktree", "remove", "--force", str(folder))
