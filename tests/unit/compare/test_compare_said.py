"""What the reports say once, of all variants, and only where it is so."""

from __future__ import annotations

import io

import pytest
from compare_examples import compare_records, data, ladder, record, records
from inside_examples import advice, inside
from rich.console import Console

from laptime.compare import advising, words
from laptime.compare.comparison import Comparison, compare
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.plots import speedup_svg
from laptime.compare.terminal import print_comparison
from laptime.records import Advice, LadderRecord, RunRecord
from laptime.spec import DataSpec, OwnSpec


def test_a_loss_is_explained_in_percent_and_no_interval_is_named_where_there_is_none() -> None:
    single = [run for run in records() if run.spec and run.spec.repeat == 0]
    found = compare(ladder().model_copy(update={"quality": "loss", "repeats": 1}), single)
    page, text = to_html(found, None, single), to_markdown(found)
    assert "more than 1 % higher" in page
    assert "percentage point" not in page + text
    assert "95 % interval" not in speedup_svg(found)
    assert page.count("Curves: ") == 2  # the loss is drawn once
    assert "95 % interval" in speedup_svg(compare(ladder(), records()))


def test_a_variant_that_is_the_fastest_of_several_kinds_is_described_once() -> None:
    runs = [record("cpu-baseline", 85, 0.66, r) for r in range(3)] + [record("cpu-x", 40, 0.66, r) for r in range(3)]
    fastest, again, _ = compare_records(runs).headlines
    assert fastest.variant == again.variant == "cpu-x"
    assert again.sentence == "Fastest without dead taps: cpu-x too."
    assert again.speedup == fastest.speedup


def test_what_went_wrong_stands_in_the_table_or_among_what_to_mind_alone() -> None:
    why = {"status": "failed", "error": "no room at mine.py line 7", "epochs": ()}
    for failed in ({"cpu-baseline": (0, 1, 2)}, {"cpu-optimized": (0, 1, 2)}, {"cpu-optimized": (1,)}):
        runs = [
            run.model_copy(update=why) if run.spec and run.spec.repeat in failed.get(run.spec.variant, ()) else run
            for run in records()
        ]
        page = to_html(compare(ladder(), runs), None, runs)
        body, details = page.split("<h2>Variants in detail</h2>")
        seen = body.partition('<ul class="phone">')[0] + body.partition("<h2>Mind</h2>")[2]  # phones see no such cell
        assert (seen.count("no room at mine.py"), details.count("no room at mine.py")) == (1, 0)
        assert "<dl>\n</dl>\n</details>" not in details.replace("</ol>\n<dl>", "")


def test_of_dead_taps_nothing_is_said_where_no_variant_crops_them() -> None:
    found = compare(ladder(), records())
    bare = found.model_copy(
        update={"rows": tuple(r.model_copy(update={"names": tuple({*r.names} - {"dead-taps"})}) for r in found.rows)}
    )
    console = Console(file=io.StringIO(), width=120)
    for told, said in ((found, True), (bare, False)):
        print_comparison(told, console)
        for text in (to_markdown(told), to_html(told, None, inside(records())), console.file.getvalue()):
            assert ("Fastest without dead taps" in text) is said
        console.file = io.StringIO()


def test_what_the_baseline_notes_is_said_of_all_variants() -> None:
    why = "a batch of 1024 needs about 30.0 GiB and the device has 24.0: halved to 512"
    fewer = "2 loader workers instead of 20: 1.0 GiB of shared memory hold no more"
    noted = [
        run.model_copy(update={"notes": (why, fewer)}) if run.spec and run.spec.variant == "cpu-baseline" else run
        for run in records()
    ]
    comparison = compare(ladder(), noted)
    for text in (to_html(comparison, ladder(), inside(noted)), to_markdown(comparison)):
        assert f"All variants: {why}." in text
        assert f"All variants: {fewer}." in text


LEFT_OUT = "optimizer() leaves 2 of 7 parameters out (head.weight, head.bias), which stay as they are."
COUNTED = "loss() of train.py (train.py, line 20) counts in objects."


def of_data(spec: DataSpec) -> tuple[LadderRecord, list[RunRecord]]:
    """The ladder of the examples with other data; specs name these, too."""
    runs = [
        run.model_copy(update={"spec": run.spec.model_copy(update={"data": spec})}) for run in records() if run.spec
    ]
    return ladder().model_copy(update={"data": spec}), runs


def reports(comparison: Comparison, runs: list[RunRecord]) -> list[str]:
    """Page, Markdown and terminal."""
    console = Console(file=io.StringIO(), width=200, highlight=False)
    print_comparison(comparison, console)
    return [to_html(comparison, None, runs), to_markdown(comparison), console.file.getvalue()]


def test_what_was_noticed_before_the_training_is_in_all_reports_each_thing_once() -> None:
    own = OwnSpec(attribute="workload", name="train", batch_size=32, learning_rate=0.1, quality="accuracy")
    given, runs = of_data(data("own", f"{LEFT_OUT}\n{COUNTED}").model_copy(update={"own": own}))
    comparison = compare(given, runs)
    for text in reports(comparison, runs):
        assert text.count(f"The training: {LEFT_OUT}") == text.count(f"The training: {COUNTED}") == 1
    assert compare_records(runs).cautions[:2] == comparison.cautions[:2]


@pytest.mark.parametrize("kind", ["folder", "synthetic"])
def test_a_notice_on_data_is_told_once_and_that_on_a_stand_in_by_its_banner(kind: str) -> None:
    told = "A fifth of each class, by seed 3, is kept for the test."
    given, runs = of_data(data(kind, told))
    for text in reports(compare(given, runs), runs):
        assert text.count(told) == 1
        assert (f"The data: {told}" in text) == (kind == "folder")


def test_it_is_said_of_how_many_samples_a_limit_took_some() -> None:
    whole = compare(ladder().model_copy(update={"limit_train": None, "limit_test": None}), records())
    assert "50,000 training and 10,000 test samples" in words.conditions(whole.conditions, 1)
    some = compare(ladder().model_copy(update={"limit_train": 2000, "limit_test": 60_000}), records())
    assert "2,000 of 50,000 training and 10,000 test samples" in words.conditions(some.conditions, 1)


@pytest.mark.parametrize(("what", "said"), [("Do it.", "x.unbind(1); "), ("Let `x.unbind(1)` do it.", "")])
def test_a_change_of_code_is_told_once_with_what_measures_it(what: str, said: str) -> None:
    gate = "laptime gate f.py:w --advised slices"
    (finding, *_) = advice()["cpu-baseline"].findings
    code = {"what": what, "variant": "", "command": "x.unbind(1)", "measured_by": gate, "measured": None}
    told = {"cpu-optimized": Advice(findings=(finding.model_copy(update=code),))}
    words_told = advising.next_step(compare(ladder(), records(), advice=told))
    assert words_told.startswith(f"Next, for cpu-optimized: {what.rstrip('.')} (")
    assert words_told.endswith(f" less): {said}measure it, before you commit: {gate}")


def test_variants_that_no_rung_was_tried_with_are_not_called_one_thing_more() -> None:
    tried = ladder()
    named = tried.model_copy(update={"rungs": tuple(r.model_copy(update={"adds": None}) for r in tried.rungs)})
    more = "Each rung is the best so far and one thing more; the dotted line is the baseline."
    assert more in to_html(compare(tried, records()), tried, records())
    shown = to_html(compare(named, records()), named, records())
    assert "one thing more" not in shown
    assert "The dotted line is the baseline." in shown
