"""A rung that changes what is learnt and seems to lose: other seeds decide, which the later rounds do not use."""

from __future__ import annotations

import itertools

import pytest
from tests.unit.ladder.test_first_round import WORTH, make_ladder, product
from tests.unit.ladder.turning import through

from laptime.ladder import run as ladder_module
from laptime.ladder.plan import make_plan
from laptime.launchers.base import Hooks
from laptime.records import ProbeRecord, read_ladder

# Of 500 test samples one training of each side tells five points.
SEEDS = (0, 2, 3)


def of_seeds(found, baseline=(0.8, 0.8, 0.8)):
    """The accuracy of what has the large batch, and of the baseline, by seed."""

    def accuracy(spec) -> float:
        by_seed = found if any(o.name == "large-batch" for o in spec.optimizations) else baseline
        return dict(zip(SEEDS, by_seed, strict=True)).get(spec.seed, 0.8)

    return accuracy


def the_ladder(tmp_path, monkeypatch, found, *, worth=0.5, **options):
    monkeypatch.setitem(WORTH, "large-batch", worth)
    ladder = make_ladder(tmp_path, monkeypatch, product, of_seeds(found), ablation=False, **options)
    ladder.plan = make_plan("cpu", ladder.preset, None, ProbeRecord(gains={"bf16": 1.5}))
    return ladder


def batch_of(ladder):
    return next(r for r in ladder.record.rungs if r.variant == "cpu-large-batch")


def of_quality(told: list[str]) -> list[str]:
    return [turn for turn in told if "for its quality" in turn]


@pytest.mark.parametrize(
    ("found", "joined", "said", "seeds"),
    [
        ((0.795, 0.5, 0.5), True, "faster", 1),
        ((0.70, 0.8, 0.8), False, "fast, but worse,", 1),
        ((0.775, 0.80, 0.81), True, "faster", 3),
        ((0.77, 0.83, 0.5), True, "faster", 2),
        ((0.77, 0.76, 0.765), False, "fast, but worse,", 3),
        ((0.77, 0.81, 0.76), False, "fast, but perhaps worse,", 3),
    ],
)
def test_other_seeds_decide_what_seems_to_lose_more_than_a_point(tmp_path, monkeypatch, found, joined, said, seeds):
    ladder = the_ladder(tmp_path, monkeypatch, found)
    told = through(ladder)
    rung = batch_of(ladder)
    assert rung.joined is joined
    assert rung.reason.startswith(f"{said} in the first round: ")
    mean = sum(found[:seeds]) / seeds
    assert f"; accuracy {100 * mean:.1f} %, baseline 80.0 %" in rung.reason
    assert (f"{seeds} seeds each" in rung.reason) == (seeds > 1)
    names = [n for _ in range(seeds - 1) for n in ("cpu-baseline", "cpu-large-batch")]
    assert of_quality(told) == [f"{n}, a whole training for its quality, of another seed" for n in names]
    assert [r.spec.seed for r in ladder.verified] == [s for s in SEEDS[1:seeds] for _ in range(2)]
    assert all(len(r.epochs) == 3 for r in ladder.verified)
    # What chose is not what compares.
    assert {r.spec.seed for r in ladder.runs} == {0, 1}
    whole = {o.name for o in ladder.variants["cpu-optimized"].optimizations}
    assert ("large-batch" in whole) == joined


def test_a_seed_that_fails_leaves_the_rung_out_and_a_baseline_s_leaves_the_first_to_decide(tmp_path, monkeypatch):
    def broken(side):
        return lambda spec: "failed" if spec.seed == 2 and bool(spec.optimizations) == side else "done"

    ladder = the_ladder(tmp_path / "own", monkeypatch, (0.77, 0.8, 0.8), status_of=broken(True))
    through(ladder)
    assert not batch_of(ladder).joined
    assert batch_of(ladder).reason.startswith("fast, but not of every seed, in the first round: ")
    assert batch_of(ladder).reason.endswith("its whole training failed: it broke")
    ladder = the_ladder(tmp_path / "base", monkeypatch, (0.77, 0.8, 0.8), status_of=broken(False))
    assert of_quality(through(ladder)) == ["cpu-baseline, a whole training for its quality, of another seed"]
    assert batch_of(ladder).reason.startswith("fast, but perhaps worse, in the first round: ")


