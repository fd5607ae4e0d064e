from __future__ import annotations

import io
import math
import subprocess
import sys

import pytest
from compare_examples import STEPS, broken, compare_records, data, epochs, ladder, record, records, spec
from rich.console import Console

from laptime.compare import words
from laptime.compare.comparison import Comparison, compare
from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.statistics import Bootstrap
from laptime.compare.terminal import to_terminal
from laptime.compare.words import troubles
from laptime.ladder.figures import headline_figures
from laptime.records import CompileRecord, Dropped, EpochRecord, LadderRecord, LeftOut, Rung, RunRecord


@pytest.fixture(scope="module")
def example() -> Comparison:
    return compare(ladder(), records())


def row(comparison: Comparison, variant: str):
    found = comparison.row(variant)
    assert found is not None
    return found


def test_every_variant_of_the_ladder_stays_in_the_table(example: Comparison) -> None:
    names = [r.variant for r in example.rows]
    assert names == [*(s[0] for s in STEPS), "cpu-fused-optimizer", "cpu-no-reads", "cpu-compile"]
    assert example.baseline == "cpu-baseline"


def test_speed_up_and_contribution(example: Comparison) -> None:
    best = row(example, "cpu-optimized")
    base, before = row(example, "cpu-baseline"), row(example, "cpu-products")
    assert best.speedup == pytest.approx(base.epoch_s / best.epoch_s)
    assert best.speedup_low < best.speedup < best.speedup_high
    assert best.contribution == pytest.approx(before.epoch_s / best.epoch_s)
    assert (base.speedup, base.speedup_low, base.contribution) == (1.0, None, None)
    assert (best.n, best.n_epochs, best.speedup_n) == (3, 12, 3)


def test_headlines(example: Comparison) -> None:
    found = {h.kind: h.variant for h in example.headlines}
    assert found == {
        "fastest": "cpu-optimized",
        "without_dead_taps": "cpu-optimized-without-dead-taps",
        "exact_and_numeric": "cpu-products",
    }
    figures = headline_figures(example)
    assert figures["speedup_ci_low"] < figures["speedup"] < figures["speedup_ci_high"]
    assert "interval" in example.headlines[0].sentence
    assert "n = 3" in example.headlines[0].sentence


def test_a_faster_variant_that_is_worse_is_no_headline() -> None:
    runs = [record("cpu-baseline", 85, 0.66, r) for r in range(3)]
    runs += [record("cpu-quick", 5, 0.50, r) for r in range(3)] + [record("cpu-fine", 40, 0.70, r) for r in range(3)]
    found = compare_records(runs)
    assert row(found, "cpu-quick").verdict == "worse"
    assert found.headlines[0].variant == "cpu-fine"


def test_a_slower_variant_is_called_slower_and_is_no_headline() -> None:
    runs = [record("cpu-baseline", 85, 0.66, r) for r in range(3)] + [record("cpu-x", 120, 0.66, r) for r in range(3)]
    found = compare_records(runs)
    assert words.standing(row(found, "cpu-x"), found) == "slower"
    (only,) = found.headlines
    assert only.variant is None
    assert only.sentence == "Fastest: no variant is faster than cpu-baseline and not worse."


def test_a_baseline_alone_is_compared_with_nothing() -> None:
    (only,) = compare_records([record("cpu-baseline", 85, 0.66, r) for r in range(3)]).headlines
    assert only.sentence == "Only cpu-baseline was trained, so there is nothing to compare it with."


def test_failed_wrong_and_left_out_have_reasons_and_no_times(example: Comparison) -> None:
    failed, wrong, left = (row(example, v) for v in ("cpu-fused-optimizer", "cpu-no-reads", "cpu-compile"))
    assert [r.status for r in (failed, wrong, left)] == ["failed", "wrong", "left_out"]
    assert "out of memory" in failed.error
    assert "0.31" in wrong.error
    assert "0.01" in wrong.error
    assert "no GPU" in left.reason
    assert {r.epoch_s for r in (failed, wrong, left)} == {None}


def test_one_wrong_process_takes_the_time_from_all() -> None:
    runs = [record("cpu-baseline", 85, 0.66), record("cpu-x", 5, 0.66, 1), broken("cpu-x", "wrong", None)]
    found = row(compare_records(runs), "cpu-x")
    assert (found.status, found.epoch_s, found.speedup) == ("wrong", None, None)


def test_one_failed_process_of_several_is_said() -> None:
    runs = [record("cpu-baseline", 85, 0.66), record("cpu-x", 5, 0.66, 1), broken("cpu-x", "failed", "killed")]
    found = row(compare_records(runs), "cpu-x")
    assert (found.status, found.error) == ("done", "1 of 2 processes: killed")


def test_one_process_has_no_interval_and_says_so() -> None:
    found = compare_records([record("cpu-baseline", 85, 0.66), record("cpu-x", 40, 0.66)])
    fast = row(found, "cpu-x")
    assert fast.speedup == pytest.approx(85 / 40, rel=0.1)
    assert (fast.speedup_low, fast.n) == (None, 1)
    assert any("n=1" in text for text in found.cautions)
    assert "no interval" in found.headlines[0].sentence


