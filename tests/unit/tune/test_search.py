"""A search adopts what is shown to be faster and not worse, ends where nothing is left, and says what it did."""

from __future__ import annotations

import pytest
from tests.unit.ladder.advised import a_finding
from tests.unit.ladder.turning import through
from tests.unit.tune.searching import a_search, options

from laptime.compare.markdown import to_markdown

NEEDED = ("resident", "no-reads", "threads", "channels-last", "fused-optimizer", "bf16", "products")


def best_at_1024(spec) -> float:
    """dead-taps costs, a batch of 1024 pays; all else is as it should be. Times differ a little from round to round."""
    found = options(spec)
    seconds = 1.0 if found else 10.0
    seconds *= 1.3 if "dead-taps" in found else 1.0
    size = found.get("large-batch", {}).get("size", 32) or 512
    seconds *= 1 + abs(size - 1024) / 2048
    for name in NEEDED:
        seconds *= 1.0 if name in found else 1.2
    return seconds * (1 + 0.002 * spec.repeat)


def adopted(ladder) -> list[str]:
    return [m.change for m in ladder.record.search.moves if m.adopted]


def moves(ladder) -> dict:
    return {m.change: m for m in ladder.record.search.moves}


def test_a_search_finds_what_is_fastest_and_measures_it_again(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024)
    told = through(ladder)
    search = ladder.record.search
    assert adopted(ladder) == ["large-batch:size=1024", "-dead-taps"]
    assert (search.start, search.variant, search.ended) == ("cpu-optimized", "cpu-tuned", "no change was left to try")
    assert search.list.split("+")[0] == "cpu-baseline"
    assert set(search.list.split("+")[1:]) == {*NEEDED, "large-batch:size=1024"}
    assert len(search.confirmed) == 5
    assert all(ratio == pytest.approx(1 / 1.25 / 1.3) for ratio in search.confirmed)
    assert search.spent_s == sum(ladder.record.turns_s[: told.index("cpu-tuned, round 2 of 2")])
    # The comparison repeats what was found beside what it is compared with, and nothing else.
    assert [t for t in told if t.endswith("round 2 of 2")] == [
        f"{name}, round 2 of 2" for name in ("cpu-tuned", "cpu-optimized", "cpu-baseline")
    ]
    rung = ladder.record.rungs[-1]
    assert (rung.variant, rung.on, rung.reason) == (
        "cpu-tuned",
        "cpu-optimized",
        "found by a search that began with cpu-optimized: large-batch:size=1024, -dead-taps",
    )
    assert {o.name for o in rung.optimizations} == {*NEEDED, "large-batch"}


def test_leaving_out_what_settled_on_no_change_is_none(tmp_path, monkeypatch):
    """By chance it would be adopted, or cost the budget its pairs."""

    def none_as_products(spec):
        return tuple(
            o.model_copy(update={"options": {"layers": "none"}}) if o.name == "products" else o
            for o in spec.optimizations
        )

    def seconds(spec) -> float:
        return best_at_1024(spec) * (1.5 if "products" in options(spec) else 1.0)

    ladder = a_search(tmp_path, monkeypatch, seconds, settled=none_as_products)
    told = through(ladder)
    assert "-products" not in adopted(ladder)
    assert "no layer gains as a product" in moves(ladder)["-products"].reason
    assert len([t for t in told if "cpu-optimized-products" in t or "cpu-tuned-products" in t]) == 1


def test_what_was_just_changed_is_not_changed_back(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024)
    through(ladder)
    assert not {"large-batch:size=512", "+dead-taps"} & moves(ladder).keys()


def test_what_is_clearly_slower_costs_one_pair(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024)
    through(ladder)
    tried = moves(ladder)
    without = [tried[f"-{name}"] for name in NEEDED]
    assert all((m.first, m.ratios, m.outcome) == (pytest.approx(1.2), (), "not faster") for m in without)
    more = tried["large-batch:size=1024"]
    assert more.first == pytest.approx(0.8)
    assert len(more.ratios) == 3
    assert more.by_turns


def test_what_seems_best_after_a_first_pair_gets_the_others_first(tmp_path, monkeypatch):
    def seconds(spec) -> float:
        found = options(spec)
        base = best_at_1024(spec)
        if "threads" in found:
            base *= 0.97 if found["threads"]["count"] == 1 else 1.0
        return base * (0.95 if found.get("products", {}).get("largest") == 4 else 1.0)

    ladder = a_search(tmp_path, monkeypatch, seconds)
    told = through(ladder)
    # The large gain at once, the small ones by their size once everything has had a first pair.
    assert adopted(ladder) == ["large-batch:size=1024", "-dead-taps", "products:largest=4", "threads:count=1"]
    place = told.index("cpu-tuned+large-batch:size=1024 beside cpu-optimized, by turns, search")
    assert "threads:count=1" in told[place - 1]
    assert told[place : place + 4] == [told[place]] * 4


