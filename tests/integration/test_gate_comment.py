"""The script of gate-comment.yml with the real gh, against the few calls of GitHub's API that it makes."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.serving import Quiet, serving

pytestmark = pytest.mark.skipif(shutil.which("gh") is None, reason="GitHub's gh is not installed")

WORKFLOW = Path(__file__).resolve().parents[2] / ".github" / "workflows" / "gate-comment.yml"
HEAD = "a" * 40
MARKER = "<!-- laptime gate -->\n"
# gh speaks plain HTTP to this name alone; an HTTP proxy takes it wherever it leads.
HOST = "api.github.localhost"


class Hub(Quiet):
    """One artifact, two open pull requests, comments."""

    artifact: bytes | None = None
    pulls: tuple[dict[str, Any], ...] = ()
    comments: list[dict[str, Any]] = []  # noqa: RUF012 - of the one server

    def do_GET(self) -> None:
        place = self.path.removeprefix(f"http://{HOST}").partition("?")[0]
        zipped = {"name": "gate", "id": 5, "archive_download_url": f"http://{HOST}/zip", "expired": False}
        answers: dict[str, Any] = {
            "/repos/o/r/actions/runs/9/artifacts": {"total_count": 1, "artifacts": [zipped] if self.artifact else []},
            "/zip": self.artifact,
            "/repos/o/r/issues/7/comments": self.comments,
        }
        self.answer(answers[place])

    def do_POST(self) -> None:
        given = self.given()
        if self.path.endswith("/graphql"):
            found = {"totalCount": len(self.pulls), "nodes": self.pulls, "pageInfo": {"hasNextPage": False}}
            self.answer({"data": {"repository": {"pullRequests": found}}})
            return
        assert self.path.endswith("/repos/o/r/issues/7/comments")
        self.comments.append({"id": len(self.comments) + 1, "user": {"login": "github-actions[bot]"}, **given})
        self.answer(self.comments[-1])

    def do_PATCH(self) -> None:
        found = re.search(r"/repos/o/r/issues/comments/(\d+)$", self.path)
        assert found is not None
        comment = self.comments[int(found[1]) - 1]
        comment.update(self.given())
        self.answer(comment)

    def given(self) -> dict[str, Any]:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, value: Any) -> None:
        self.give(value if isinstance(value, bytes) else json.dumps(value).encode())


@pytest.fixture
def hub():
    Hub.comments, Hub.pulls = [], ({"number": 8, "headRefOid": "b" * 40}, {"number": 7, "headRefOid": HEAD})
    with serving(Hub) as address:
        yield address


def zipped(files: dict[str, str | bytes], link: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        if link:
            entry = zipfile.ZipInfo(link)
            entry.external_attr = 0o120777 << 16
            archive.writestr(entry, "/etc/passwd")
    return out.getvalue()


def posted(hub: str, tmp_path: Path, artifact: bytes | None) -> str:
    """Runs the workflow's script as a runner's shell does; what it printed."""
    Hub.artifact = artifact
    room = tmp_path / "room" / "work"
    shutil.rmtree(room.parent, ignore_errors=True)
    room.mkdir(parents=True)
    own = {"GH_TOKEN": "t", "GH_HOST": "github.localhost", "REPOSITORY": "o/r", "RUN": "9", "HEAD": HEAD}
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "HTTP_PROXY": hub, **own}
    (step,) = yaml.safe_load(WORKFLOW.read_text())["jobs"]["comment"]["steps"]
    done = subprocess.run(
        ["bash", "-e", "-c", step["run"]], cwd=room, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(room.parent.iterdir()) == [room]
    return done.stdout


def bodies() -> list[str]:
    return [comment["body"] for comment in Hub.comments]


def test_the_second_post_updates_the_first_comment_in_place(hub, tmp_path):
    posted(hub, tmp_path, zipped({"gate.md": "first\n"}))
    posted(hub, tmp_path, zipped({"gate.md": "second\n", "gate.json": "{}"}))
    assert bodies() == [f"{MARKER}second\n"]
    Hub.comments = [{"id": 1, "user": {"login": "mallory"}, "body": f"{MARKER}mine"}]
    posted(hub, tmp_path, zipped({"gate.md": "third\n"}))
    assert bodies() == [f"{MARKER}mine", f"{MARKER}third\n"]


def test_nothing_is_posted_where_there_is_nothing_to_post_or_nobody_to_post_to(hub, tmp_path):
    assert "No report" in posted(hub, tmp_path, None)
    assert "No report" in posted(hub, tmp_path, zipped({"gate.md/inner": "x"}))
    Hub.pulls = Hub.pulls[:1]
    assert "No open pull request" in posted(hub, tmp_path, zipped({"gate.md": "x"}))
    assert bodies() == []


def test_a_hostile_artifact_is_a_text_and_nothing_more(hub, tmp_path):
    hostile = "@all $(touch ../pwned) `touch ../pwned` \0\n" + "é" * 80_000
    posted(hub, tmp_path, zipped({"gate.md": hostile, "number": "8", "body.md": "theirs", "../../up": "x"}))
    (body,) = bodies()
    assert body.startswith(f"{MARKER}@\u200ball $(touch ../pwned) `touch")
    assert "\0" not in body
    assert len(body.encode()) < 65_536
    posted(hub, tmp_path, zipped({}, link="gate.md"))
    assert "root:" not in bodies()[0]
