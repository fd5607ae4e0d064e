"""Base and head of a repository with submodules: each side has them at the commits that it wants."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_examples import in_repository

from laptime.errors import RunError
from laptime.gate.checkouts import checkouts
from laptime.gate.git import is_dirty
from laptime.gate.request import make_gate_request
from laptime.gate.worktrees import worktree

Git = Callable[..., str]
LOCAL = ("-c", "protocol.file.allow=always")


def made(folder: Path, **files: str) -> Git:
    folder.mkdir(parents=True, exist_ok=True)
    git = in_repository(folder)
    commit(git, folder, **files)
    return git


def commit(git: Git, folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    git("add", ".")
    git("commit", "-q", "--allow-empty", "-m", "a change")
    return git("rev-parse", "HEAD")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A checkout with the submodule `deps/lib`, which has `inner` in it; on a branch, ready to be changed."""
    made(tmp_path / "inner", inner="one")
    lib = made(tmp_path / "lib", lib="one")
    lib(*LOCAL, "submodule", "add", "-q", str(tmp_path / "inner"), "inner")
    commit(lib, tmp_path / "lib")
    git = made(tmp_path / "origin", train="one")
    git(*LOCAL, "submodule", "add", "-q", "--name", "of another name", str(tmp_path / "lib"), "deps/lib")
    commit(git, tmp_path / "origin")
    here = in_repository(tmp_path / "origin")
    here(*LOCAL, "clone", "-q", "--recurse-submodules", str(tmp_path / "origin"), str(tmp_path / "top"))
    in_repository(tmp_path / "top")("switch", "-q", "-c", "change")
    return tmp_path / "top"


def texts(top: Path, room: Path, *names: str) -> list[tuple[str | None, ...]]:
    """What stands in files of base's and of head's checkout, None where there is none."""
    asked = make_gate_request(workload="any", command="python train.py", base="origin/main")
    with checkouts(asked, top, room, print) as sides:
        folders = [Path(side.folder) for side in sides]
        assert not [folder for folder in folders if folder != top and is_dirty(folder)]
        places = [[folder / name for name in names] for folder in folders]
        found = [tuple(p.read_text(encoding="utf-8") if p.is_file() else None for p in side) for side in places]
    assert not [folder for folder in folders if folder != top and folder.exists()]
    return found


def listed(*repositories: Path) -> str:
    return "".join(in_repository(folder)("worktree", "list", "--porcelain") for folder in repositories)


def test_each_side_has_submodules_at_its_own_commits(top, tmp_path):
    lib, git = in_repository(top / "deps" / "lib"), in_repository(top)
    commit(in_repository(top / "deps" / "lib" / "inner"), top / "deps" / "lib" / "inner", inner="two")
    commit(lib, top / "deps" / "lib", lib="two")
    commit(git, top)
    before = git("status", "--porcelain"), lib("rev-parse", "HEAD"), listed(top, top / "deps" / "lib")
    names = "deps/lib/lib.py", "deps/lib/inner/inner.py"
    assert texts(top, tmp_path / "room", *names) == [("one", "one"), ("two", "two")]
    assert before == (git("status", "--porcelain"), lib("rev-parse", "HEAD"), listed(top, top / "deps" / "lib"))


def test_a_submodule_with_changes_that_are_not_committed_is_heads_as_it_is(top, tmp_path):
    (top / "deps" / "lib" / "lib.py").write_text("changed", encoding="utf-8")
    assert texts(top, tmp_path / "room", "deps/lib/lib.py") == [("one",), ("changed",)]


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_base_has_a_submodule_that_the_checkout_has_elsewhere_or_no_more(how: str, top: Path, tmp_path: Path) -> None:
    git = in_repository(top)
    git(*(("mv", "deps/lib", "lib") if how == "moved" else ("rm", "-q", "deps/lib")))
    commit(git, top)
    expected = [("one", "one", None), (None, None, "one" if how == "moved" else None)]
    names = "deps/lib/lib.py", "deps/lib/inner/inner.py", "lib/lib.py"
    assert texts(top, tmp_path / "room", *names) == expected


def test_a_submodule_that_nobody_asked_for_is_on_neither_side(top, tmp_path):
    in_repository(top)("submodule", "deinit", "-q", "--force", "deps/lib")
    shutil.rmtree(top / ".git" / "modules")
    commit(in_repository(top), top, train="two")
    assert texts(top, tmp_path / "room", "train.py", "deps/lib/lib.py") == [("one", None), ("two", None)]


def test_a_commit_that_the_clone_of_a_submodule_lacks_is_told_with_how_to_fetch_it(top, tmp_path):
    git, lib = in_repository(top), top / "deps" / "lib"
    had = git("rev-parse", "HEAD:deps/lib")
    lacked = commit(in_repository(tmp_path / "lib"), tmp_path / "lib", lib="two")
    for wanted in (lacked, had):
        git("update-index", "--cacheinfo", f"160000,{wanted},deps/lib")
        git("commit", "-q", "-m", "another commit of it")
    git("update-ref", "refs/remotes/origin/main", "HEAD^")
    said = f"submodule 'deps/lib' lacks {lacked[:12]}, .*: git -C {lib} fetch origin {lacked}"
    with pytest.raises(RunError, match=said):
        texts(top, tmp_path / "room", "train.py")
    assert not (tmp_path / "room" / "base").exists()
    in_repository(lib)(*LOCAL, "fetch", "-q", "origin", lacked)
    assert texts(top, tmp_path / "room", "deps/lib/lib.py") == [("two",), ("one",)]


def test_one_that_is_lacked_and_gone_from_the_checkout_is_fetched_as_said(top, tmp_path):
    git = in_repository(top)
    lacked = commit(in_repository(tmp_path / "lib"), tmp_path / "lib", lib="two")
    git("update-index", "--cacheinfo", f"160000,{lacked},deps/lib")
    git("commit", "-q", "-m", "ahead of its clone")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    git("rm", "-q", "--force", "deps/lib")
    commit(git, top)
    with pytest.raises(RunError) as raised:
        texts(top, tmp_path / "room", "train.py")
    fetch = str(raised.value).rpartition(": git ")[2].removesuffix(".")
    git(*LOCAL, *shlex.split(fetch))
    assert texts(top, tmp_path / "room", "deps/lib/lib.py") == [("two",), (None,)]


def test_submodules_of_killed_gates_are_forgotten(top, tmp_path):
    room = tmp_path / "laptime-scratch-gate-killed"
    killed = worktree(top, "HEAD", room / "base")
    killed.__enter__()
    repositories = top, top / "deps" / "lib", top / "deps" / "lib" / "inner"
    assert all(str(room) in listed(repository) for repository in repositories)
    shutil.rmtree(room)
    with worktree(top, "HEAD", tmp_path / "now"):
        assert not any(str(room) in listed(repository) for repository in repositories)
    assert not any(str(tmp_path / "now") in listed(repository) for repository in repositories)
    killed.__exit__(None, None, None)
