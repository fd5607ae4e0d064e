"""Base and head by git: commits and merge bases. Nothing in the user's checkout is changed."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from laptime.errors import UsageError, shorten

# Where a pull request usually goes, in the order of trust.
TARGETS = ("origin/HEAD", "origin/main", "origin/master", "main", "master")
# What git tells its hooks of the repository and the index that it works on.
_OF_A_HOOK = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX")
_FETCH = "its clone is shallow, so fetch more of it (git fetch --unshallow; fetch-depth: 0 of actions/checkout)"


def outside_hooks(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which git finds the repository by the folder alone.

    In a hook it would work on what that hook is called for: a worktree that is made there overwrites the index of the
    very commit that is being made, and a training that asks for its commit hears of another checkout's.
    """
    return {name: value for name, value in environment.items() if name not in _OF_A_HOOK}


def git(folder: Path, *arguments: str) -> str | None:
    """What git says, None where it refuses or is not there."""
    try:
        done = ask_git(folder, *arguments)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def ask_git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """All that git says in a folder, and how it ends.

    Raises:
        OSError: git can't be started.
    """
    command = ["git", "-C", str(folder), *arguments]
    environment = outside_hooks(os.environ)
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)


def top_of(folder: Path) -> Path | None:
    """The checkout that a folder belongs to, None outside version control."""
    found = git(folder, "rev-parse", "--show-toplevel")
    return Path(found) if found else None


def no_checkout(folder: Path) -> str:
    """Why a folder belongs to no checkout, in one sentence with the remedy."""
    dirs = "or give --base-dir and --head-dir"
    if git(folder, "--version") is None:
        return f"git can't be started, and base and head are two commits of {folder}: install it, {dirs}."
    refused = git(folder, "-c", "safe.directory=*", "rev-parse", "--show-toplevel")
    if refused:  # as in a container that another user has checked out for
        return (
            f"git refuses {refused}, since it belongs to another user: "
            f"git config --global --add safe.directory {refused}, {dirs}."
        )
    return f"{folder} is no git checkout: go into one, {dirs}."


def commit_of(folder: Path, ref: str = "HEAD") -> str | None:
    """The commit of a ref, None where there is none of that name."""
    return git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")


def project_of(folder: Path) -> str:
    """What tells a project from another one, in whichever checkout: the name of its origin, else of its own folder."""
    origin = git(folder, "config", "--get", "remote.origin.url")
    if origin:
        return re.split(r"[/:]", origin.rstrip("/"))[-1].removesuffix(".git")
    common = git(folder, "rev-parse", "--git-common-dir")
    return (folder / common).resolve().parent.name if common else ""


def is_dirty(folder: Path) -> bool:
    """Whether there are changes, files that git does not know among them."""
    return bool(git(folder, "status", "--porcelain"))


def find_base(folder: Path, ref: str | None) -> tuple[str, str]:
    """The commit that head is compared with: where it left its target, never the target's tip.

    Args:
        folder: head's checkout.
        ref: the target; None for the first parent of a merge commit, else the usual targets, as where HEAD merges
            one of them into a branch.

    Returns:
        The ref and the commit.

    Raises:
        UsageError: there is no such commit, or it shares no history with head.
    """
    shallow = git(folder, "rev-parse", "--is-shallow-repository") == "true"
    if ref is None:
        ref = next((t for t in TARGETS if commit_of(folder, t)), None)
        if commit_of(folder, "HEAD^2") and not (ref and _took_in(folder, ref)):
            return "HEAD^1", commit_of(folder, "HEAD^1") or ""
        if ref is None:
            remedy = f"{_FETCH}, or give" if shallow else "give"
            raise UsageError(f"no branch to compare with in {folder} ({', '.join(TARGETS)}): {remedy} --base REF.")
    if commit_of(folder, ref) is None:
        remedy = _FETCH if shallow else "fetch it"
        raise UsageError(f"--base {shorten(ref)!r} is no commit in {folder}: {remedy}, or give another ref.")
    base = git(folder, "merge-base", ref, "HEAD")
    if not base:
        remedy = f"{_FETCH}." if shallow else "give a ref that head once left, or --base-dir and --head-dir."
        raise UsageError(f"--base {shorten(ref)!r} shares no history with HEAD here: {remedy}")
    return ref, base


def _took_in(folder: Path, target: str) -> bool:
    """Whether HEAD merges the target into a branch: what the target brings there is no change of the branch's."""

    def has(commit: str) -> bool:
        return git(folder, "merge-base", "--is-ancestor", commit, target) is not None

    return has("HEAD^2") and not has("HEAD^1")
