"""The simple profile from a record alone."""

import subprocess
import sys

from laptime.records import EpochRecord, RunRecord
from laptime.records.simple import actions, simple_table


def a_record(saved_s: float | None = None, **changes) -> RunRecord:
    epochs = tuple(
        EpochRecord(
            index=i,
            epoch_s=1.0,
            samples=40,
            steps=10,
            parts_s={"data": 0.2, "forward": 0.3, "backward": 0.45, "rest": 0.05},
            evaluate_s=0.25,
            checkpoint_s=saved_s if i else None,
        )
        for i in range(2)
    )
    return RunRecord(**{"status": "done", "epochs": epochs, "warmup_s": 1.5, "startup_s": 2.0, **changes})


def test_the_table_reads_as_it_should():
    assert simple_table(a_record(saved_s=0.25, checkpoint_s=0.25)) == (
        "Action            Mean duration (s)  Calls  Total time (s)  Share (%)\n"
        "---------------------------------------------------------------------\n"
        "Total                             -      -          6.5000     100.00\n"
        "start-up                   2.000000      1          2.0000      30.77\n"
        "warm-up                    1.500000      1          1.5000      23.08\n"
        "backward                   0.045000     20          0.9000      13.85\n"
        "forward                    0.030000     20          0.6000       9.23\n"
        "evaluation                 0.250000      2          0.5000       7.69\n"
        "data                       0.020000     20          0.4000       6.15\n"
        "saving the model           0.250000      1          0.2500       3.85\n"
        "checkpoint                 0.250000      1          0.2500       3.85\n"
        "rest                       0.005000     20          0.1000       1.54\n"
    )


def test_shares_are_of_all_that_was_timed():
    found = actions(a_record())
    assert [a.name for a in found][:2] == ["start-up", "warm-up"]
    assert sum(a.total_s for a in found) == 2.0 + 1.5 + 2 * 1.0 + 2 * 0.25


def test_a_run_that_ended_early_says_so_and_one_without_steps_counts_epochs():
    assert simple_table(RunRecord(status="failed", error="it broke")).startswith("Nothing was timed")
    own_loop = RunRecord(status="done", epochs=(EpochRecord(index=0, epoch_s=1.0, samples=1, parts_s={"data": 1.0}),))
    assert actions(own_loop) == [("data", 1, 1.0)]
    nothing = RunRecord(status="done", warmup_s=0.0)
    assert "0.00" in simple_table(nothing)


def test_it_needs_no_torch():
    script = "import sys, laptime.records.simple; assert not {'torch', 'numpy', 'mlflow'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
