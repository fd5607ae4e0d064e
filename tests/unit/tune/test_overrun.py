"""What a search runs though its budget does not hold it is said when it begins, and by figures of these processes."""

from __future__ import annotations

import pytest
from tests.unit.ladder.turning import through
from tests.unit.tune.searching import a_search, options
from tests.unit.tune.test_search import best_at_1024

from laptime.cli.ladder_plan import too_small
from laptime.durations import in_time
from laptime.ladder.request import make_request
from laptime.places import Places
from laptime.tune import led


def said_by(ladder) -> list[str]:
    said: list[str] = []
    ladder.say = said.append
    through(ladder)
    return [text for text in said if text.startswith("NOTICE: ")]


def test_a_baseline_beyond_the_budget_says_why_the_rest_runs(tmp_path, monkeypatch):
    (notice,) = said_by(a_search(tmp_path, monkeypatch, best_at_1024, budget="1m"))
    assert notice.startswith("NOTICE: the budget of 60 s holds no change, since cpu-baseline took ")
    assert "Where the search begins and 1 more round of both run all the same" in notice


def test_it_is_said_where_the_search_begins_once_that_is_known(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, budget="345s")
    (notice,) = said_by(ladder)
    assert notice == f"NOTICE: {ladder.record.search.ended}."
    assert not said_by(led(a_search(tmp_path / "told", monkeypatch, best_at_1024, budget="345s"), warned=True))
    assert not said_by(a_search(tmp_path / "enough", monkeypatch, best_at_1024, budget="10h"))


@pytest.mark.parametrize(("minutes", "told"), [(4, True), (600, False)])
def test_a_second_list_beyond_the_budget_says_why_it_runs(tmp_path, monkeypatch, minutes, told):
    def accuracy(spec) -> float:
        return 0.7 if "large-batch" in options(spec) else 0.8

    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=accuracy, budget=f"{minutes}m")
    notices = said_by(ladder)
    begins = f"NOTICE: cpu-optimized-without-large-batch runs though the budget of {minutes} minutes may not hold it"
    assert any(text.startswith(begins) for text in notices) == told


def test_what_follows_is_reckoned_by_what_processes_took_where_they_start_in_less_than_is_usual(tmp_path, monkeypatch):
    """Forked processes on small data take a third of a second; eight seconds a start had left no change in twenty."""
    ladder = a_search(tmp_path, monkeypatch, lambda _: 0.01, budget="20s", start_s=0.3)
    assert not said_by(ladder)
    assert ladder.record.search.moves


@pytest.mark.parametrize(("budget", "told"), [("5", True), ("10h", False)])
def test_earlier_figures_say_it_before_the_first_process(tmp_path, budget, told):
    request = make_request(workload="cifar", device="cpu", preset="full", budget=budget)
    text = too_small(request, Places(tmp_path))
    assert bool(text) == told
    if told:
        assert text.startswith("the budget of 5 s holds no change, since training the baseline and where the search")


def test_the_images_that_are_there_are_counted_for_it(tmp_path):
    for part in ("train/a", "train/b", "test/a", "test/b"):
        (tmp_path / "photos" / part).mkdir(parents=True)
        (tmp_path / "photos" / part / "1.png").touch()
    few = make_request(workload="cifar", device="cpu", budget="5", data=str(tmp_path / "photos"))
    assert too_small(few.model_copy(update={"data": "auto"}), Places(tmp_path))
    assert not too_small(few, Places(tmp_path))


@pytest.mark.parametrize(
    ("seconds", "text"), [(5, "5 s"), (90.5, "90.5 s"), (600, "10 minutes"), (151, "2.5 minutes"), (9000, "2.5 hours")]
)
def test_times_in_words(seconds, text):
    assert in_time(seconds) == text
