"""Two real ranks through the launcher `torchrun`: a whole record, a death that is named, no rank that stays."""

import contextlib
import json
import signal
import subprocess
import sys
import time

import psutil
import pytest
from tests.samples import write_folder

from laptime.ladder.data import fetch_data
from laptime.launchers import launch
from laptime.launchers.base import Hooks
from laptime.places import Places
from laptime.records import read_record, write_json
from laptime.spec import OptimizationSpec, RunSpec

TUNED = (
    OptimizationSpec(name="resident"),
    OptimizationSpec(name="large-batch", options={"size": 32}),
    OptimizationSpec(name="dead-taps"),
    OptimizationSpec(name="ddp", options={"tuned": True}),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("ranks")
    return fetch_data("cifar", str(write_folder(root / "images", train=20, test=5, size=16)), Places(root / "home"))


def spec_of(data, **changes) -> RunSpec:
    fields = {"workload": "cifar", "variant": "cpu-ddp-tuned", "optimizations": TUNED, "data": data, "ranks": 2}
    return RunSpec(**{**fields, "epochs": 2, "timeout_s": 120, **changes})


def ranks_under(place) -> list[psutil.Process]:
    """The processes that work for a folder: launcher and ranks."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = " ".join(process.info["cmdline"] or [])
        with contextlib.suppress(psutil.NoSuchProcess):  # it may end meanwhile
            if str(place) in words and "laptime." in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def none_left(place, within_s: float = 10.0) -> bool:
    until = time.monotonic() + within_s
    while ranks_under(place) and time.monotonic() < until:
        time.sleep(0.1)
    return not ranks_under(place)


def test_two_ranks_leave_one_record(data, tmp_path):
    profile = {"profile": "full", "profile_schedule": "0,1,1,1", "ceilings": {"gemm_fp32_gflops": 100.0}}
    record = launch("auto", spec_of(data, save_model=True, **profile), tmp_path / "run", Hooks())
    assert record.status == "done", record.error
    assert read_record(tmp_path / "run" / "record.json") == record
    assert record.ranks == 2
    assert record.setup.batch_size == 16
    assert record.profile.steps == 1
    assert record.check.passed
    for epoch in record.kept:
        assert epoch.samples == 60
        assert len(epoch.ranks_s) == 2
        assert epoch.epoch_s == max(epoch.ranks_s)
        assert epoch.skew_s == pytest.approx(max(epoch.ranks_s) - min(epoch.ranks_s))
    for name in ("log.txt", "log-rank-1.txt", "model.pt", "samples.png", "progress.jsonl"):
        assert (tmp_path / "run" / name).stat().st_size > 0


def test_a_rank_that_dies_is_named_and_the_others_are_ended(data, tmp_path):
    def kill(event):
        if event["event"] == "step":
            for process in ranks_under(tmp_path):
                with contextlib.suppress(psutil.NoSuchProcess):  # a second event may come after its end
                    if process.environ().get("RANK") == "1":
                        process.send_signal(signal.SIGKILL)

    record = launch("torchrun", spec_of(data, epochs=500), tmp_path / "run", Hooks(on_event=kill))
    assert record.status == "failed"
    assert "rank 1 of 2 was killed (signal 9)" in record.error
    assert "log-rank-1.txt" in record.error
    assert none_left(tmp_path)


def test_what_all_ranks_find_wrong_is_said_once(data, tmp_path):
    record = launch("torchrun", spec_of(data, learning_rate=1e30, check=False), tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert "the training loss became" in record.error


def test_the_first_rank_failing_alone_ends_the_others(data, tmp_path):
    (tmp_path / "run" / "samples.png").mkdir(parents=True)  # the first alone writes it
    record = launch("torchrun", spec_of(data, check=False), tmp_path / "run", Hooks())
    assert record.status == "failed"
    assert "samples.png" in record.error
    assert json.loads((tmp_path / "run" / "ranks.json").read_text()) == {"rank": 0, "exit_code": 1}


def test_a_killed_launcher_leaves_no_rank(data, tmp_path):
    write_json(tmp_path / "asked.json", spec_of(data, epochs=500))
    code = (
        "import sys; from pathlib import Path; from laptime.launchers import launch;"
        "from laptime.spec import read_spec;"
        "from laptime.launchers.base import Hooks; place = Path(sys.argv[1]);"
        "launch('torchrun', read_spec(place / 'asked.json'), place / 'run', Hooks(on_event=print))"
    )
    with subprocess.Popen([sys.executable, "-u", "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as own:
        for line in own.stdout:
            if "'step'" in line:
                break
        assert len(ranks_under(tmp_path)) >= 3
        own.kill()
    assert none_left(tmp_path)


def test_a_time_out_ends_all_ranks(data, tmp_path):
    record = launch("torchrun", spec_of(data, epochs=500, timeout_s=4), tmp_path / "run", Hooks())
    assert "time-out of 4 s" in record.error
    assert none_left(tmp_path)
