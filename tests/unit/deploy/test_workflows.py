"""The workflows: pinned, with the least rights, bounded, and naming only scripts that exist."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import yaml
from tests.unit.deploy.manifests import ROOT, Document

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# Rights to write, by workflow and job; nothing else may.
MAY_WRITE = {("gate-comment", "comment"): {"pull-requests"}, ("images", "publish"): {"packages"}}


@pytest.fixture(params=WORKFLOWS, ids=lambda path: path.stem)
def workflow(request: pytest.FixtureRequest) -> Path:
    return request.param


def read(path: Path) -> Document:
    # YAML 1.1 reads the key `on` as a truth value.
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in found.items()}


def steps(path: Path) -> list[Document]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def test_the_workflows_are_these() -> None:
    assert {path.stem for path in WORKFLOWS} == {"ci", "gate", "gate-comment", "gpu", "images", "nightly"}


def test_actions_are_pinned_by_commit_with_the_version_beside_it(workflow: Path) -> None:
    lines = re.findall(r"uses: (.+)$", workflow.read_text(encoding="utf-8"), re.M)
    assert len(lines) == sum("uses" in step for step in steps(workflow))
    for line in lines:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_commit_in_all_workflows() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in WORKFLOWS)
    found: dict[str, set[str]] = {}
    for name, commit in re.findall(r"uses: (\S+)@(\S+)", text):
        found.setdefault(name, set()).add(commit)
    assert all(len(commits) == 1 for commits in found.values()), found


def test_nothing_may_write_but_what_must(workflow: Path) -> None:
    content = read(workflow)
    assert set(content["permissions"].values()) <= {"read"}
    for name, job in content["jobs"].items():
        rights = job.get("permissions", content["permissions"])
        writing = {right for right, level in rights.items() if level == "write"}
        assert writing == MAY_WRITE.get((workflow.stem, name), set())


def test_jobs_end_and_do_not_pile_up(workflow: Path) -> None:
    content = read(workflow)
    assert all(0 < job["timeout-minutes"] <= 90 for job in content["jobs"].values())
    # What follows another workflow's end has that one's turn.
    assert "concurrency" in content or "workflow_run" in content["on"]


def test_scripts_named_exist_and_can_be_run(workflow: Path) -> None:
    commands = "\n".join(step["run"] for step in steps(workflow) if "run" in step)
    for name in re.findall(r"(?<![\w/.-])(?:scripts|\.ci)/[\w-]+", commands):
        assert os.access(ROOT / name, os.X_OK), name


def test_no_command_holds_an_expression(workflow: Path) -> None:
    """`${{ }}` in a command is text that others may choose; through an environment variable it stays data."""
    for step in steps(workflow):
        assert "${{" not in step.get("run", "")


def test_the_gate_compares_a_pull_request_with_what_it_was_merged_into() -> None:
    (gate,) = (step for step in steps(ROOT / ".github" / "workflows" / "gate.yml") if step.get("name") == "Gate")
    assert "'HEAD^1'" in gate["env"]["BASE"]
    assert "base.sha" not in gate["env"]["BASE"]


def test_checkouts_leave_no_token_behind(workflow: Path) -> None:
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_a_pull_request_reaches_neither_the_runner_of_ones_own_nor_the_registry() -> None:
    for path in WORKFLOWS:
        content = read(path)
        for job in content["jobs"].values():
            if "self-hosted" in job["runs-on"]:
                assert not {"pull_request", "pull_request_target", "push"} & set(content["on"])
            if "write" in job.get("permissions", {}).values() and "pull_request" in content["on"]:
                assert job["if"] == "github.ref_type == 'tag'"


def test_ci_runs_what_a_clean_checkout_runs_on_both_pythons() -> None:
    job = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["check-and-test"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.14"]
    assert (".ci/run $PART", {"PART": "${{ matrix.part }}"}) in [(s.get("run"), s.get("env")) for s in job["steps"]]


def test_the_parts_of_ci_are_all_tests() -> None:
    parts = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["check-and-test"]["strategy"]["matrix"]["part"]
    named = [ROOT / folder for part in parts for folder in part.split()]
    for file in (ROOT / "tests").rglob("test_*.py"):
        assert len([folder for folder in named if folder in file.parents]) == 1, file


def test_images_are_the_targets_that_manifests_name() -> None:
    text = (ROOT / ".github" / "workflows" / "images.yml").read_text(encoding="utf-8")
    baked = re.findall(r"docker buildx bake --file docker/bake\.hcl (?:--.* )?(trainer worker mlflow)$", text, re.M)
    assert len(baked) == 2