def test_without_a_baseline_there_is_no_speed_up_and_a_sentence_says_so() -> None:
    runs = [broken("cpu-baseline", "failed", "hung past its timeout"), record("cpu-x", 40, 0.66)]
    found = compare_records(runs)
    assert row(found, "cpu-x").speedup is None
    assert row(found, "cpu-x").epoch_s is not None
    assert troubles(found)[0] == (("cpu-baseline",), "failed", "hung past its timeout")
    assert "no speed-up" in found.headlines[0].sentence


@pytest.mark.parametrize("times", [(), (0.0, math.inf)])
def test_epochs_that_do_not_count_give_no_time(times: tuple[float, ...]) -> None:
    unkept = tuple(e.model_copy(update={"kept": False}) for e in epochs(40, 0.66))
    bad = tuple(EpochRecord(index=i, epoch_s=t, samples=10) for i, t in enumerate(times))
    odd = RunRecord(status="done", spec=spec("cpu-x"), epochs=bad or unkept)
    found = row(compare_records([record("cpu-baseline", 85, 0.66), odd]), "cpu-x")
    assert (found.status, found.epoch_s, found.error) == ("done", None, "no epoch was kept")


def test_a_stand_in_is_marked_and_not_judged() -> None:
    found = compare(ladder("synthetic", "generated"), records())
    assert {r.verdict for r in found.rows} == {"not judged"}
    assert not any(h.real_data for h in found.headlines)
    assert "not judged, the data is a stand-in" in found.headlines[0].sentence


def test_a_baseline_below_the_floor_is_said_with_both_numbers() -> None:
    found = compare(ladder(floor=0.9), records())
    assert any("66." in c and "90.0 %" in c for c in found.cautions)


def test_share_of_the_ceiling(example: Comparison) -> None:
    base = row(example, "cpu-baseline")
    assert base.ceiling_share == pytest.approx(base.samples_per_s * 0.2184e9 / 223e9)
    assert row(example, "cpu-dead-taps").ceiling_note == "ceiling underestimated"
    assert row(example, "cpu-bf16").ceiling_share < 1


@pytest.mark.parametrize(("device", "ceilings"), [("cpu", 1), ("cuda", 4)])
def test_several_ranks_are_said_and_have_a_gpu_each(device: str, ceilings: int) -> None:
    several = record("ddp", 20)
    assert several.spec is not None
    on = several.spec.model_copy(update={"device": device})
    found = compare_records([record("cpu-baseline", 85), several.model_copy(update={"ranks": 4, "spec": on})])
    own = row(found, "ddp")
    assert own.ceiling_share == pytest.approx(own.samples_per_s * 0.2184e9 / (ceilings * 223e9))
    assert "as fast as cpu-baseline on 4 ranks (" in found.headlines[0].sentence


def test_parts_add_up_to_one(example: Comparison) -> None:
    for found in example.rows:
        assert not found.parts or sum(found.parts.values()) == pytest.approx(1)
    over = record("cpu-baseline", 10).model_copy(
        update={"epochs": (EpochRecord(index=0, epoch_s=1.0, samples=1, parts_s={"data": 3.0, "forward": 1.0}),)}
    )
    assert row(compare_records([over]), "cpu-baseline").parts == {"data": 0.75, "forward": 0.25}


def test_time_to_accuracy(example: Comparison) -> None:
    base, best = row(example, "cpu-baseline"), row(example, "cpu-optimized")
    assert best.time_to_accuracy_s < base.time_to_accuracy_s


def test_records_without_a_spec_get_names() -> None:
    bare = RunRecord(status="done", epochs=epochs(10, 0.5))
    found = compare_records([bare, bare.model_copy(update={"epochs": epochs(5, 0.5)})])
    assert [r.variant for r in found.rows] == ["run-1", "run-2"]
    assert "the workload's own data, 4 counted epochs a process" in words.conditions(found.conditions, 0)
    assert row(found, "run-2").speedup == pytest.approx(2, rel=0.1)
    assert row(found, "run-2").verdict == "not judged"


def test_left_out_by_the_worker_and_never_run() -> None:
    plan = LadderRecord(
        id="l",
        workload="cifar",
        preset="quick",
        device="cpu",
        data=data(),
        rungs=(Rung(variant="cpu-baseline"), Rung(variant="cpu-never"), Rung(variant="cpu-x")),
        left_out=(LeftOut(variant="cpu-x", reason="planned out"),),
    )
    found = compare(plan, [broken("cpu-never", "left_out", "bf16 brought 0.8x in the probe")])
    assert row(found, "cpu-never").reason == "bf16 brought 0.8x in the probe"
    assert row(found, "cpu-x").reason == "planned out"
    assert row(found, "cpu-baseline").reason == "no record of it was found"


def test_it_survives_json(example: Comparison) -> None:
    again = Comparison.model_validate_json(example.model_dump_json(by_alias=True))
    assert again == example
    assert again.schema_ == "laptime.comparison/1"


