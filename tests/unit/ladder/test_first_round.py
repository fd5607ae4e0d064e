"""The first round and the ablation on a real ladder, with processes whose times are set."""

from dataclasses import replace

import pytest
from tests.unit.conftest import make_data_spec, make_ladder_record
from tests.unit.ladder.turning import through

from laptime.catalogue import LADDERS, find_preset, find_workload
from laptime.compare.load import load
from laptime.errors import UsageError
from laptime.ladder import ranks
from laptime.ladder import run as ladder_module
from laptime.ladder.plan import make_plan
from laptime.ladder.request import LadderRequest
from laptime.ladder.run import Ladder
from laptime.ladder.turn import in_round
from laptime.launchers.base import Hooks
from laptime.places import Places
from laptime.records import EpochRecord, ProbeRecord, RunRecord, write_json
from laptime.variants import resolve

FULL = find_preset(find_workload("cifar"), "full")
# What each optimization multiplies an epoch's seconds by; those not named lose.
WORTH = {"resident": 0.5, "dead-taps": 0.6, "bf16": 0.7, "threads": 0.95}


def make_ladder(
    tmp_path, monkeypatch, seconds_of, accuracy_of=lambda _: 0.8, status_of=lambda _: "done", before=None, **options
) -> Ladder:
    """A ladder whose processes take `seconds_of(names of the optimizations)` and reach `accuracy_of(spec)`.

    `before` is how many turns had ended where it is gone on with.
    """

    def launch(_launcher, spec, folder, _hooks):
        names = frozenset(o.name for o in spec.optimizations)
        epochs = tuple(
            EpochRecord(index=i, epoch_s=seconds_of(names), samples=100, test_accuracy=accuracy_of(spec))
            for i in range(spec.epochs)
        )
        status = status_of(spec)
        record = RunRecord(status=status, spec=spec, epochs=epochs, error=None if status == "done" else "it broke")
        write_json(folder / "record.json", record)
        return record

    monkeypatch.setattr(ladder_module, "launch", launch)
    request = LadderRequest(**{"preset": "full", "epochs": 3, "repeats": 2, **options})
    data = make_data_spec(train=1000, test=500)
    plan = make_plan("cpu", FULL, None, ProbeRecord(gains={"bf16": 1.5}))
    record = make_ladder_record(data=data, epochs=3, repeats=2, quality_floor=0.6)
    ladder = Ladder(request, record, plan, Places(tmp_path / "home"))
    ladder.folder, ladder.before = tmp_path / "ladder", before
    ladder.start()
    return ladder


def test_variants_on_several_ranks_come_last_on_the_list_that_was_kept(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, product)
    ladder.plan = replace(ladder.plan, parallel=("cpu-ddp-plain", "cpu-ddp-flat"))
    through(ladder)
    rungs = {r.variant: r for r in ladder.record.rungs}
    assert list(rungs)[-2:] == ["cpu-ddp-plain", "cpu-ddp-flat"]
    assert rungs["cpu-ddp-flat"].on == "cpu-optimized"
    assert {o.name for o in rungs["cpu-ddp-flat"].optimizations} == {*WORTH, "flat-reduce"}
    assert [r.spec.variant for r in ladder.runs].count("cpu-ddp-plain") == 2


def test_variants_that_the_launcher_or_the_batch_can_not_hold_are_left_out_of_a_ladder_that_goes_on(
    tmp_path, monkeypatch
):
    cases = (("process", 2, "--launcher process starts one rank"), ("auto", 20, "the batch of 32"))
    for launcher, cores, said in cases:
        # large-batch loses, so the plan's batch of 512 becomes one of 32.
        monkeypatch.setattr(ranks, "device_count", lambda _, cores=cores: cores)
        ladder = make_ladder(tmp_path / launcher, monkeypatch, product, ablation=False, launcher=launcher)
        ladder.plan = replace(ladder.plan, parallel=("cpu-ddp-plain",))
        through(ladder)
        (left,) = [o for o in ladder.record.left_out if o.variant == "cpu-ddp-plain"]
        assert said in left.reason
        assert "cpu-ddp-plain" not in {r.variant for r in ladder.record.rungs}
        assert [r.spec.variant for r in ladder.runs].count("cpu-optimized") == 2


