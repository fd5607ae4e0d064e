"""`laptime gate` as a user types it, with trainings that write given times: no verdict here hangs on this machine."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.commands import laptime
from tests.e2e.gate_project import COMMAND, LOOP, TRAINER, commit, gate, git, own_laptime, told
from tests.integration.ports import free_port
from tests.samples import write_folder

from laptime.gate.records import SideInfo
from laptime.gate.sides import Ready
from laptime.gate.trainer import Trainer
from laptime.tracking.journal import is_settled


def test_a_slower_head_is_regressed_and_its_file_says_so_again(project, tmp_path):
    sha = commit(project, epoch_s="3.6")
    base = git(project, "rev-parse", "main")
    (project / "later").mkdir()
    git(project, "switch", "-q", "main")
    commit(project, epoch_s="9.0")  # the target's tip moves on; base stays where head left it
    git(project, "switch", "-q", "change")
    reports = (
        "--json",
        str(tmp_path / "g.json"),
        "--junit",
        str(tmp_path / "g.xml"),
        "--markdown",
        str(tmp_path / "g.md"),
    )
    done = gate(project, *reports, "--github")
    told(done, 1, "regressed: Head's epochs are slower: +20.0 %", "4 pairs", "::error title=laptime gate tiny")
    found = json.loads((tmp_path / "g.json").read_text())
    assert (found["base"]["sha"], found["head"]["sha"]) == (base, sha)
    assert [p["order"] for p in found["pairs"] if p["counted"]] == ["AB", "BA", "AB", "BA"]
    assert "<failure" in (tmp_path / "g.xml").read_text()
    assert (tmp_path / "g.md").read_text().startswith("<!-- laptime gate: tiny -->")
    assert (tmp_path / "summary.md").read_text() == (tmp_path / "g.md").read_text()
    again = gate(project, "--replay", str(tmp_path / "g.json"))
    told(again, 1, done.stdout.splitlines()[0])
    assert git(project, "worktree", "list").count("\n") == 0
    told(gate(project, "--history", "--json", str(tmp_path / "h.json")), 0, "regressed", f"{base[:10]} {sha[:10]}")
    assert json.loads((tmp_path / "h.json").read_text())["trends"][0]["gates"][0]["base"] == base


def test_the_same_speed_passes_and_a_faster_one_is_improved(project):
    told(gate(project, "--base", "main"), 0, "not regressed", "A slowdown below 10 %")
    commit(project, epoch_s="2.4")
    told(gate(project), 0, "improved: Head's epochs are faster: -20.0 %")


def test_a_loop_of_the_users_own_is_gated_by_laptime_epochs(project, tmp_path):
    report, command = tmp_path / "g.json", f"{sys.executable} loop.py"
    git(project, "switch", "-q", "main")
    commit(project, **{"loop.py": LOOP})
    git(project, "switch", "-q", "-c", "slower")
    commit(project, epoch_s="3.6")
    told(gate(project, "--json", str(report), command=command), 1, "regressed: Head's epochs are slower: +20.0 %")
    found = json.loads(report.read_text())
    both = [p[side] for p in found["pairs"] for side in ("base", "head")]
    assert {(len(p["epoch_s"]), *p["samples"]) for p in both} == {(3, 100, 100, 100)}  # the first, slow one is dropped
    # The record names no machine, so it is this one.
    assert found["machine"]["cpu"]
    assert {p["hardware"].startswith(found["machine"]["cpu"]) for p in both} == {True}
    commit(project, epoch_s="3.0")
    told(gate(project, command=command), 0, "not regressed")


@pytest.mark.timeout(180)  # another timed run on this machine is waited for
def test_on_a_cpu_the_users_loops_take_turns_and_heads_crash_is_heads_own(project, tmp_path):
    report, command = tmp_path / "g.json", f"{sys.executable} loop.py"
    git(project, "switch", "-q", "main")
    commit(project, **{"loop.py": LOOP})
    git(project, "switch", "-q", "-c", "slower")
    commit(project, epoch_s="3.6")
    told(gate(project, "--device", "cpu", "--json", str(report), command=command), 1, "+20.0 %", "epochs by turns")
    found = json.loads(report.read_text())
    assert found["schema"] == "laptime.gate/2"
    assert {p["by_turns"] for p in found["pairs"]} == {True}
    assert gate(project, "--replay", str(report)).returncode == 1
    # From the second seed on, so both have come through alone before.
    crash = "raise SystemExit(3 * (os.environ['LAPTIME_SEED'] > '0'))\n"
    commit(project, **{"loop.py": LOOP + crash})
    told(gate(project, "--device", "cpu", command=command), 5, "error", "head's training ended with 3")


def test_a_dirty_tree_is_gated_as_it_is(project):
    (project / "epoch_s").write_text("3.6")
    told(gate(project), 1, "changes that are not committed")
    assert (project / "epoch_s").read_text() == "3.6"


def test_two_folders(project, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text(TRAINER)
    (other / "epoch_s").write_text("3.6")
    told(gate(project, "--base-dir", str(project), "--head-dir", str(other)), 1, "regressed")
    told(gate(project, "--base-dir", str(project), "--head-dir", str(tmp_path / "gone")), 2, "gone", "no folder")
    told(gate(project, "--base-dir", str(project)), 2, "--head-dir")


def test_head_that_crashes_and_base_that_crashes(project):
    commit(project, crash="")
    told(gate(project), 5, "error: head's training ended with 1", "a tensor went missing")
    git(project, "switch", "-q", "main")
    commit(project, crash="")
    git(project, "switch", "-q", "-c", "mend")
    git(project, "rm", "-q", "crash")
    commit(project, note="mended")
    told(gate(project), 4, "invalid: base's training ended with 1", "a tensor went missing")


def test_records_that_can_not_be_used(project):
    commit(project, unkept="")
    told(gate(project), 5, "no kept epochs")
    told(gate(project, command=f"{sys.executable} -c pass"), 4, "ended without a record")
    told(gate(project, command="/no/such/trainer {record}"), 4, "/no/such/trainer")


def test_sides_that_train_on_other_data_are_not_compared(project):
    commit(project, samples="200", epoch_s="9.0")
    told(gate(project), 4, "invalid", "samples")


def test_a_base_that_does_not_build(project):
    git(project, "switch", "-q", "main")
    (project / "scripts").mkdir()
    (project / "scripts" / "setup").write_text("#!/bin/sh\necho no such wheel >&2\nexit 3\n")
    (project / "scripts" / "setup").chmod(0o755)
    commit(project, **{"pyproject.toml": '[project]\nname = "x"\ndependencies = ["a"]\n'})
    git(project, "switch", "-q", "-c", "mend")
    commit(project, **{"pyproject.toml": '[project]\nname = "x"\ndependencies = ["b"]\n'})
    told(own_laptime(project), 4, "invalid: base's scripts/setup ended with 3", "no such wheel")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--base", "nowhere"), ("nowhere", "no commit")),
        (("--base", "HEAD"), ("head itself", "--aa 20")),
        (("--budget", "soon"), ("soon", "15m")),
        (("--budget", "0m"), ("0m",)),
        (("--max-slowdown", "much"), ("much", "10%")),
        (("--max-slowdown", "300%"), ("300", "10%")),
        (("--max-pairs", "3"), ("--max-pairs 3",)),
        (("--limit-train", "0"), ("--limit-train", "0")),
        (("--base", "main", "--base-dir", ".", "--head-dir", "."), ("exclude",)),
    ],
)
def test_usage(project, arguments, words):
    told(gate(project, *arguments), 2, *words)


def test_what_is_no_checkout_and_what_is_no_gate(project, tmp_path):
    (tmp_path / "plain").mkdir()
    told(gate(tmp_path / "plain"), 2, "no git checkout")
    told(gate(project, "--replay", str(project / "train.py")), 4, "train.py")
    told(gate(project, command=""), 2, "tiny")


def test_a_base_from_before_laptime_run(project):
    done = gate(project, "--variant", "cpu-baseline", command="")
    told(done, 2, "tiny")  # not one of laptime's workloads
    told(own_laptime(project), 4, "invalid", "--command")


def test_a_budget_too_small_for_four_pairs(project):
    commit(project, sleep="0.3")
    told(gate(project, "--budget", "1s"), 3, "inconclusive", "holds no 4 pairs", "--budget")


def test_base_against_itself_measures_noise(project):
    done = gate(project, "--aa", "6")
    told(done, 0, "Noise of a pair", "of 10,000".replace("of", "Of"))


def test_an_interruption_leaves_a_report_and_no_process(project, tmp_path):
    commit(project, sleep="0.2")
    report = tmp_path / "g.json"
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "laptime",
            "gate",
            "tiny",
            "--command",
            COMMAND,
            "--device",
            "none",
            "--no-track",
            "--json",
            str(report),
        ],
        cwd=project,
        env={**os.environ, "LAPTIME_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until = time.monotonic() + 60
    while not (report.exists() and json.loads(report.read_text())["pairs"]):
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    text = process.communicate(timeout=120)[0]
    assert process.returncode == 130, text
    assert "Traceback" not in text
    found = json.loads(report.read_text())
    assert (found["status"], found["outcome"]["exit_code"]) == ("interrupted", 3)
    assert git(project, "worktree", "list").count("\n") == 0
    assert gate(project, "--replay", str(report)).returncode == 3


def test_a_gate_is_tracked_and_a_server_that_is_away_costs_no_verdict(project):
    home = project.parent / "home"
    uri = f"http://127.0.0.1:{free_port()}"
    away = gate(project, "--track", "--tracking-uri", uri)
    told(away, 0, "not regressed", uri)
    told(gate(project, "--track", "--tracking-uri", f"sqlite:///{home / 'mlflow.db'}"), 0, "not regressed")
    settled = [is_settled(path) for path in sorted((home / "journal").glob("*.jsonl"))]
    assert settled.count(True) == 1
    assert len(settled) == 2


@pytest.mark.timeout(300)  # another timed run on this machine is waited for
def test_trainings_of_laptime_take_turns_under_one_lock(tmp_path):
    images = write_folder(tmp_path / "images", train=24, test=8)
    here = Path(__file__).resolve().parents[2]
    options = ["--variant", "cpu-resident", "--data", str(images), "--limit-train", "32"]
    options += ["--epochs", "2", "--bare", "--seed", "{seed}", "--out", "{folder}"]
    own = (("PYTHONPATH", str(here / "src")), ("LAPTIME_HOME", str(tmp_path / "home")))
    command = (sys.executable, "-m", "laptime", "run", "cifar", *options)
    base, head = (Ready(side, SideInfo(), here, command, own) for side in ("base", "head"))
    said: list[str] = []
    trainer = Trainer(tmp_path / "runs", "cpu", 120.0, said.append)
    found = trainer.train_by_turns(head, base, 3)
    assert trainer._prepares == {"base", "head"}  # from now on both would be started at once
    assert [(t.process.side, t.by_turns, t.process.seed) for t in found] == [("head", True, 3), ("base", True, 3)]
    assert [len(t.process.epoch_s) for t in found] == [2, 2]
    assert found[0].process.test_accuracy == found[1].process.test_accuracy
    spans = []
    for side in ("head", "base"):
        body = json.loads((tmp_path / "runs" / side / "record.json").read_text())
        spans += [(e["ended_at"] - e["epoch_s"], e["ended_at"], side) for e in body["epochs"] if e["kept"]]
    spans.sort()
    assert [side for _, _, side in spans] == ["head", "base", "base", "head"]
    assert all(before[1] <= after[0] + 1e-3 for before, after in itertools.pairwise(spans))


@pytest.mark.long
@pytest.mark.timeout(600)  # eighteen processes where every pair is repeated, and they wait for the device
def test_both_sides_run_their_own_laptime(tmp_path):
    images = write_folder(tmp_path / "images", train=24, test=8)
    here = str(Path(__file__).resolve().parents[2])
    arguments = ["--base-dir", here, "--head-dir", here, "--variant", "cpu-resident", "--device", "cpu"]
    more = ["--data", str(images), "--limit-train", "32", "--epochs", "1", "--max-pairs", "4", "--budget", "1h"]
    report = tmp_path / "g.json"
    words = ("gate", "cifar", *arguments, *more, "--json", report)
    done = laptime(tmp_path / "home", *words, patience_s=580)
    # What the clock said of so short epochs is nobody's business; that it was a whole gate is.
    assert done.returncode in (0, 1, 3), done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["variant"].startswith("cpu-baseline+resident")
    assert sum(p["counted"] for p in found["pairs"]) == 4
    assert all(p["by_turns"] for p in found["pairs"])
    both = [p[side] for p in found["pairs"] for side in ("base", "head")]
    assert {p["samples"][0] for p in both} == {32}
    assert len({(p["data"], p["hardware"], p["spec"]) for p in both}) == 1
    assert found["machine"]["cpu"]
    assert all(p["parts_s"]["forward"] > 0 for p in both)
