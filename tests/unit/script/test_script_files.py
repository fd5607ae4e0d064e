"""Loader workers of a printed script read a file that the data set holds open apart from each other, as a run's do."""

from tests.unit.own.test_own_files import holding
from tests.unit.script.script_runs import run_scripts

from laptime.preflight.inspecting import inspect
from laptime.script import print_script
from laptime.variants import resolve


def test_workers_of_a_script_do_not_move_its_own_place_in_the_file(tmp_path):
    data = inspect(holding(tmp_path / "held.py"))
    names = ("cpu-baseline", "cpu-baseline+workers:count=2")
    printed = run_scripts(tmp_path, {name: (print_script(resolve(name), "own", data), []) for name in names})
    items, workers = (printed[name] for name in names)
    assert [numbers[-1] for numbers in items] != [0, 0], "the baseline's own process reads"
    assert [numbers[-1] for numbers in workers] == [0, 0]
