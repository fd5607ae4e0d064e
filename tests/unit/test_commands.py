"""What is typed behind `laptime`: the help is whole, a mistake is told with the value, the option and the remedy."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from laptime.catalogue import OPTIMIZATIONS
from laptime.cli import app
from laptime.cli.sweeping import _asked_lately
from laptime.cli.up import words
from laptime.console import main as console_script
from laptime.console import open_what_is_closed, write_what_can_be
from laptime.data.choices import ALL
from laptime.devices import cuda_devices
from laptime.errors import UsageError


def typed(*arguments: str) -> str:
    """What a command says; raises its own error."""
    done = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})
    if isinstance(done.exception, Exception):
        raise done.exception
    return done.output


@pytest.mark.parametrize("arguments", [("--help",), ("-h",), ("data", "--help")])
def test_the_list_of_commands_is_cut_nowhere(arguments):
    lines = typed(*arguments).splitlines()
    commands = lines[lines.index("Commands:") + 1 :]
    assert commands
    assert not any(line.endswith("...") for line in commands)


def test_a_command_needs_no_words_behind_it():
    assert "cpu-optimized" in typed("list")


def test_each_optimization_says_what_it_needs():
    rows = {row["name"]: row["needs"] for row in json.loads(typed("list", "optimizations", "--json"))["optimizations"]}
    some = ("resident", "graph", "gathered-rois", "ddp", "lightning", "bf16")
    assert [", ".join(rows[name]) for name in some] == [
        "",
        "a GPU",
        "a CPU, workload detection",
        "several GPUs or cores",
        "extra lightning",
        "a probe's gain",
    ]
    assert "a GPU" in typed("list", "optimizations")


@pytest.mark.parametrize("command", ["run", "optimize", "tune"])
def test_the_help_names_all_that_may_stand_behind_a_place_of_data(command):
    said = "".join(typed(command, "--help").split())
    assert [mark for mark in ALL if f"DIR{mark}" not in said] == []


def test_every_command_speaks_to_machines(tmp_path):
    for command in app.registered_commands:
        assert "--json" in typed(command.name or command.callback.__name__, "--help")
    said = json.loads(typed("new", str(tmp_path / "mine.py"), "--json"))
    assert said["file"] == str(tmp_path / "mine.py")
    assert said["next"].endswith(f"optimize {said['file']}:workload --limit-train 2000")


@pytest.mark.parametrize("name", [entry.name for entry in OPTIMIZATIONS])
def test_each_optimization_is_explained_by_its_name(name):
    said = typed("explain", name)
    assert said.startswith(f"{name} (") or name == "dp"  # which is a variant's name, too
    assert next(entry for entry in OPTIMIZATIONS if entry.name == name).explanation in said


def test_what_is_not_for_a_workload_is_no_part_of_its_variants():
    said = typed("explain", "cpu-optimized", "--workload", "detection")
    assert "] dead-taps (" not in said
    assert "] gathered-rois (" in said
    assert "Not for detection, and left out: dead-taps, since its maps are large" in said
    body = json.loads(typed("explain", "cpu-optimized", "--workload", "detection", "--json"))
    assert set(body["left_out"]) == {"large-batch", "dead-taps", "products"}
    assert "statistical" not in body["classes"]  # as of large-batch, which is not there
    assert "] dead-taps (" in (cifar := typed("explain", "cpu-optimized"))
    assert "left out" not in cifar


def test_the_version_is_told():
    assert typed("--version").startswith("laptime 0.")


def test_a_plan_has_its_figures_below_each_other_however_long_a_name():
    rows = [
        row
        for row in typed("optimize", "cifar", "--device", "cpu", "--preset", "full", "--dry-run").splitlines()
        if " epochs " in row
    ]
    assert len({row.index(" epochs ") for row in rows}) == 1
    assert any(len(row.split()[0]) > 36 for row in rows)


def test_a_plan_says_what_may_come_to_it():
    both = "cpu-baseline,cpu-resident"
    for repeats, variants, told in (("3", both, True), ("2", both, False), ("3", "cpu-baseline", False)):
        said = typed("optimize", "cifar", "--device", "cpu", "--variants", variants, "--repeats", repeats, "--dry-run")
        assert ("Not counted: 5 pairs for each variant that" in said) is told


def test_a_search_s_plan_names_where_it_begins_and_what_it_would_try():
    rows, said = typed("tune", "cifar", "--device", "cpu", "--budget", "90m", "--dry-run").split("Expected duration")
    assert [row.split()[0] for row in rows.splitlines()[1:] if row] == ["cpu-baseline", "cpu-optimized"]
    assert "of 90 minutes" in said
    for change in ("products:largest=16", "-channels-last", "+compile"):
        assert f" {change}" in said
    found = json.loads(typed("tune", "cifar", "--device", "cpu", "--dry-run", "--json"))
    assert set(found["changes"]) == set(said.split(": ")[-1].rstrip(".\n").split(", "))
    said = typed("tune", "cifar", "--device", "cpu", "--budget", "1m", "--dry-run")
    begins = "holds no change, since the baseline and where the search begins should take "
    assert f"the budget of 60 s {begins}" in said
    assert "products" not in said
    assert f"the budget of 5 s {begins}" in typed("tune", "cifar", "--device", "cpu", "--budget", "5", "--dry-run")


def test_a_search_begins_with_what_is_for_its_workload_alone():
    detection, cifar = (
        set(json.loads(typed("tune", workload, "--device", "cpu", "--dry-run", "--json"))["changes"])
        for workload in ("detection", "cifar")
    )
    assert {"-parsed-once", "-folded-norms", "-gathered-rois"} <= detection
    assert "-gathered-rois" not in cifar


def test_a_plan_for_data_of_unknown_size_leaves_no_batch_out(tmp_path):
    own = tmp_path / "own.py"
    typed("new", str(own))
    said = typed("tune", f"{own}:workload", "--device", "cpu", "--preset", "full", "--dry-run")
    assert " large-batch:size=1024" in said


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("optimize", "cifar", "--resume", ""), "--resume was given nothing"),
        (("optimize", "cifar", "--variants= ", "--dry-run"), "leave --variants out"),
        (("tune", "cifar", "--dry-run", "--resume", "x"), "--dry-run and --resume contradict each other"),
        (
            ("tune", "cifar", "--dry-run", "--budget", "soon"),
            r"^--budget: must be a duration above 0, as 15m.* \(given .soon.\)",
        ),
        (
            ("optimize", "cifar", "--variants", ","),
            "--variants: names no variant: see laptime list variants",
        ),
        (("optimize", "cifar", "--limit-train", "0"), r"^--limit-train: input should be .* \(given '0'\)"),
        (("optimize", "cifar", "--profile-schedule", "1,2"), r"^--profile-schedule: give wait,.* \(given '1,2'\)"),
        (("optimize", "cifar", "--launcher", "slurm"), r"^--launcher: must be one of auto, "),
        (("explain", "cpu-optimized", "--workload", "cifer"), "did you mean cifar"),
        (("optimize", "CIFAR", "--dry-run"), r"'CIFAR': did you mean cifar\?"),
        (("gate", "cifar", "--max-slowdown", "10"), "write 10% or 0.1"),
        (("run", "cifar", "--variant", "cpu-baseline", "--checkpoints", __file__), "is a file: give a folder or s3://"),
        (("gate", "cifar", "--replay", "nothing.json"), "--replay 'nothing.json' is no file: give one"),
        (("optimize", "cifar", "--device=cpu", "--weights=gone.pt", "--dry-run"), "--weights 'gone.pt' is neither"),
        (("optimize", "cifar", "--device=cpu", "--tracking-uri=foo://x", "--dry-run"), "tracking URI 'foo://x'"),
        (("gate", "cifar", "--aa", "-3"), r"^--aa: .* \(given '-3'\)"),
    ],
)
def test_a_mistake_is_told_with_its_option_and_the_remedy(arguments, sentence):
    with pytest.raises(UsageError, match=sentence):
        typed(*arguments)


@pytest.mark.skipif(bool(cuda_devices()), reason="there is a GPU")
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("run", "cifar", "--variant", "cuda-baseline"), "take a variant of the CPU"),
        (("optimize", "cifar", "--variants", "cpu-bf16,ddp-plain"), "name another variant than ddp-plain"),
    ],
)
def test_a_variant_of_a_gpu_that_is_not_there_is_told_before_data_and_with_what_is_taken_instead(
    arguments, remedy, monkeypatch, tmp_path
):
    monkeypatch.setenv("LAPTIME_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=f"no NVIDIA driver .*: {remedy}"):
        typed(*arguments)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("option", [("--epochs", "three"), ("--timeout=10m",), ("--seed", "1.5")])
def test_a_value_of_the_wrong_type_is_named(option):
    assert repr(option[-1].rpartition("=")[2]) in typed("optimize", "cifar", *option)


def test_mlflow_opens_with_the_runs_and_not_with_its_view_for_language_models():
    said = words("http://127.0.0.1:4200", "http://127.0.0.1:5000", 4200, "process")
    assert "http://127.0.0.1:5000/#/experiments?workflowType=machine_learning\n" in said


def test_what_an_older_terminal_can_not_show_ends_no_command():
    shown = io.BytesIO()
    stream = io.TextIOWrapper(shown, encoding="ascii")
    write_what_can_be(stream)
    stream.write("1.43–6.14")
    stream.flush()
    assert shown.getvalue() == b"1.43?6.14"
    write_what_can_be(None)  # of a process without one


def test_a_stream_that_was_closed_leads_to_nowhere_and_no_file_takes_its_number(monkeypatch):
    kept = os.dup(2)
    try:
        os.close(2)
        monkeypatch.setattr(sys, "stderr", None)
        open_what_is_closed()
        sys.stderr.write("nobody hears")
        sys.stderr.flush()
        assert not sys.stderr.isatty()
        assert os.fstat(2).st_rdev == Path(os.devnull).stat().st_rdev
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_a_working_directory_that_was_removed_is_said_in_one_sentence(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="the working directory has been removed: go to another folder"):
        typed("list", "workloads")


def test_a_store_is_asked_again_where_the_clock_was_ahead_when_it_was_asked_last(tmp_path):
    mark = tmp_path / ".asked"
    mark.touch()
    assert _asked_lately(mark)
    os.utime(mark, (2**32, 2**32))
    assert not _asked_lately(mark)


def test_ctrl_c_before_a_command_has_words_for_it_shows_no_traceback(monkeypatch):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("laptime.cli.main", interrupted)
    monkeypatch.setattr(sys, "argv", ["laptime", "list"])
    with pytest.raises(SystemExit) as left:
        console_script()
    assert left.value.code == 130


@pytest.fixture
def handlers():
    """What this process does at the signals that a command takes; as before at the end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whatever_ends_a_command_from_outside_is_told_and_puts_things_away(number, handlers, monkeypatch):
    """So `predict` leaves no temporary folder and no process that predicts."""
    put_away = []

    def asked(*_: object) -> None:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt as stop:
            stop.add_note("What was fetched is kept.")
            put_away.append(number)
            raise

    monkeypatch.setattr("laptime.ladder.predict.predict", asked)
    signal.signal(number, signal.SIG_DFL)
    done = CliRunner().invoke(app, ["predict", "run", "image.jpg"])
    assert (done.exit_code, done.output) == (130, "laptime: interrupted. What was fetched is kept.\n")
    assert put_away == [number]


def test_a_command_under_nohup_outlives_its_terminal(handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    typed("list")
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_ladder_that_is_interrupted_before_its_first_process_says_how_to_begin_it(monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("laptime.ladder.prepare.fetch_data", interrupted)
    done = CliRunner().invoke(app, ["optimize", "cifar", "--device", "cpu"])
    assert done.exit_code == 130
    assert "interrupted. No process of the ladder had begun: to begin it, give the same command again." in done.output