def test_a_trial_is_not_shortened_where_epochs_differ_by_design(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, product)
    for name, epochs in (("flip", 2), ("progressive-resizing", 3), ("selective-backprop", 3)):
        turn = ladder.trial(resolve(f"cpu-baseline+{name}"))
        assert ladder.run(turn, Hooks()).spec.epochs == epochs
    ladder.journal.close()


def product(names) -> float:
    seconds = 100.0
    for name in names:
        seconds *= WORTH.get(name, 2.0)
    return seconds


def test_close_rungs_are_run_beside_the_best_once_more_outside_the_comparison(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, product, ablation=False)
    told = through(ladder)
    place = told.index("cpu-threads, round 1 of 2")
    assert told[place + 1 : place + 3] == ["cpu-resident, trial", "cpu-threads, trial"]
    assert [t for t in told if "trial" in t] == told[place + 1 : place + 3]
    assert all(r.spec.epochs == 2 and not r.spec.check for r in ladder.trials)
    assert {r.variant: r.joined for r in ladder.record.rungs}["cpu-threads"]
    names = [r.spec.variant for r in ladder.runs]
    assert max(map(names.count, names)) == 2
    _, found = load(ladder.folder)
    assert len(found) == len(ladder.runs)
    assert len(list((ladder.folder / "trials").rglob("record.json"))) == 2


def test_a_ladder_without_rungs_counts_to_what_it_runs(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, product, ablation=False)
    ladder.plan = replace(ladder.plan, rungs=(), parallel=())
    counted = []
    for turn in ladder.turns():
        counted.append((turn.variant, turn.number, turn.total))
        ladder.run(turn, Hooks())
    ladder.journal.close()
    names = ["cpu-baseline", "cpu-optimized", "cpu-optimized", "cpu-baseline"]
    assert counted == [(name, number, 4) for number, name in enumerate(names, 1)]


def test_a_machine_that_slows_down_from_process_to_process_is_not_held_against_the_last():
    names, took = ["a", "b", "c"], dict[str, float]()
    for number, name in enumerate(name for place in range(4) for name in in_round(names, place)):
        took[name] = took.get(name, 0.0) + 1 + 0.1 * number
    assert took == pytest.approx(dict.fromkeys(names, 4 * 1.55))


def test_each_part_is_left_out_in_turn_in_all_rounds(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, product)
    told = through(ladder)
    assert not ladder.record.dropped
    for name in WORTH:
        variant = f"cpu-optimized-without-{name}"
        assert [t for t in told if t.startswith(f"{variant},")] == [f"{variant}, round {r} of 2" for r in (1, 2)]
        assert {o.name for o in ladder.variants[variant].optimizations} == WORTH.keys() - {name}


