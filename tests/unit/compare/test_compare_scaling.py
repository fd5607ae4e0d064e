"""Throughput of several ranks over that of one, in data and in the three reports."""

import io

import pytest
from compare_examples import compare_records, record
from rich.console import Console

from laptime.compare.html import to_html
from laptime.compare.markdown import to_markdown
from laptime.compare.terminal import to_terminal
from laptime.spec import OptimizationSpec


def run(variant: str, seconds: float, *chosen: OptimizationSpec, ranks: int = 1):
    found = record(variant, seconds, 0.66)
    spec = found.spec.model_copy(update={"optimizations": chosen, "ranks": ranks})
    return found.model_copy(update={"spec": spec, "ranks": ranks})


RESIDENT = OptimizationSpec(name="resident")
BATCH = OptimizationSpec(name="large-batch", options={"size": 512, "schedule": "onecycle"})
PLAIN = OptimizationSpec(name="large-batch", options={"size": 512})
DDP = OptimizationSpec(name="ddp", options={"tuned": True})
WEAK = OptimizationSpec(name="flat-reduce", options={"scaling": "weak"})


@pytest.fixture(scope="module")
def compared():
    runs = [
        run("cpu-baseline", 80),
        run("cpu-resident", 20, RESIDENT),
        run("cpu-optimized", 40, RESIDENT, PLAIN),
        run("cpu-ddp-tuned", 25, RESIDENT, BATCH, DDP, ranks=2),
        run("cpu-ddp-flat", 10, BATCH, WEAK, ranks=4),
    ]
    return compare_records(runs), runs


def test_the_same_list_on_one_rank_is_the_reference_whatever_is_faster(compared):
    found = {s.variant: s for s in compared[0].scaling}
    assert set(found) == {"cpu-ddp-tuned", "cpu-ddp-flat"}
    tuned = found["cpu-ddp-tuned"]
    assert (tuned.ranks, tuned.kind, tuned.against, tuned.same_list) == (2, "strong", "cpu-optimized", True)
    assert tuned.gain == pytest.approx(1.6, rel=0.02)
    assert tuned.efficiency == pytest.approx(0.8, rel=0.02)


def test_what_a_run_settled_is_the_same_list_although_the_rung_was_recorded_before():
    workers, size = OptimizationSpec(name="workers"), OptimizationSpec(name="large-batch")
    chosen = (
        OptimizationSpec(name="workers", options={"count": 4}),
        OptimizationSpec(name="large-batch", options={"size": 512}),
    )
    whole = run("cpu-optimized", 40, workers, size).model_copy(update={"settled": chosen})
    several = run("cpu-ddp-tuned", 25, *chosen, DDP, ranks=2).model_copy(update={"settled": (*chosen, DDP)})
    other = run("cpu-large-batch", 20, OptimizationSpec(name="large-batch", options={"size": 256}))
    (found,) = compare_records([run("cpu-baseline", 80), other, whole, several]).scaling
    assert (found.against, found.same_list) == ("cpu-optimized", True)


def test_strong_and_weak_variants_of_one_list_stand_side_by_side():
    weak = OptimizationSpec(name="ddp", options={"tuned": True, "bucket_mb": 10, "scaling": "weak"})
    found = compare_records(
        [
            run("cpu-baseline", 80),
            run("cpu-optimized", 40, RESIDENT, BATCH),
            run("cpu-ddp-tuned", 25, RESIDENT, BATCH, DDP, ranks=2),
            run("cpu-ddp-tuned-weak", 22, RESIDENT, BATCH, weak, ranks=2),
        ]
    )
    shown = [(s.variant, s.kind, s.against, s.same_list, round(s.efficiency, 2)) for s in found.scaling]
    assert shown == [
        ("cpu-ddp-tuned", "strong", "cpu-optimized", True, 0.8),
        ("cpu-ddp-tuned-weak", "weak", "cpu-optimized", True, 0.91),
    ]
    rows = [line for line in to_markdown(found).splitlines() if "| 2 | strong |" in line or "| 2 | weak |" in line]
    assert [row.split(" | ")[2] for row in rows] == ["strong", "weak"]


def test_without_the_same_list_the_fastest_is_and_that_is_said(compared):
    flat = next(s for s in compared[0].scaling if s.variant == "cpu-ddp-flat")
    assert (flat.kind, flat.against, flat.same_list) == ("weak", "cpu-resident", False)
    assert flat.efficiency == pytest.approx(0.5, rel=0.02)
    assert "another list" in to_markdown(compared[0])


def test_all_reports_show_the_table_only_where_there_are_several_ranks(compared):
    comparison, runs = compared
    alone = compare_records(runs[:3])
    for several, one in (
        (to_markdown(comparison), to_markdown(alone)),
        (to_html(comparison, None, runs), to_html(alone, None, runs[:3])),
        (printed(comparison), printed(alone)),
    ):
        assert "Scaling" in several
        assert "efficiency" in several
        assert "Scaling" not in one


def printed(comparison) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(to_terminal(comparison, 160))
    return console.file.getvalue()