def test_a_change_of_what_is_learnt_stays_only_where_quality_does(tmp_path, monkeypatch):
    def worse_at_1024(spec) -> float:
        size = options(spec).get("large-batch", {}).get("size", 0)
        return 0.7 if size == 1024 and spec.epochs == 3 else 0.8

    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=worse_at_1024)
    told = through(ladder)
    assert adopted(ladder) == ["-dead-taps"]
    move = moves(ladder)["large-batch:size=1024"]
    assert (move.outcome, move.reason) == ("worse", "accuracy 70.0 %, baseline 80.0 %")
    assert sum("a whole training" in turn for turn in told) == 1, "dead-taps changes nothing that is learnt"


@pytest.mark.parametrize("accuracy", [0.3, None])
def test_where_quality_can_not_be_judged_nothing_that_changes_it_is_tried(tmp_path, monkeypatch, accuracy):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=lambda _: accuracy)
    told = through(ladder)
    assert adopted(ladder) == ["-dead-taps"]
    assert not any("size=1024" in turn or "a whole training" in turn for turn in told)
    assert "large-batch:size=1024" in ladder.record.search.unjudged
    said = "cpu-optimized not judged, though large-batch in it may change what is learnt"
    assert ladder.record.search.start_quality == said
    assert f"Quality of where it could begin: {said}." in to_markdown(ladder.compare()).replace("\\", "")
    assert "-large-batch" in moves(ladder), "to leave it out brings what is learnt back to the baseline's"


@pytest.mark.parametrize("how", ["failed", "wrong"])
def test_a_change_that_breaks_is_told_and_the_search_goes_on(tmp_path, monkeypatch, how):
    def status(spec) -> str:
        return how if "dead-taps" not in options(spec) and options(spec) else "done"

    ladder = a_search(tmp_path, monkeypatch, best_at_1024, status=status)
    through(ladder)
    move = moves(ladder)["-dead-taps"]
    assert (move.outcome, move.reason, move.ratios) == ("failed", f"{how}: it broke", ())
    assert adopted(ladder) == ["large-batch:size=1024"]
    assert ladder.record.search.ended == "no change was left to try"


def test_a_change_is_checked_against_the_baseline_before_it_is_measured(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024)
    through(ladder)
    of_moves = [r.spec for r in ladder.trials if r.spec.variant not in ladder.variants]
    assert of_moves
    lists = [[o.text() for o in spec.optimizations if o.name != "products"] for spec in of_moves]
    checked = [found for found, spec in zip(lists, of_moves, strict=True) if spec.check]
    # A change whose first pair stood on another list is checked on this one too.
    assert all(found in checked for found in lists)


def test_nothing_is_tried_twice_on_one_list(tmp_path, monkeypatch):
    def seconds(spec) -> float:
        found = options(spec)
        wanders = 1 - 0.02 - 0.05 * (-1) ** spec.repeat if "threads" not in found and found else 1.0
        return best_at_1024(spec) * (wanders / 1.2 if "threads" not in found and found else 1.0)

    ladder = a_search(tmp_path, monkeypatch, seconds)
    through(ladder)
    tried = ladder.record.search.moves
    assert [(m.outcome, len(m.ratios)) for m in tried if m.change == "-threads"] == [("not shown", 5)]
    last = max(place for place, m in enumerate(tried) if m.adopted)
    assert last < [m.change for m in tried].index("-threads")


def test_without_anything_faster_it_says_so_and_compares_what_there_is(tmp_path, monkeypatch):
    def flat(spec) -> float:
        return (1.0 if options(spec) else 10.0) * (1.2 if len(options(spec)) < 9 else 1.0)

    ladder = a_search(tmp_path, monkeypatch, flat)
    told = through(ladder)
    search = ladder.record.search
    assert (search.variant, search.list, search.confirmed) == ("", "", ())
    assert search.moves
    assert told[-2:] == ["cpu-optimized, round 2 of 2", "cpu-baseline, round 2 of 2"]


def test_where_the_optimized_list_fails_it_begins_with_the_baseline(tmp_path, monkeypatch):
    def status(spec) -> str:
        return "failed" if spec.variant == "cpu-optimized" else "done"

    ladder = a_search(tmp_path, monkeypatch, best_at_1024, status=status)
    through(ladder)
    assert ladder.record.search.start == "cpu-baseline"
    assert "+resident" in adopted(ladder)
    assert ladder.record.rungs[-1].on == "cpu-baseline"


