"""What a search may change: other options, parts more, parts less; and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from laptime.catalogue import LADDERS, OPTIMIZATIONS, class_of, combine, find_optimization, parse_optimization
from laptime.ladder.plan import Plan
from laptime.records import ProbeRecord
from laptime.tune.moves import Around, advised_move, moves_from
from laptime.variants import baseline_of, resolve


def around(device="cpu", refused=(), probe=None, **more) -> Around:
    plan = Plan(device, (), (baseline_of(device),), tuple(refused), probe=probe or ProbeRecord())
    return Around(**{"plan": plan, "cores": 2, "samples": 5000, "batch": 32, "workload": "cifar", **more})


def chosen(text: str):
    return combine((), *map(parse_optimization, text.split("+"))) if text else ()


def texts(text: str, at: Around | None = None) -> list[str]:
    return [move.text for move in moves_from(chosen(text), at or around())]


def options_tried(text: str, at: Around | None = None) -> list[str]:
    return [t for t in texts(text, at) if t[0] not in "+-"]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("large-batch", ["large-batch:size=1024", "large-batch:size=256"]),
        ("large-batch:size=1024", ["large-batch:size=512"]),  # 2048 would be three steps of 5000 samples
        ("large-batch:size=700", ["large-batch:size=1024", "large-batch:size=512"]),
        ("large-batch:size=64", ["large-batch:size=128"]),  # the baseline's batch is 32
        ("threads", ["threads:count=1"]),
        ("threads:count=1", ["threads:count=2"]),
        ("products", ["products:largest=16", "products:largest=4"]),
        ("resident", []),
    ],
)
def test_the_neighbours_of_an_option_are_tried_as_far_as_they_fit(part, expected):
    assert options_tried(part) == expected


def test_an_option_keeps_the_others_beside_it():
    found = moves_from(chosen("large-batch:schedule=linear"), around())
    (move,) = [m for m in found if m.text == "large-batch:size=1024"]
    assert move.after == chosen("large-batch:schedule=linear:size=1024")
    assert move.klass == "statistical"


def test_a_gpu_tries_its_own_sizes():
    assert options_tried("large-batch", around("cuda", samples=50_000)) == [
        "large-batch:size=4096",
        "large-batch:size=1024",
    ]


def test_parts_more_are_the_rungs_that_can_make_an_epoch_faster():
    more = {t[1:] for t in texts("") if t[0] == "+"}
    assert {"resident", "threads", "bf16", "large-batch", "progressive-resizing", "compile"} <= more
    for name in more:
        entry = find_optimization(name.partition(":")[0])
        assert "cpu" in entry.devices
        assert entry.workload in ("", "cifar")
        assert (entry.only_shown, entry.alone, entry.for_quality) == (False, False, False)
        assert entry.klass != "model"
    assert not more & {"flip", "ema", "lightning", "pinned", "graph", "fixed-shapes", "sgd-nesterov", "ddp"}
    assert "fixed-shapes" in {t[1:] for t in texts("", around(workload="detection"))}
    assert {"graph", "pinned", "tf32", "compile:layout=channels-last"} <= {t[1:] for t in texts("", around("cuda"))}


def test_what_is_for_quality_alone_changes_what_is_learnt():
    assert {o.klass for o in OPTIMIZATIONS if o.for_quality} == {"statistical"}


def test_what_the_probe_or_the_workload_refuses_is_no_move():
    probe = ProbeRecord(refusals={"threads": "no"}, gains={"bf16": 0.9, "bf16@512": 1.5})
    at = around(refused=("resident",), probe=probe)
    found = texts("", at)
    assert not {"+resident", "+threads"} & set(found)
    assert "+bf16" not in found, "at the baseline's batch it is slower"
    assert "+bf16" in texts("large-batch", at)
    assert advised_move("threads", (), at) is None


def test_what_takes_the_place_of_another_part_comes_last():
    found = moves_from(chosen("resident+no-reads+products"), around())
    late = [m for m in found if m.replaces]
    assert {m.text: m.replaces for m in late} == {
        "+decoded": ("resident",),
        "+workers": ("resident",),
        "+compile": ("products",),
    }
    assert found[-len(late) :] == tuple(late)
    assert all(not {o.name for o in m.after} & set(m.replaces) for m in late)


def test_what_takes_the_place_of_another_part_is_undone_by_that_one_and_has_the_class_of_both():
    at = around("cuda")
    (half,) = [m for m in moves_from(chosen("bf16"), at) if m.text == "+fp16"]
    assert half.reverse == ("-fp16", "+bf16")
    assert (half.klass, half.back) == ("numeric", False)
    (graph,) = [m for m in moves_from(chosen("selective-backprop"), at) if m.text == "+graph"]
    assert (graph.klass, graph.learns_alike, graph.back) == ("statistical", False, True)


def test_each_part_can_be_left_out():
    found = [m for m in moves_from(chosen("resident+large-batch"), around()) if m.text[0] == "-"]
    assert [(m.text, m.back, m.klass) for m in found] == [
        ("-resident", True, "exact"),
        ("-large-batch", True, "statistical"),
    ]
    assert [m.after for m in found] == [chosen("large-batch"), chosen("resident")]
    assert [m.learns_alike for m in found] == [True, False]


@pytest.mark.parametrize("device", list(LADDERS))
def test_a_reverse_leads_back(device):
    whole, at = resolve(f"{device}-optimized", workload="cifar").optimizations, around(device, samples=50_000)
    for move in moves_from(whole, at):
        if move.reverse and not move.replaces:
            back = {m.text: m for m in moves_from(move.after, at)}[move.reverse[0]].after
            # A size that the device gives is written out on the way back.
            assert [o.name for o in back] == [o.name for o in whole], move.text
            assert {class_of(o) for o in back} == {class_of(o) for o in whole}


def test_advice_is_a_move_where_it_changes_something():
    at = around()
    assert advised_move("bf16", chosen("resident"), at).text == "+bf16"
    assert advised_move("bf16", chosen("resident"), at).reverse == ("-bf16",)
    assert advised_move("bf16", chosen("bf16"), at) is None
    assert advised_move("large-batch:size=512", chosen("large-batch"), at) is None  # what a CPU takes
    assert advised_move("threads:count=2", chosen("threads"), at) is None
    assert advised_move("large-batch:size=256", chosen("large-batch"), at).text == "large-batch:size=256"
    assert advised_move("large-batch:size=4096", chosen("large-batch"), at) is None, "two steps of 5000 samples"
    kept = advised_move("large-batch:size=256", chosen("large-batch:schedule=linear"), at)
    assert kept.after == chosen("large-batch:schedule=linear:size=256")
    assert kept.reverse == ("large-batch:size=512",)
    assert advised_move("ema", (), at) is None
    assert advised_move("ddp", (), at) is None
    assert advised_move("of-another-version", (), at) is None
    assert advised_move("pinned", (), replace(at)) is None
