"""What each part is worth: nothing of quality that has not learnt, nothing "needed" that merely did not run."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from compare_examples import broken, compare_records, data, record

from laptime.compare import words
from laptime.compare.comparison import compare
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.model import PartWorth
from laptime.compare.quality import has_learnt, rules_of
from laptime.ladder.figures import variant_figures
from laptime.records import LadderRecord, Rung, RunRecord

WHOLE = ("cpu-baseline", "cpu-optimized", "cpu-optimized-without-ema")


def ladder(*variants: str, **more: object) -> LadderRecord:
    rungs = tuple(Rung(variant=v) for v in variants)
    fields = {"id": "A", "workload": "cifar", "preset": "full", "device": "cpu", "data": data(), "rungs": rungs}
    return LadderRecord(**{**fields, "epochs": 4, "repeats": 3, **more})


def rounds(*found: tuple[str, float, float]) -> list[RunRecord]:
    return [record(variant, seconds, final, r) for r in range(3) for variant, seconds, final in found]


def test_only_what_failed_without_a_part_says_that_it_is_needed() -> None:
    names = ("cpu-optimized-without-dead-taps", "cpu-optimized-without-bf16", "cpu-optimized-without-threads")
    runs = [
        record("cpu-baseline", 80, 0.66),
        record("cpu-optimized", 20, 0.66),
        broken(names[0], "failed", "interrupted"),
        broken(names[2], "failed", "RuntimeError: no"),
    ]
    found = compare(ladder("cpu-baseline", "cpu-optimized", *names, status="interrupted"), runs)
    parts = found.parts
    assert found.cautions[0].startswith(
        "The ladder was interrupted, so what was still to run is missing here: --resume A"
    )
    told = [trouble[1:] for trouble in words.troubles(found)]
    assert told[:2] == [("interrupted", "it has no time"), ("failed", "RuntimeError: no")]
    assert {p.part: p.worth for p in parts} == {
        "dead-taps": "not measured",
        "bf16": "not measured",
        "threads": "needed",
    }


def test_quality_of_what_has_not_learnt_earns_no_place() -> None:
    found = rounds(*zip(WHOLE, (80, 20, 19), (0.229, 0.25, 0.20), strict=True))
    (part,) = compare(ladder(*WHOLE, quality_floor=0.55), found).parts
    assert part.quality_points is None
    assert part.worth != "earns its place"
    (part,) = compare(ladder(*WHOLE, quality_floor=0.1), found).parts
    assert part.quality_points == pytest.approx(-5, abs=0.1)
    assert part.worth == "earns its place"


def test_a_part_without_which_trainings_come_to_no_loss_earns_its_place_whatever_it_costs() -> None:
    def part(*lost: tuple[str, int], **more: object) -> PartWorth:
        runs = []
        for run in rounds(*zip(WHOLE, (80, 20, 10), (0.7, 0.7, 0.7), strict=True)):
            assert run.spec is not None
            gone = (run.spec.variant, run.spec.repeat) in lost
            changed = {"test_loss": None if gone else 1.0, "evaluate_s": 1.0}
            runs.append(run.model_copy(update={"epochs": tuple(e.model_copy(update=changed) for e in run.epochs)}))
        return compare(ladder(*WHOLE, quality="loss", **more), runs).parts[0]

    found = part((WHOLE[2], 1))
    assert (found.worth, found.reason) == ("earns its place", "without it 1 of 3 trainings came to no loss")
    assert (found.ratio or 1.0) < 1
    assert part().worth == "costs"
    assert part((WHOLE[1], 0), (WHOLE[2], 1)).worth == "costs", "with it, too"
    assert part((WHOLE[2], 1), data=data("synthetic")).worth == "costs", "of a stand-in nothing is judged"


@pytest.mark.parametrize(
    ("reached", "quality", "learnt"),
    [(0.5, "accuracy", False), (0.6, "accuracy", True), (None, "loss", False), (0.5, "loss", True)],
)
def test_what_a_baseline_must_have_learnt(reached: float | None, quality: str, learnt: bool) -> None:
    assert has_learnt(reached, quality, rules_of(ladder("cpu-baseline", quality_floor=0.55), ())) == learnt
    stand_in = ladder("cpu-baseline", data=data("synthetic"))
    assert not has_learnt(reached, quality, rules_of(stand_in, ()))


def test_losses_have_a_unit_of_their_own() -> None:
    runs = []
    for run in rounds(*zip(WHOLE, (80, 20, 20.1), (0.6, 0.6, 0.6), strict=True)):
        loss = 0.55 if "without" in run.spec.variant else 0.49
        runs.append(
            run.model_copy(update={"epochs": tuple(e.model_copy(update={"test_loss": loss}) for e in run.epochs)})
        )
    found = compare(ladder(*WHOLE, quality="loss"), runs)
    assert "loss, % better" in to_markdown(found)
    assert "| 0.55 | 12.2 % worse |" in to_markdown(found)
    assert "the same, kept" in to_markdown(found)
    page = to_html(found, None, runs)
    assert "loss worse, 0.55 instead of 0.49 (12.2 % worse, +" in text_of(page)
    assert "loss, % better" in page
    assert "below 0.0 %" not in page


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", page))


def pair_of(*seconds: Sequence[float]) -> list[RunRecord]:
    names = ("cpu-baseline", "cpu-x")
    return [record(n, s, 0.66, r) for n, both in zip(names, seconds, strict=True) for r, s in enumerate(both)]


def test_an_interval_that_is_not_known_is_said_so_everywhere() -> None:
    runs = pair_of((80, 82), (30, 70))
    found = compare_records(runs)
    hero = text_of(to_html(found, None, runs)).split("Speed-up of each variant")[0]
    for text in (found.headlines[0].sentence, to_markdown(found), hero):
        assert "95 % interval unknown, n = 2" in text
        assert "a gain is not shown" in text
        assert "to 250" not in text
    figures = variant_figures(found.row("cpu-x"))
    assert figures["speedup"] > 1
    assert not any("_ci_" in name for name in figures)  # in MLflow's charts


def test_the_page_says_on_how_many_ranks() -> None:
    runs = [r.model_copy(update={"ranks": 2}) if r.spec.variant == "cpu-x" else r for r in pair_of((80, 82), (40, 41))]
    found = compare_records(runs)
    hero = text_of(to_html(found, None, runs)).split("Speed-up of each variant")[0]
    assert "cpu-x trains on 2 ranks" in hero


def test_a_part_without_which_more_is_learnt_costs_where_its_time_is_not_shown() -> None:
    """It had been within noise, whatever the table said of quality beside it."""

    def part(without_s: tuple[float, float, float], reached: float) -> PartWorth:
        runs = [record("cpu-baseline", 80, 0.7, r) for r in range(3)]
        runs += [record("cpu-optimized", 20, 0.5, r) for r in range(3)]
        runs += [record(WHOLE[2], seconds, reached, r) for r, seconds in enumerate(without_s)]
        return compare(ladder(*WHOLE, quality_floor=0.1), runs).parts[0]

    assert part((19, 20, 21), 0.7).worth == "costs"
    assert part((19, 20, 21), 0.501).worth == "within noise"
    assert part((40, 40.1, 40.2), 0.7).worth == "earns its place", "of time; its points stand beside it"
