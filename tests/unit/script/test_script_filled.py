"""The script of a net whose buffers are empty before its first batch begins with them so, behind its warm-up too."""

from tests.own_files import TUPLE
from tests.unit.own.test_own_tallies import BY_FIRST
from tests.unit.script.script_runs import assert_equal, inspected, numbers_of, run_laptime, run_own_scripts

from laptime.variants import resolve


def test_a_script_trains_to_the_losses_of_the_run(tmp_path):
    text = TUPLE.replace("nn.Dropout(), ", "")
    for change in BY_FIRST:
        text = text.replace(*change)
    with inspected(tmp_path, {"filled": (text, "Workload")}) as found:
        printed = run_own_scripts(tmp_path, [("filled", "cpu-baseline")], found)
        run = run_laptime(resolve("cpu-baseline"), "own", found["filled"], tmp_path / "run")
    assert_equal(printed["filled|cpu-baseline"], numbers_of(run))