def test_a_thousand_records_draw_once_for_each_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    resample = Bootstrap._resample
    monkeypatch.setattr(Bootstrap, "_resample", lambda self, *a: drawn.append(a) or resample(self, *a))
    runs = [record(f"v{v}", 50 + v % 7, 0.66, r) for v in range(100) for r in range(10)]
    assert len(compare_records(runs).rows) == 100
    assert len(drawn) == 100


def test_importing_it_reaches_nothing_heavy() -> None:
    code = (
        "import sys; from laptime.compare import comparison, write; "
        "print([m for m in ('torch', 'mlflow', 'numpy', 'scipy', 'matplotlib', 'jinja2') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_peer_stands_in_the_table_and_is_no_headline() -> None:
    found = compare_records([record("cpu-baseline", 85), record("cpu-optimized", 40), record("peer-expert", 20)])
    assert row(found, "peer-expert").speedup == pytest.approx(4.25, rel=0.05)
    assert {h.variant for h in found.headlines if h.kind == "fastest"} == {"cpu-optimized"}


def test_what_was_seen_beside_a_run_is_a_caution() -> None:
    shared = record("cpu-optimized", 40).model_copy(update={"cautions": ("H200 was in use by another process",)})
    found = compare_records([record("cpu-baseline", 85), shared])
    assert "cpu-optimized: H200 was in use by another process." in found.cautions


def compiled(seconds: float, compile_s: float, repeat: int) -> RunRecord:
    done = CompileRecord(graphs=2, recompiles=1, cache_hits=repeat)
    return record("cpu-compile", seconds, 0.66, repeat, ("compile",)).model_copy(
        update={"compile_s": compile_s, "compilation": done}
    )


@pytest.mark.parametrize(("seconds", "epochs_", "said"), [(60.0, 2, "pays after 2 epochs"), (90.0, None, "never pays")])
def test_compilation_is_held_against_what_an_epoch_saves(seconds, epochs_, said) -> None:
    on = [record("cpu-baseline", 85, 0.66, r) for r in range(3)]
    runs = [*on, *(compiled(seconds, 40.0 / (r + 1), r) for r in range(3))]
    rungs = (Rung(variant="cpu-baseline"), Rung(variant="cpu-compile", on="cpu-baseline", adds="compile"))
    found = compare(ladder().model_copy(update={"rungs": rungs, "left_out": ()}), runs)
    mine = row(found, "cpu-compile")
    assert (mine.compile_s, mine.break_even_on) == (40.0, "cpu-baseline")
    assert mine.break_even_epochs == epochs_
    for text in (to_markdown(found), to_html(found, None, runs), printed(found)):
        assert said in " ".join(text.split())
        assert "recompilations 1" in " ".join(text.split())


def printed(found: Comparison) -> str:
    text = io.StringIO()
    Console(width=120, file=text).print(to_terminal(found, 120))
    return text.getvalue()


def test_what_each_part_is_worth_stands_in_every_report() -> None:
    worth = {"bf16": 24.0, "threads": 12.5, "resident": 9.0}
    names = ("resident", "threads", "bf16", "products")
    runs = [record("cpu-baseline", 85, 0.66, r) for r in range(3)]
    runs += [record("cpu-optimized", 12.5, 0.74, r, names) for r in range(3)]
    for name, seconds in worth.items():
        rest = tuple(n for n in names if n != name)
        runs += [record(f"cpu-optimized-without-{name}", seconds, 0.74, r, rest) for r in range(3)]
    runs.append(broken("cpu-optimized-without-products", "failed", "boom", names[:3]))
    left = Dropped(name="keep-pages", with_s=13.0, without_s=12.0, reason="13 s with it, 12 s without")
    found = compare(ladder().model_copy(update={"rungs": (), "left_out": (), "dropped": (left,)}), runs)
    assert {p.part: p.worth for p in found.parts} == {
        "bf16": "earns its place",
        "threads": "within noise",
        "resident": "costs",
        "products": "needed",
        "keep-pages": "left",
    }
    assert found.parts[0].part == "bf16"
    assert found.parts[0].ratio_low > 1.5
    for text in (to_markdown(found), to_html(found, None, runs), printed(found)):
        assert "What each part is worth" in text
        for said in ("earns its place", "within noise", "costs", "needed: boom", "left: 13 s with it"):
            assert said in " ".join(text.split())
    assert "cpu-optimized-without-threads" not in {r.variant for r in found.drawn}


def test_a_part_that_costs_time_earns_its_place_by_quality() -> None:
    runs = [record("cpu-baseline", 85, 0.66, r) for r in range(3)]
    runs += [record("cpu-optimized", 12.5, 0.74, r, ("large-batch",)) for r in range(3)]
    runs += [record("cpu-optimized-without-large-batch", 11.0, 0.66, r) for r in range(3)]
    (part,) = compare_records(runs).parts
    assert part.ratio < 1
    assert part.quality_points == pytest.approx(-8.0)
    assert part.worth == "earns its place"
