"""Modules of a checkout that is installed for development, which both sides would import instead of their own.

`pip install -e .` and a PYTHONPATH into the checkout lead every `python` there, whatever folder it is started in: base
and head would train the same code, and a gate would pass whatever head changes. So the places in the user's checkouts
where an interpreter finds modules are looked up, and each side has its own such places first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from laptime.gate.git import git, outside_hooks

_QUESTION_S = 60.0
# What an interpreter answers: its path, where setuptools' finders lead, and the projects that pip calls editable.
_QUESTION = r"""
import importlib.metadata, json, os, sys
found = [os.path.abspath(p) for p in sys.path if p]
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        found += [os.path.dirname(place) for place in getattr(module, "MAPPING", {}).values()]
for project in importlib.metadata.distributions():
    told = json.loads(project.read_text("direct_url.json") or "{}")
    if told.get("dir_info", {}).get("editable"):
        from urllib.parse import urlsplit
        from urllib.request import url2pathname
        root = url2pathname(urlsplit(told["url"]).path)
        if not any(p == root or p.startswith(os.path.join(root, "")) for p in found):
            found += [os.path.join(root, "src"), root]
standard = os.path.join(os.path.dirname(os.__file__), "")
parts = {"site-packages", "dist-packages"}  # an environment may stand in a checkout, and is no module of it
print(json.dumps([p for p in found if parts.isdisjoint(p.split(os.sep)) and not (p + os.sep).startswith(standard)]))
"""


def own_places(folder: Path, checkouts: Iterable[Path], found: Iterable[Path]) -> tuple[Path, ...]:
    """A side's own places of modules.

    Args:
        folder: the side's checkout.
        checkouts: the user's, in one of which the modules are installed; the innermost counts.
        found: where an interpreter finds modules.

    Returns:
        For each place in a checkout that is not the side's the corresponding one in its own, where it has that.
    """
    side = folder.resolve()
    tops = sorted((top.resolve() for top in checkouts), key=lambda top: len(top.parts), reverse=True)
    places = [place.resolve() for place in found]
    theirs = [(place, next((t for t in tops if place.is_relative_to(t)), side)) for place in places]
    own = [side / place.relative_to(top) for place, top in theirs if top != side]
    return tuple(dict.fromkeys(place for place in own if place.is_dir()))


def checkouts_of(folders: Iterable[Path]) -> tuple[Path, ...]:
    """The folders and all worktrees of their repositories."""
    found: dict[Path, None] = {}
    for folder in folders:
        found[folder] = None
        listed = (git(folder, "worktree", "list", "--porcelain") or "").splitlines()
        found |= {Path(line.removeprefix("worktree ")): None for line in listed if line.startswith("worktree ")}
    return tuple(found)


def module_places(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where the interpreters that a command may start find modules; none where none answers."""
    found = (place for python in _interpreters(command, folder, environment) for place in _asked(python, environment))
    return tuple(dict.fromkeys(found))


def _interpreters(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Those that the command names, the one beside its program, as of a script that pip has installed, and PATH's."""
    path = environment.get("PATH", os.defpath)
    named = [word for word in command if Path(word).name.startswith("python")]
    usual = "python" if shutil.which("python", path=path) else "python3"
    program = shutil.which(command[0], path=path) if command else None
    beside = [str(Path(program).parent / "python")] if program else []
    known = (str(folder / word) if os.sep in word else shutil.which(word, path=path) for word in (*named, usual))
    yield from dict.fromkeys(p for p in (*known, *beside) if p and Path(p).is_file() and os.access(p, os.X_OK))


def _asked(python: str, environment: Mapping[str, str]) -> list[Path]:
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION], cwd="/", env=outside_hooks(environment), capture_output=True, text=True,
            timeout=_QUESTION_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return [Path(place) for place in json.loads(done.stdout)]
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return []  # no Python, or one that says something else