def test_where_the_optimized_list_is_worse_it_begins_without_what_makes_it_so(tmp_path, monkeypatch):
    def accuracy(spec) -> float:
        return 0.7 if "large-batch" in options(spec) else 0.8

    ladder = a_search(tmp_path, monkeypatch, best_at_1024, accuracy=accuracy)
    told = through(ladder)
    assert told[:3] == [
        f"{name}, round 1 of 2" for name in ("cpu-baseline", "cpu-optimized", "cpu-optimized-without-large-batch")
    ]
    search = ladder.record.search
    assert search.start == "cpu-optimized-without-large-batch"
    assert adopted(ladder) == ["-dead-taps"]
    assert moves(ladder)["+large-batch"].outcome == "worse"
    assert "large-batch" not in search.list


def test_without_a_baseline_nothing_is_tried(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, status=lambda _: "failed")
    assert through(ladder) == ["cpu-baseline, round 1 of 2"]
    assert [left.variant for left in ladder.record.left_out][-1] == "cpu-tuned"
    assert ladder.exit_code() == 1
    assert ladder.record.search.ended == "not tried, since the baseline failed"


def test_where_two_can_not_take_turns_they_run_one_after_the_other(tmp_path, monkeypatch):
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, by_turns=False)
    told = through(ladder)
    assert adopted(ladder) == ["large-batch:size=1024", "-dead-taps"]
    sides = [t.removesuffix(", search") for t in told if t.endswith("search")]
    first = "cpu-tuned+large-batch:size=1024"
    place = sides.index(first)
    # Every other pair backwards, so that a machine that slows down hits both alike.
    assert sides[place - 1 : place + 5] == ["cpu-optimized", first, first, "cpu-optimized", "cpu-optimized", first]
    assert not any(move.by_turns for move in moves(ladder).values())


def test_what_advice_promises_most_of_is_tried_first(tmp_path, monkeypatch):
    findings = (
        a_finding("few", "cpu-optimized+products:largest=4", (0.01, 0.02)),
        a_finding("batch", "cpu-optimized+large-batch:size=1024", (0.1, 0.3)),
        a_finding("own", ""),
        a_finding("average", "cpu-optimized+ema", (0.5, 0.6)),
    )
    ladder = a_search(tmp_path, monkeypatch, best_at_1024, findings=findings)
    told = through(ladder)
    tried = ladder.record.search.moves
    promised = {m.change: m.predicted for m in tried if m.predicted}
    assert promised == {"large-batch:size=1024": (0.1, 0.3), "products:largest=4": (0.01, 0.02)}
    assert tried[0].change == "large-batch:size=1024"
    searched = list(dict.fromkeys(t.partition(" ")[0] for t in told if t.endswith("search")))
    assert searched[:2] == ["cpu-tuned+large-batch:size=1024", "cpu-tuned+products:largest=4"]
    assert len({m.change for m in tried}) == len(tried)


def test_what_advice_writes_otherwise_is_tried_once(tmp_path, monkeypatch):
    finding = a_finding("batch", "cpu-baseline+large-batch:size=512", (0.1, 0.3))
    ladder = a_search(
        tmp_path,
        monkeypatch,
        best_at_1024,
        findings=(finding,),
        status=lambda spec: "failed" if spec.variant == "cpu-optimized" else "done",
    )
    through(ladder)
    assert "+large-batch:size=512" in adopted(ladder)
    assert "+large-batch" not in moves(ladder)


def test_a_search_without_advice_goes_on(tmp_path, monkeypatch):
    said = []
    ladder = a_search(tmp_path, monkeypatch, best_at_1024)
    ladder.say = said.append
    ladder.counsel.rules = ladder.counsel.rules._replace(advise=lambda *_: 1 / 0)
    through(ladder)
    assert adopted(ladder) == ["large-batch:size=1024", "-dead-taps"]
    assert any(text.startswith("NOTICE: the search goes without advice: ZeroDivisionError") for text in said)
    assert "  -dead-taps, exact, 0.769, 0.769 (0.769–0.769, n = 3), kept" in said


def test_what_came_close_is_tried_again_once_something_has_changed(tmp_path, monkeypatch):
    def seconds(spec) -> float:
        found = options(spec)
        base = best_at_1024(spec)
        # Without threads it wanders, and is faster: by less than that until no-reads has left, which brings little.
        if "threads" not in found and found:
            base *= 1 - 0.01 * (-1) ** spec.repeat
            base /= 1.2 * (1.005 if "no-reads" in found else 1.1)
        return base / (1.2 * 1.002 if "no-reads" not in found and found else 1)

    ladder = a_search(tmp_path, monkeypatch, seconds)
    through(ladder)
    changes = [m.change for m in ladder.record.search.moves]
    assert changes.count("-threads") == 2
    assert changes.index("-threads") < changes.index("-no-reads")
    assert adopted(ladder) == ["large-batch:size=1024", "-dead-taps", "-no-reads", "-threads"]
    assert changes.count("-resident") == 1
