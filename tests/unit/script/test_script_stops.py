"""Runs and printed scripts end where samples can't be found by their items; runs where weights can't be put back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.own_files import TUPLE
from tests.plain_loop import STEPPED, by_hand
from tests.unit.script.script_runs import EPOCHS, inspected, run_laptime, run_own_scripts

from laptime.data.own import refused as own_refused
from laptime.script import print_script
from laptime.variants import resolve

_PLAIN = TUPLE.replace("nn.Dropout(), ", "")
_PRUNED = """
from torch.nn.utils import prune


class Pruned(nn.Sequential):
    steps = 0

    def forward(self, x):
        if self.training:
            self.steps += 1
            if self.steps == 4:
                prune.l1_unstructured(self[3], "weight", 0.5)
        return super().forward(x)


class Workload:
"""
_DROPPING = """
def kept(items):
    return torch.utils.data.default_collate([item for item in items if not torch.equal(item[0], X[20])])


class Workload:
    collate_fn = staticmethod(kept)
"""
_CASES = {
    "pruned": (_PLAIN.replace("\nclass Workload:\n", _PRUNED).replace("return nn.Sequential(", "return Pruned(")),
    "dropped": _PLAIN.replace("\nclass Workload:\n", _DROPPING),
}


def test_samples_that_come_too_late_end_runs_and_scripts_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(own_refused, "_PATIENCE_S", 0.0)  # what is dropped comes too late for the look, as in much data
    variant, told = "cpu-baseline+resident", "collate_fn made 63 samples of 64 items"
    with inspected(tmp_path, {"dropped": (_CASES["dropped"], "Workload")}) as found:
        with pytest.raises(AssertionError) as of_run:
            run_laptime(resolve(variant), "own", found["dropped"], tmp_path / "run", warmup_epochs=1)
        with pytest.raises(AssertionError) as of_script:
            run_own_scripts(tmp_path, [("dropped", variant)], found)
    assert told in str(of_run.value)
    assert told in str(of_script.value)


def test_weights_that_a_step_renames_end_runs_alone_since_scripts_put_none_back(tmp_path):
    text = (
        _CASES["pruned"]
        .replace("    def loss(", STEPPED)
        .replace("batch_size = 16", "batch_size, learning_rate = 16, 0.1")
    )
    with inspected(tmp_path, {"pruned": (text, "Workload")}) as found:
        with pytest.raises(AssertionError) as of_run:
            run_laptime(resolve("cpu-baseline"), "own", found["pruned"], tmp_path / "run", warmup_epochs=1)
        printed = run_own_scripts(tmp_path, [("pruned", "cpu-baseline")], found)["pruned|cpu-baseline"]
        losses = by_hand(Path(found["pruned"].path), EPOCHS)
    assert "the net has had no weight '3.weight_orig' of shape (2, 256)" in str(of_run.value)
    assert [epoch[0] for epoch in printed] == pytest.approx(losses, abs=1e-6)


@pytest.mark.parametrize("workload", ["cifar", "detection"])
def test_a_folder_that_laptime_has_not_written_is_refused_with_what_to_name(workload, tmp_path):
    (script := tmp_path / "script.py").write_text(print_script(resolve("cpu-baseline"), workload), encoding="utf-8")
    command = [sys.executable, str(script), "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert f"{tmp_path} has no meta.json: name the folder that laptime data fetch has written" in done.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_processes_of_one_machine_divide_its_cores_before_they_meet(device, tmp_path):
    """Which none does here: nobody says where, and there may be no GPU."""
    place = tmp_path / "printed.py"
    place.write_text(print_script(resolve(f"{device}-baseline+ddp"), "cifar"), encoding="utf-8")
    code = (
        "import os, printed, torch\n"
        "os.sched_getaffinity = lambda _: range(12)\n"
        "try:\n    printed.join()\nexcept Exception:\n    print(torch.get_num_threads())\n"
    )
    ranked = {"LOCAL_RANK": "1", "RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "OMP_NUM_THREADS": "1"}
    known = {name: value for name, value in os.environ.items() if name != "MASTER_ADDR"} | ranked
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=known, capture_output=True, text=True, check=False
    )
    assert done.stdout == "3\n", done.stderr