@pytest.mark.parametrize(
    ("worth", "options", "said"),
    [
        (0.5, {"repeats": 1}, "faster"),
        (1.2, {}, "slower"),
        # What must be better to join has no use for them: it isn't by the first.
        (0.99, {}, "no faster, and not better,"),
    ],
)
def test_what_other_seeds_can_not_change_has_none(tmp_path, monkeypatch, worth, options, said):
    ladder = the_ladder(tmp_path, monkeypatch, (0.77, 0.8, 0.8), worth=worth, **options)
    assert not of_quality(through(ladder))
    assert batch_of(ladder).joined is (said == "faster")
    assert batch_of(ladder).reason.startswith(said)


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_ladder_that_is_cut_off_between_seeds_goes_on_to_the_same_end(tmp_path, monkeypatch, place):
    whole = the_ladder(tmp_path / "whole", monkeypatch, (0.775, 0.80, 0.81))
    told = through(whole)
    cut = [i for i, turn in enumerate(told) if "for its quality" in turn][place]
    before = the_ladder(tmp_path / "cut", monkeypatch, (0.775, 0.80, 0.81))
    for turn in itertools.islice(before.turns(), cut + 1):
        before.run(turn, Hooks())
    assert before.journal is not None
    before.journal.close()
    left = read_ladder(before.folder / "ladder.json")
    after = the_ladder(tmp_path / "cut", monkeypatch, (0.775, 0.80, 0.81), before=left.turns)
    launch, started = ladder_module.launch, []

    def noted(launcher, spec, folder, hooks):
        started.append(folder.name)
        return launch(launcher, spec, folder, hooks)

    monkeypatch.setattr(ladder_module, "launch", noted)
    assert through(after) == told
    assert len(started) == len(told) - cut - 1
    assert batch_of(after) == batch_of(whole)


@pytest.mark.parametrize(("commonest", "seeds"), [(0.2, 1), (0.75, 3)])
def test_half_a_point_is_worth_other_seeds_where_five_have_been_learnt(tmp_path, monkeypatch, commonest, seeds):
    ladder = the_ladder(tmp_path, monkeypatch, (0.795, 0.795, 0.795))
    uneven = ladder.record.data.model_copy(update={"commonest": commonest})
    ladder.record = ladder.record.model_copy(update={"data": uneven})
    assert len(of_quality(through(ladder))) == 2 * (seeds - 1)
    assert batch_of(ladder).joined is (seeds == 1)


@pytest.mark.parametrize(("reached", "stays"), [(None, True), (float("nan"), True), (0.7, True), (0.8, False)])
def test_a_part_that_costs_stays_where_without_it_a_training_comes_to_less_or_no_number(
    tmp_path, monkeypatch, reached, stays
):
    def lacking(names) -> bool:
        return "keep-pages" in names and "large-batch" not in names

    def seconds(names) -> float:
        # The batch halves the time, and keep-pages takes a fifth off that; without the batch it takes four fifths.
        share = 0.2 if lacking(names) else 0.8 if "keep-pages" in names else 1.0
        return share * product(names - {"keep-pages"})

    def accuracy(spec):
        return reached if lacking({o.name for o in spec.optimizations}) else 0.8

    monkeypatch.setitem(WORTH, "large-batch", 0.5)
    ladder = make_ladder(tmp_path, monkeypatch, seconds, accuracy)
    through(ladder)
    assert ("large-batch" in {o.name for o in ladder.variants["cpu-optimized"].optimizations}) is stays
    assert ("large-batch" in [d.name for d in ladder.record.dropped]) is not stays
