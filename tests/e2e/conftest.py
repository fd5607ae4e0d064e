"""What the end-to-end tests share."""

from __future__ import annotations

import pytest
from tests.e2e.gate_project import TRAINER, commit, git


@pytest.fixture
def project(tmp_path):
    """A repository whose main trains epochs of 3 s, and whose branch has one commit more."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text(TRAINER)
    commit(folder, epoch_s="3.0")
    git(folder, "switch", "-q", "-c", "change")
    commit(folder, note="nothing that matters")
    return folder