def test_a_part_that_costs_leaves_before_the_later_rounds(tmp_path, monkeypatch):
    def seconds(names) -> float:
        # threads helped when it joined, and is in the way since bf16 came.
        return product(names) * (1.5 if {"threads", "bf16"} <= names else 1.0)

    ladder = make_ladder(tmp_path, monkeypatch, seconds)
    ladder.plan = make_plan("cpu", FULL, None, ProbeRecord())
    monkeypatch.setitem(WORTH, "bf16", 0.4)
    told = through(ladder)
    (dropped,) = ladder.record.dropped
    assert dropped.name == "threads"
    assert dropped.without_s < dropped.with_s
    assert f"{dropped.without_s:.3g} s without" in dropped.reason
    rest = {"resident", "dead-taps", "bf16"}
    assert {o.name for o in ladder.variants["cpu-optimized"].optimizations} == rest
    whole = next(r for r in ladder.record.rungs if r.variant == "cpu-optimized")
    assert {o.name for o in whole.optimizations} == rest
    assert "threads left" in whole.reason
    assert "cpu-optimized-without-threads" not in ladder.variants
    for name in rest:
        variant = f"cpu-optimized-without-{name}"
        assert {o.name for o in ladder.variants[variant].optimizations} == rest - {name}
    # All that is compared ran as it was fixed: one record a round, each with the lists of the ladder's rungs.
    lists = {r.variant: {o.name for o in r.optimizations} for r in ladder.record.rungs}
    for record in ladder.runs:
        assert {o.name for o in record.spec.optimizations} == lists[record.spec.variant]
    _, found = load(ladder.folder)
    assert sorted(r.spec.variant for r in found) == sorted(r.spec.variant for r in ladder.runs)
    assert [t for t in told if t == "cpu-optimized, round 1 of 2"] == ["cpu-optimized, round 1 of 2"] * 2

    worth = {p.part: p for p in ladder.compare().parts}
    assert worth["threads"].worth == "left"
    assert {worth[name].worth for name in rest} == {"earns its place"}
    assert worth["resident"].ratio == pytest.approx(2.0)


def test_of_two_parts_that_stand_for_each_other_only_one_leaves(tmp_path, monkeypatch):
    def seconds(names) -> float:
        pair = len(names & {"threads", "bf16"})
        rest = product(names - {"threads", "bf16"})
        return rest * (1.0, 0.5, 0.45 if "dead-taps" not in names else 0.6)[pair]

    ladder = make_ladder(tmp_path, monkeypatch, seconds)
    # bf16 joined beside threads when dead taps were not cropped yet.
    tried = ("threads", "bf16", "dead-taps")
    away = tuple(r for r in LADDERS["cpu"] if r not in tried)
    ladder.plan = replace(ladder.plan, rungs=tuple((r,) for r in tried), refused=away)
    through(ladder)
    assert [d.name for d in ladder.record.dropped] == ["threads"]
    assert {o.name for o in ladder.variants["cpu-optimized"].optimizations} == {"bf16", "dead-taps"}


def test_the_last_part_left_has_no_variant_without_it_that_still_holds_what_left(tmp_path, monkeypatch):
    ladder = make_ladder(tmp_path, monkeypatch, lambda names: 7.0 if names == {"bf16"} else 10.0 - len(names))
    away = tuple(r for r in LADDERS["cpu"] if r not in ("threads", "bf16"))
    ladder.plan = replace(ladder.plan, rungs=(("threads",), ("bf16",)), refused=away)
    through(ladder)
    assert [d.name for d in ladder.record.dropped] == ["threads"]
    assert {o.name for o in ladder.variants["cpu-optimized"].optimizations} == {"bf16"}
    assert not [name for name in ladder.variants if "without" in name]
    assert not [r.variant for r in ladder.record.rungs if "without" in r.variant]
    assert [p.part for p in ladder.compare().parts] == ["threads"]


def test_a_rung_that_its_probe_calls_hopeless_at_the_large_batch_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setitem(WORTH, "large-batch", 0.5)
    ladder = make_ladder(tmp_path, monkeypatch, product, ablation=False)
    gains = {"bf16": 1.5, "compile": 1.3, "compile@512": 0.1}
    ladder.plan = make_plan("cpu", FULL, None, ProbeRecord(gains=gains))
    told = through(ladder)
    assert not [t for t in told if t.startswith("cpu-compile")]
    assert [left.variant for left in ladder.record.left_out] == ["cpu-compile"]
    assert "a batch of 512" in ladder.record.left_out[0].reason


def test_the_optimized_variant_less_any_part_has_a_name():
    whole = {o.name for o in resolve("cpu-optimized").optimizations}
    for name in whole:
        found = resolve(f"cpu-optimized-without-{name}")
        assert {o.name for o in found.optimizations} == whole - {name}
    with pytest.raises(UsageError, match="cpu-optimized-without"):
        resolve("cpu-optimized-without-nothing")
