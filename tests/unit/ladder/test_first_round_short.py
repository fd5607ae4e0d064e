"""A short ladder gives what changes what is learnt no rung: it is in `optimized` only where that keeps quality."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.unit.ladder.test_first_round import make_ladder
from tests.unit.ladder.turning import through

from laptime.catalogue import find_preset, find_workload
from laptime.compare.markdown import to_markdown
from laptime.ladder import ranks
from laptime.ladder.climb import Climb, standing_of
from laptime.ladder.plan import make_plan
from laptime.launchers.base import Hooks
from laptime.records import ProbeRecord, read_ladder

QUICK = find_preset(find_workload("cifar"), "quick")


def seconds(names) -> float:
    return 100.0 * 0.8 ** len(names)


def of_batch(with_it):
    """The accuracy by seed (0, then those of more trainings) of what has the large batch and of what has not."""

    def accuracy(spec) -> float:
        mine = with_it if any(o.name == "large-batch" for o in spec.optimizations) else (0.8, 0.8, 0.8)
        return dict(zip((0, 2, 3), mine, strict=True)).get(spec.seed, mine[0])

    return accuracy


def quick(tmp_path, monkeypatch, accuracy, probe=None, real=True, **options):
    options = {"preset": "quick", "epochs": 2, "repeats": 2, **options}
    ladder = make_ladder(tmp_path, monkeypatch, seconds, accuracy, **options)
    ladder.plan = make_plan("cpu", QUICK, None, probe or ProbeRecord(gains={"bf16": 1.5}))
    if not real:
        data = ladder.record.data.model_copy(update={"kind": "synthetic"})
        ladder.record = ladder.record.model_copy(update={"data": data})
    return ladder


def names_in(ladder, variant="cpu-optimized"):
    return {o.name for o in ladder.variants[variant].optimizations}


def left_out(ladder):
    return {o.variant: o.reason for o in ladder.record.left_out}


@pytest.mark.parametrize(
    ("accuracy", "real", "why"),
    [
        (0.38, True, "the baseline reached 38.0 %, below the floor of 60.0 %"),
        (0.8, False, "the data is a stand-in"),
        (float("nan"), True, "its quality was not measured"),
    ],
)
def test_what_can_not_be_judged_is_left_out_with_the_reason(tmp_path, monkeypatch, accuracy, real, why):
    ladder = quick(tmp_path, monkeypatch, lambda _: accuracy, real=real)
    told = through(ladder)
    assert "large-batch" not in names_in(ladder) | names_in(ladder, "cpu-optimized-without-dead-taps")
    assert {"dead-taps", "products", "bf16", "keep-pages"} <= names_in(ladder)
    reason = left_out(ladder)["cpu-large-batch"]
    assert why in reason
    assert "--preset full" in reason
    assert reason in to_markdown(ladder.compare()).replace("\\", "")
    assert not [t for t in told if "for its quality" in t], "there is nothing to train for"


@pytest.mark.parametrize(
    ("with_it", "seeds", "stays"),
    [
        ((0.8, 0.5, 0.5), 1, True),
        ((0.7905, 0.5, 0.5), 1, True),  # less than a point
        ((0.70, 0.8, 0.8), 1, False),
        ((0.77, 0.83, 0.5), 2, True),
        ((0.77, 0.76, 0.765), 3, False),
    ],
)
def test_where_it_can_be_judged_whole_trainings_decide(tmp_path, monkeypatch, with_it, seeds, stays):
    ladder = quick(tmp_path, monkeypatch, of_batch(with_it))
    told = through(ladder)
    assert ("large-batch" in names_in(ladder)) is stays
    assert ("cpu-large-batch" in left_out(ladder)) is not stays
    assert len([t for t in told if "for its quality" in t]) == 2 * (seeds - 1)
    mean = 100 * sum(with_it[:seeds]) / seeds
    said = f"accuracy {mean:.1f} %, baseline 80.0 %"
    rung = next(r for r in ladder.record.rungs if r.variant == "cpu-optimized")
    assert said in (rung.reason if stays else left_out(ladder)["cpu-large-batch"])
    ran = [r.spec for r in ladder.runs if r.spec.variant == "cpu-optimized"]
    assert {frozenset(o.name for o in s.optimizations) for s in ran} == {frozenset(names_in(ladder))}
    assert [s.repeat for s in ran] == [0, 1]


def test_one_round_has_no_other_seeds_and_what_seems_to_lose_is_left_out(tmp_path, monkeypatch):
    ladder = quick(tmp_path, monkeypatch, of_batch((0.77, 0.8, 0.8)), repeats=1)
    assert not [t for t in through(ladder) if "for its quality" in t]
    assert "cpu-large-batch" in left_out(ladder)


def test_what_gains_only_at_the_large_batch_leaves_with_it(tmp_path, monkeypatch):
    late = ProbeRecord(gains={"bf16": 0.8, "bf16@512": 1.6})
    ladder = quick(tmp_path / "no", monkeypatch, lambda _: 0.38, late)
    through(ladder)
    assert not {"bf16", "large-batch"} & names_in(ladder)
    ladder = quick(tmp_path / "yes", monkeypatch, lambda _: 0.8, late)
    through(ladder)
    assert {"bf16", "large-batch"} <= names_in(ladder)


def test_an_optimized_variant_that_fails_is_not_run_again_without_it(tmp_path, monkeypatch):
    broken = {"status_of": lambda spec: "failed" if spec.variant == "cpu-optimized" else "done"}
    ladder = quick(tmp_path, monkeypatch, lambda _: 0.8, **broken)
    told = through(ladder)
    assert [t for t in told if t.startswith("cpu-optimized,")] == ["cpu-optimized, round 1 of 2"]
    assert "cpu-large-batch" not in left_out(ladder)


def test_a_full_ladder_and_a_search_are_as_they_were(tmp_path, monkeypatch):
    ladder = quick(tmp_path, monkeypatch, lambda _: 0.38)
    ladder.journal.close()
    plan = make_plan("cpu", find_preset(find_workload("cifar"), "full"), None, ProbeRecord())
    climb = Climb(plan, standing_of(plan.fixed[0], [], "accuracy"), None)
    assert not climb.untried_changes
    climb.plan = ladder.plan
    assert climb.untried_changes == ("large-batch",)


def test_a_short_ladder_that_is_cut_off_goes_on_to_the_same_end(tmp_path, monkeypatch):
    accuracy = of_batch((0.77, 0.76, 0.765))
    whole = quick(tmp_path / "whole", monkeypatch, accuracy)
    told = through(whole)
    for cut in range(4, len(told)):
        before = quick(tmp_path / f"cut{cut}", monkeypatch, accuracy)
        for turn in itertools.islice(before.turns(), cut):
            before.run(turn, Hooks())
        before.journal.close()
        turns = read_ladder(before.folder / "ladder.json").turns
        after = quick(tmp_path / f"cut{cut}", monkeypatch, accuracy, before=turns)
        assert through(after) == told
        assert left_out(after) == left_out(whole)
        assert after.record.rungs == whole.record.rungs


@pytest.mark.parametrize("parallel", [(), ("cpu-ddp-flat",)])
def test_where_nothing_joins_there_is_no_second_baseline_to_be_faster_by_chance(tmp_path, monkeypatch, parallel):
    monkeypatch.setattr(ranks, "device_count", lambda _: 2)
    ladder = make_ladder(tmp_path, monkeypatch, lambda names: 100.0 * 3.0 ** len(names))
    ladder.plan = replace(ladder.plan, parallel=parallel)
    told = through(ladder)
    assert not [t for t in told if "optimized" in t]
    assert "nothing that was tried" in left_out(ladder)["cpu-optimized"]
    rungs = {r.variant: r for r in ladder.record.rungs}
    assert [rungs[name].on for name in parallel] == ["cpu-baseline"] * len(parallel)
    assert ladder.exit_code() == 0
    found = ladder.compare()
    assert found.headlines[0].sentence == "Fastest: no variant is faster than cpu-baseline and not worse."
    assert found.row("cpu-optimized").status == "left_out"
