"""What stands around the decision: flags of a pair, pinned environments, commits, earlier gates, durations."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest
from gate_examples import WORKED, gate, process

from laptime.errors import UsageError
from laptime.gate.history import History, past_of, resampled
from laptime.gate.policy import Policy
from laptime.gate.records import SideInfo, read_gate
from laptime.gate.request import make_gate_request, seconds, share
from laptime.gate.sides import _written_out, fitting, pins
from laptime.gate.validity import Snapshot, compared, snapshot

QUIET = (0.01, -0.01, 0.005, -0.004)


def test_the_variant_of_a_users_own_workload_stays_a_name_and_its_file_one_of_each_side():
    request = make_gate_request(workload="train.py:workload", device="cpu")
    assert _written_out(request, SideInfo(folder="/nowhere"), "no-python") == ("cpu-optimized", "")
    with pytest.raises(UsageError, match="one file for both sides: give its path inside"):
        make_gate_request(workload="/there/train.py:workload", device="cpu")


def test_a_cpu_that_emulates_bf16_gates_what_a_name_stands_for_without_it_and_says_so(monkeypatch):
    monkeypatch.setattr("laptime.gate.sides.hopeless_here", lambda *_: ("bf16",))
    request, here = make_gate_request(workload="cifar", device="cpu"), SideInfo(folder=".")
    written, notice = _written_out(request, here, sys.executable)
    assert written.startswith("cpu-baseline+")
    assert "dead-taps" in written
    assert "bf16" not in written
    assert notice.startswith("cpu-optimized is gated without bf16: this CPU has no instructions for it")
    monkeypatch.setattr("laptime.gate.sides.hopeless_here", lambda *_: ())
    written, notice = _written_out(request, here, sys.executable)
    assert "+bf16+" in written
    assert notice == ""


def test_flags_of_a_pair():
    begin = Snapshot(at=0.0, busy_s=0.0, steal_s=0.0, swapped_pages=0, ours_s=0.0)
    ours = replace(begin, at=10.0, busy_s=18.0, ours_s=17.5)
    assert compared(begin, ours, 2) == ()
    assert "25 % of all cores" in compared(begin, replace(ours, ours_s=13.0), 2)[0]
    assert "took 5 % of the time" in compared(begin, replace(ours, steal_s=1.0), 2)[0]
    assert compared(begin, replace(ours, swapped_pages=10_000), 2) == ("the machine was swapping",)
    assert compared(None, ours, 2) == ()


def test_counters_are_those_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr("laptime.gate.validity.allowed_cores", lambda: 10**6)
    (tmp_path / "stat").write_text("cpu  100 50 50 900 10 100 100 700 0 0\ncpu0 1 1\n")
    (tmp_path / "vmstat").write_text("pswpin 3\npswpout 4\npgpgin 9\n")
    found = snapshot(tmp_path)
    assert found is not None
    assert found.busy_s * 7 == pytest.approx(found.steal_s * 4)
    assert found.swapped_pages == 7
    assert snapshot(tmp_path / "nowhere") is None


def test_environments_are_shared_where_pins_agree(tmp_path):
    for name, constraint in (
        ("a", "torch==2.15.0\n# of a day\n"),
        ("b", "\ntorch==2.15.0\n"),
        ("c", "torch==2.14.0\n"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "constraints.txt").write_text(constraint)
        (tmp_path / name / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["torch>=2"]\n')
    assert pins(tmp_path / "a") == pins(tmp_path / "b")
    assert pins(tmp_path / "a") != pins(tmp_path / "c")
    a, b, c = (tmp_path / name for name in "abc")
    assert fitting(a, b, own=c) == {"base", "head"}
    assert fitting(a, c, own=b) == {"base"}
    (b / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["torch>=3"]\n')
    assert pins(a) != pins(b)
    assert fitting(a, c, own=b) == frozenset()


def test_noise_comes_from_earlier_gates_of_the_same_machine(tmp_path):
    history = History(tmp_path, now=1_700_000_000.0)
    assert history.noise("f" * 16)[0] is None
    for number in range(5):
        history.keep(gate(QUIET, id=f"same-{number}"))
    assert history.noise("f" * 16) == (pytest.approx(1.4826 * 0.007), "20 earlier pairs of this fingerprint")
    before = history.noise("f" * 16)
    (tmp_path / "zz.json").write_text("half a fi")
    history.keep(gate(WORKED, id="regressed"))
    history.keep(gate(QUIET, id="elsewhere", fingerprint="0" * 16))
    history.keep(gate(QUIET, id="old", started_at=1_690_000_000.0))
    assert history.noise("f" * 16) == before


def test_gates_that_were_written_too_long_ago_are_not_read(tmp_path, monkeypatch):
    history = History(tmp_path, now=1_700_000_000.0)
    for number, days in enumerate((1, 59, 61, 400)):
        os.utime(history.keep(gate(QUIET, id=f"gate-{number}")), (0, history.now - days * 86400))
    read = []
    monkeypatch.setattr("laptime.gate.history.read_gate", lambda path: (read.append(path.stem), read_gate(path))[1])
    assert [g.id for g in history.gates("cifar")] == ["gate-1", "gate-0"]
    assert sorted(read) == ["gate-0", "gate-1"]


def test_noise_comes_from_elsewhere_too_and_each_gate_counts_once(tmp_path):
    here = [gate(QUIET, id=f"gate-{number}") for number in range(3)]
    history = History(tmp_path, 1_700_000_000.0, lambda _: [past_of(gate(QUIET, id=f"gate-{n}")) for n in range(1, 5)])
    for record in here:
        history.keep(record)
    assert [g.id for g in history.gates("cifar")] == [f"gate-{n}" for n in (4, 3, 2, 1, 0)]
    assert history.noise("f" * 16)[1] == "20 earlier pairs of this fingerprint"
    assert history.noise("0" * 16)[0] is None


def test_a_machine_that_is_slower_than_it_was_is_named(tmp_path):
    history = History(tmp_path, now=1_700_000_000.0)
    today = gate(QUIET, id="today")
    slow = [p.model_copy(update={"base": process("base", p.seed, 2.6)}) for p in today.pairs]
    for number in range(2):
        history.keep(gate(QUIET, id=f"past-{number}"))
    assert history.health(today.model_copy(update={"pairs": tuple(slow)})) == ""  # two gates say nothing
    history.keep(gate(QUIET, id="past-2"))
    assert history.health(today) == ""
    assert "+30 % against 3 earlier gates" in history.health(today.model_copy(update={"pairs": tuple(slow)}))


def test_gates_drawn_from_pairs_without_a_change():
    found = resampled(QUIET * 5, 0.01, Policy(), gates=200)
    assert found == {"not_regressed": 200}
    worse = resampled([d + 0.12 for d in QUIET * 5], 0.01, Policy(), gates=200)
    assert worse == {"regressed": 200}


def test_durations_and_shares():
    assert [seconds(text) for text in ("90", "90s", "15m", "1.5h")] == [90, 90, 900, 5400]
    assert [share(text) for text in ("10%", "0.1", "5 %")] == [0.1, 0.1, 0.05]


def test_a_request_reads_what_users_write():
    request = make_gate_request(workload="cifar", max_slowdown="5%", budget="2m", device="cpu")
    assert (request.max_slowdown, request.budget_s, request.variant) == (0.05, 120.0, "cpu-optimized")
    assert make_gate_request(workload="x", command="train {record}", device="none").device == "none"
    with pytest.raises(UsageError, match="none"):
        make_gate_request(workload="cifar", device="none")


def test_what_each_side_is_called_with():
    request = make_gate_request(workload="cifar", limit_train=2000, data="synthetic", epochs=3)
    options = request.run_options("cpu-baseline+resident", bare=True)
    assert options[-1] == "--bare"
    given = dict(zip(options[:-1:2], options[1:-1:2], strict=True))
    assert given["--variant"] == "cpu-baseline+resident"
    assert (given["--epochs"], given["--warmup-epochs"], given["--seed"]) == ("3", "1", "{seed}")
    assert (given["--limit-train"], given["--limit-test"]) == ("2000", "400")
    assert "--bare" not in request.run_options("cpu-baseline", bare=False)


@pytest.mark.parametrize("bands", ["", "#bands=8,4,3", "#size=96x64"])
def test_data_beside_the_caller_is_found_from_a_checkout(bands, tmp_path, monkeypatch):
    (tmp_path / "tif").mkdir()
    monkeypatch.chdir(tmp_path)
    for given, expected in (("tif/", f"{tmp_path}/tif"), ("auto", "auto"), ("s3://b/p", "s3://b/p")):
        options = make_gate_request(workload="eurosat", data=given + bands).run_options("cpu-baseline", bare=False)
        assert options[options.index("--data") + 1] == expected + bands
