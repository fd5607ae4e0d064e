"""Base and head in repositories as people have them: merged, shallow, in a hook, called in a folder below."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gate_examples import in_repository

from laptime.errors import UsageError
from laptime.gate.checkouts import checkouts
from laptime.gate.git import commit_of, find_base, is_dirty, outside_hooks
from laptime.gate.installed import own_places
from laptime.gate.records import SideInfo
from laptime.gate.request import make_gate_request
from laptime.gate.sides import make_ready, what_trains
from laptime.gate.worktrees import worktree
from laptime.own.loop import CHECKOUTS


def test_base_is_where_head_left_its_target(tmp_path):
    git = in_repository(tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "one")
    left = git("rev-parse", "HEAD")
    git("switch", "-q", "-c", "change")
    git("commit", "-q", "--allow-empty", "-m", "mine")
    git("switch", "-q", "main")
    git("commit", "-q", "--allow-empty", "-m", "two")
    tip = git("rev-parse", "HEAD")
    git("switch", "-q", "change")
    assert find_base(tmp_path, None) == ("main", left)
    assert find_base(tmp_path, "main") == ("main", left)
    git("merge", "-q", "--no-ff", "-m", "together", "main")
    # What main brings into the branch is no change of the branch's.
    assert find_base(tmp_path, "main") == find_base(tmp_path, None) == ("main", tip)
    # The first parent of a merge commit, as a pull request's merge has its target there.
    git("switch", "-q", "main")
    git("merge", "-q", "--no-ff", "-m", "merged", "change")
    assert find_base(tmp_path, None) == ("HEAD^1", tip)
    git("switch", "-q", "--orphan", "alone")
    git("commit", "-q", "--allow-empty", "-m", "else")
    with pytest.raises(UsageError, match="no history with HEAD here: give a ref that head once left"):
        find_base(tmp_path, "main")
    assert not is_dirty(tmp_path)
    with worktree(tmp_path, tip, tmp_path.parent / "there") as folder:
        assert commit_of(folder) == tip
    assert not (tmp_path.parent / "there").exists()


def test_worktrees_of_killed_gates_are_forgotten_and_the_user_s_own_are_not(tmp_path):
    git = in_repository(tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "one")
    for place in ("away", "laptime-scratch-gate-killed/base"):
        git("worktree", "add", "-q", "--detach", str(tmp_path / place), "HEAD")
        shutil.rmtree(tmp_path / place)
    with worktree(tmp_path, "HEAD", tmp_path / "now"):
        pass
    listed = git("worktree", "list", "--porcelain")
    assert str(tmp_path / "away") in listed
    assert "laptime-scratch" not in listed
    assert str(tmp_path / "now") not in listed


def test_a_gate_in_a_hook_leaves_the_index_of_the_commit_that_is_being_made(tmp_path, monkeypatch):
    here, index = tmp_path / "here", tmp_path / "index.lock"
    here.mkdir()
    git = in_repository(here)
    git("commit", "-q", "--allow-empty", "-m", "one")
    (here / "new.py").touch()
    git("add", "new.py")
    shutil.copy(here / ".git" / "index", index)
    before, commit = index.read_bytes(), git("rev-parse", "HEAD")
    monkeypatch.setenv("GIT_INDEX_FILE", str(index))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "another"))
    with worktree(here, "HEAD", tmp_path / "there") as folder:
        assert commit_of(folder) == commit
    assert index.read_bytes() == before
    assert not {"GIT_INDEX_FILE", "GIT_DIR"} & set(outside_hooks(os.environ))


def test_a_hook_of_the_user_s_that_fails_costs_no_checkout(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    git = in_repository(here)
    git("commit", "-q", "--allow-empty", "-m", "one")
    hook = here / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with worktree(here, "HEAD", tmp_path / "there") as folder:
        assert folder.is_dir()
    assert git("worktree", "list", "--porcelain").count("worktree ") == 1


def test_what_a_gate_can_not_find_is_told_with_what_helps(tmp_path, monkeypatch):
    whole, shallow = tmp_path / "whole", tmp_path / "shallow"
    whole.mkdir()
    git = in_repository(whole)
    request = make_gate_request(workload="x", command="train", device="none")

    def told() -> str:
        with pytest.raises(UsageError) as error, checkouts(request, whole, tmp_path, print):
            pass
        return str(error.value)

    assert "has no commit yet" in told()
    for name in ("one", "two"):
        git("commit", "-q", "--allow-empty", "-m", name)
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{whole}", str(shallow)], check=True)
    for ref in (git("rev-parse", "HEAD~1"), "nowhere"):
        with pytest.raises(UsageError, match=r"its clone is shallow, .*fetch-depth: 0"):
            find_base(shallow, ref)
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    assert f"git config --global --add safe.directory {whole}" in told()


@pytest.mark.parametrize("dirty", [False, True])
def test_a_command_runs_in_the_folder_that_the_gate_is_called_in(dirty: bool, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "ml").mkdir(parents=True)
    git = in_repository(top)
    for text in ("one", "two"):
        (top / "ml" / "train.py").write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", text)
    (top / "ml" / "train.py").write_text("three" if dirty else "two")
    request = make_gate_request(workload="x", base="HEAD~1", command="train", device="none")
    with checkouts(request, top / "ml", tmp_path, print) as infos:
        base, head, *_ = make_ready(request, infos, tmp_path, print)
        read = [(ready.folder / "train.py").read_text() for ready in (base, head)]
    assert read == ["one", "three" if dirty else "two"]
    assert Path(infos[1].folder) == (top if dirty else tmp_path / "head")
    # Another project's python train.py, and one of another folder, has another noise.
    assert what_trains(request, "train", infos[1].model_copy(update={"folder": str(top)})) == "x train top ml"
    git("remote", "add", "origin", "git@host:team/project.git")
    assert what_trains(request, "train", SideInfo(folder=str(top))) == "x train project"
    cifar = make_gate_request(workload="cifar", base="HEAD~1", device="cpu")
    with checkouts(cifar, top / "ml", tmp_path, print) as infos:
        assert [info.inside for info in infos] == ["", ""]


@pytest.mark.parametrize("how", ["path", "editable"])
def test_modules_that_are_installed_from_the_checkout_are_each_side_s_own(how: str, tmp_path: Path, monkeypatch):
    top, site = tmp_path / "top", tmp_path / "site"
    (top / "src").mkdir(parents=True)
    git = in_repository(top)
    for text in ("one", "two"):
        (top / "src" / "mine.py").write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", text)
    told = site / "mine-1.dist-info" / "direct_url.json"
    told.parent.mkdir(parents=True)
    (told.parent / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    told.write_text(json.dumps({"url": top.as_uri(), "dir_info": {"editable": True}}))
    monkeypatch.setenv("PYTHONPATH", str(top / "src" if how == "path" else site))
    monkeypatch.chdir(top)
    request = make_gate_request(workload="x", base="HEAD~1", command=f"{sys.executable} train.py", device="none")
    with checkouts(request, top, tmp_path, print) as infos:
        base, head, _, notice = make_ready(request, infos, tmp_path, print)
        for ready in (base, head):
            own = tmp_path / ready.side
            expected = [own / "src"] if how == "path" else [own / "src", own]
            found = dict(ready.environment)["PYTHONPATH"].split(os.pathsep)
            assert found == [*map(str, expected), os.environ["PYTHONPATH"]]
            first, *others = dict(ready.environment)[CHECKOUTS].split(os.pathsep)
            assert first == str(own)
            assert str(top) in others
    assert "imported from each side's own" in notice


def test_the_innermost_checkout_is_the_one_that_modules_are_of(tmp_path: Path) -> None:
    side, inner = tmp_path / "side", tmp_path / "repo" / "inner"
    for folder in (side / "src", side / "lib"):
        folder.mkdir(parents=True)
    found = (inner / "src", tmp_path / "repo" / "lib", side / "src", tmp_path / "repo" / "gone", tmp_path / "else")
    assert own_places(side, (inner.parent, side, inner), found) == (side / "src", side / "lib")


def test_what_git_ignores_is_seen_from_both_commits_and_stays(tmp_path):
    top, elsewhere = tmp_path / "top", tmp_path / "disk"
    for folder in (top / "train" / "data", elsewhere):
        folder.mkdir(parents=True)
        (folder / "a.bin").write_text("a", encoding="utf-8")
    git = in_repository(top)
    (top / ".gitignore").write_text("*.bin\nraw\n.env\nimages/\n", encoding="utf-8")
    (top / "train" / "data" / "README").write_text("one", encoding="utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    git("switch", "-q", "-c", "change")
    (top / "train" / "data" / "README").write_text("two", encoding="utf-8")
    git("commit", "-q", "-am", "two")
    (top / "raw").symlink_to(elsewhere)
    (top / ".env").write_text("KEY=1", encoding="utf-8")
    for name in ("x y", "ü"):  # ignored as folders alone
        (top / "train" / "data" / name / "images").mkdir(parents=True)
        (top / "train" / "data" / name / "images" / "a.jpg").touch()
    (tmp_path / "alias").symlink_to(top)
    links = ("data", "data", "data/a.bin", "../raw", str(tmp_path / "alias" / ".env"))
    asked = make_gate_request(workload="any", command="python train.py", link=links)
    with checkouts(asked, top / "train", tmp_path, print) as sides:
        for side, text in zip(sides, ("one", "two"), strict=True):
            found = Path(side.folder)
            assert found != top
            assert (found / "train" / "data" / "README").read_text(encoding="utf-8") == text
            assert [(found / p).read_text(encoding="utf-8") for p in ("train/data/a.bin", "raw/a.bin")] == ["a", "a"]
            assert (found / ".env").read_text(encoding="utf-8") == "KEY=1"
            assert all((found / "train" / "data" / name / "images" / "a.jpg").is_file() for name in ("x y", "ü"))
            assert not is_dirty(found)
            (found / "raw" / "cache.bin").touch()
    assert [p.name for p in elsewhere.iterdir()] == ["a.bin"]
    assert (top / "train" / "data" / "a.bin").read_text(encoding="utf-8") == "a"
    no_link = {
        "gone": "is not there",
        "../.git/hooks": "is git's own",
        "~nobody-here/x": "not known here",
        "../..": "outside of",
        "..": "itself",
        "data/README": "is part of a commit",
    }
    for name, said in no_link.items():
        wrong = make_gate_request(workload="any", command="python train.py", link=(name,))
        with pytest.raises(UsageError, match=said), checkouts(wrong, top / "train", tmp_path, print):
            pass
    with pytest.raises(UsageError, match="--link is for commits"):
        make_gate_request(workload="any", link=("data",), base_dir="a", head_dir="b")


@pytest.mark.parametrize(
    ("base", "said"),
    [
        ("link", "stands behind the link 'data' of a commit"),
        ("file", "has no place in a commit .*, where 'data' is a file"),
        ("inner", None),
        ("dangling", None),
    ],
)
def test_nothing_is_written_through_a_link_that_a_commit_has_in_the_place_of_data(tmp_path, base, said):
    top, elsewhere = tmp_path / "top", tmp_path / "disk"
    for folder in (top, elsewhere):
        folder.mkdir()
    git, data = in_repository(top), top / "data"
    if base == "link":
        data.symlink_to(elsewhere)
    elif base == "file":
        data.touch()
    else:
        data.mkdir()
        (data / "raw").symlink_to(elsewhere if base == "inner" else "none")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    git("switch", "-q", "-c", "change")
    ((data / "raw") if base in ("inner", "dangling") else data).unlink()
    (data / "raw").mkdir(parents=True)
    (data / "raw" / "a.bin").touch()
    (top / ".gitignore").write_text("data\n", encoding="utf-8")
    git("rm", "-rq", "--cached", "data")
    git("add", ".")
    git("commit", "-q", "-m", "two")
    asked = make_gate_request(workload="any", command="python train.py", link=("data/raw" if said else "data",))
    refused = pytest.raises(UsageError, match=said) if said else contextlib.nullcontext()
    with refused, checkouts(asked, top, tmp_path, print) as sides:
        assert (Path(sides[1].folder) / "data" / "raw" / "a.bin").is_file()
    assert list(elsewhere.iterdir()) == []
    assert (data / "raw" / "a.bin").is_file()


def test_a_link_that_both_commits_have_may_lead_to_what_is_linked(tmp_path):
    git = in_repository(tmp_path)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "a.bin").touch()
    (tmp_path / "data").symlink_to("store")
    (tmp_path / ".gitignore").write_text("store\n", encoding="utf-8")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    for links in (("store", "data"), ("store",)):
        asked = make_gate_request(workload="any", command="python train.py", link=links, aa=1)
        with checkouts(asked, tmp_path, tmp_path.parent / f"{tmp_path.name}-room", print) as sides:
            assert (Path(sides[0].folder) / "data" / "a.bin").is_file()
