"""What every report says of a search."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console
from tests.unit.ladder.turning import turned
from tests.unit.tune.searching import a_search
from tests.unit.tune.test_search import best_at_1024

from laptime.compare.comparison import compare
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.model import Comparison
from laptime.compare.searching import cells, sentences
from laptime.compare.terminal import print_comparison
from laptime.launchers.base import Hooks
from laptime.records import SearchMove, SearchRecord
from laptime.tracking.events import Measured, Noted, read_journal

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:tensorboard.*")


def reports(found: Comparison, width: int = 200) -> list[str]:
    """The terminal's, the page's and the Markdown's words, as a reader sees them."""
    out = io.StringIO()
    print_comparison(found, Console(file=out, width=width))
    page = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", to_html(found, None, [])))
    return [out.getvalue(), page, re.sub(r"\\(.)", r"\1", to_markdown(found))]


def test_every_report_holds_the_search(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024)
    turned(ladder)
    found = compare(ladder.record, ladder.runs)
    said = sentences(ladder.record.search)
    assert said[0] == (
        "cpu-tuned takes 0.615 times as long as cpu-optimized, where the search began (0.615–0.615, n = 5, pairs that "
        "chose nothing)."
    )
    assert said[1] == f"To run it anywhere: --variant {ladder.record.search.list}"
    tried = r"\d+ changes tried in \d+\.\d of 600\.0 minutes, 2 kept; it ended since no change was left to try\."
    assert re.fullmatch(tried, said[2])
    for text in reports(found):
        assert "What the search tried" in text
        assert "large-batch:size=1024" in text
        assert "0.769" in text
        for sentence in said:
            assert " ".join(sentence.split()) in " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())
    assert found.row("cpu-tuned").on == "cpu-optimized"
    ladder.compare()
    ladder.close("done")
    events = read_journal(ladder.journal.path)[1]
    told = (row for e in events if isinstance(e, Measured) and e.key == "l" for row in e.rows)
    figures = {row[0]: row[1] for row in told}
    assert figures["tuned_ratio"] == pytest.approx(1 / 1.25 / 1.3)
    assert figures["changes_kept"] == 2
    assert figures["changes_tried"] == len(ladder.record.search.moves)
    notes = [e.markdown for e in events if isinstance(e, Noted)]
    assert any("What the search tried" in text for text in notes), "MLflow's description has it"


def test_a_ladder_without_a_search_says_nothing_of_one(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024)
    turned(ladder)
    ladder.journal.close()
    found = compare(ladder.record.model_copy(update={"search": None}), ladder.runs)
    assert not any("What the search tried" in text for text in reports(found))


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (SearchMove(change="-x", klass="exact", first=1.3, outcome="not faster"), ["", "1.300", "–", "not faster"]),
        (
            SearchMove(change="+x", predicted=(0.1, 0.3), first=0.9, ratios=(0.9,) * 3, outcome="faster"),
            ["0.700–0.900", "0.900", "0.900 (0.900–0.900, n = 3)", "kept"],
        ),
        (
            SearchMove(change="+x", outcome="failed", reason="wrong: broke"),
            ["", "–", "–", "failed: wrong: broke"],
        ),
        (
            SearchMove(change="+x", first=0.99, outcome="not shown", reason="no time for more than a first pair"),
            ["", "0.990", "–", "not shown: no time for more than a first pair"],
        ),
    ],
)
def test_a_change_in_words(move, expected):
    assert cells(move)[2:] == expected


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (
            {"variant": "cpu-tuned", "confirmed": (0.98, 1.01, 1.0)},
            "pairs that chose nothing): not shown to be faster.",
        ),
        (
            {"moves": (SearchMove(change="-x", outcome="not faster"),)},
            "The search found nothing that is shown to be faster than cpu-optimized.",
        ),
        ({}, "The search began with cpu-optimized, and tried no change of it."),
        (
            {"ended": "", "moves": (SearchMove(change="-x", outcome="faster"),)},
            "The search was broken off before what it had kept ran as a variant of its own.",
        ),
        ({"ended": ""}, "No change tried in 5.0 of 10.0 minutes, 0 kept; it ended since it was broken off."),
        (
            {"ended": "", "budget_s": 5.0, "spent_s": 4.8},
            "No change tried in 4.8 of 5.0 s, 0 kept; it ended since it was broken off.",
        ),
        ({"untried": ("-a", "+b")}, "it ended since the rest of the budget is for what follows; not tried: -a, +b."),
        (
            {"untried": ("-a",), "moves": (SearchMove(change="-x", outcome="not shown"),)},
            "it kept nothing, so that stayed unused, and a larger --budget tries more.",
        ),
        ({"unjudged": ("+c",)}, "Not tried, since quality can't be judged here: +c."),
    ],
)
def test_what_came_of_a_search_in_words(search, expected):
    base = {
        "budget_s": 600.0,
        "spent_s": 300.0,
        "start": "cpu-optimized",
        "ended": "the rest of the budget is for what follows",
    }
    assert any(text.endswith(expected) for text in sentences(SearchRecord(**{**base, **search})))


@pytest.mark.parametrize(
    ("outcome", "untried"), [("faster", ("-a",)), ("not shown", ())], ids=["something was kept", "all was tried"]
)
def test_time_that_was_used_is_not_called_unused(outcome, untried):
    moves = (SearchMove(change="-x", outcome=outcome),)
    record = SearchRecord(budget_s=600.0, start="cpu-optimized", ended="so", moves=moves, untried=untried)
    assert not any("unused" in text for text in sentences(record))


def test_a_search_without_a_baseline_says_nothing():
    assert sentences(SearchRecord(budget_s=1.0, ended="not tried, since the baseline failed")) == [
        "No search: not tried, since the baseline failed."
    ]


def test_what_fails_as_a_variant_of_its_own_is_not_recommended(tmp_path, monkeypatch):
    ladder = a_search(
        tmp_path, monkeypatch, best_at_1024, status=lambda spec: "wrong" if spec.variant == "cpu-tuned" else "done"
    )
    said = []
    for turn in ladder.turns():
        ladder.run(turn, Hooks())
        said = sentences(ladder.record.search)
        if "cpu-tuned+" in turn.variant and any(m.adopted for m in ladder.record.search.moves):
            # As it reads where the search is broken off here.
            assert said[0] != "The search found nothing that is shown to be faster than cpu-optimized."
            assert " 0.0 of " not in said[1]
    ladder.journal.close()
    assert said[0] == "cpu-tuned, which it found, has not been measured beside cpu-optimized."
    assert not any("--variant" in text for text in said)
