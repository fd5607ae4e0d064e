"""What is asked of a search: a time with its unit, nothing beside it that it decides itself, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.conftest import make_data_spec
from tests.unit.test_commands import typed

from laptime.catalogue import find_preset, find_workload
from laptime.errors import UsageError
from laptime.ladder import opening, probing
from laptime.ladder.opening import plan_of
from laptime.ladder.request import kept_request, make_request, make_spec, settled_preset
from laptime.places import Places
from laptime.records import Machine, ProbeRecord, write_json
from laptime.variants import resolve

FULL = find_preset(find_workload("cifar"), "full")


@pytest.mark.parametrize(("text", "seconds"), [("20m", 1200.0), ("90s", 90.0), ("1.5h", 5400.0), (600, 600.0)])
def test_a_budget_is_a_time(text, seconds):
    request = make_request(budget=text)
    assert request.budget == seconds
    assert make_request(**kept_request(request)).budget == seconds  # as a search is gone on with


@pytest.mark.parametrize("text", ["0", "-5m", "soon", "20 minutes", "", "1e3s", "infm"])
def test_a_budget_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match=r"--budget: must be a duration above 0, as 15m, 900s or 1h \(given"):
        make_request(budget=text)
    with pytest.raises(UsageError, match="--budget"):
        typed("tune", "cifar", "--budget", text)


@pytest.mark.parametrize(
    "more", [{"variants": "cpu-resident"}, {"ablation": True}, {"verify_advice": True}, {"verify_most": "all"}]
)
def test_what_a_search_decides_itself_is_not_asked_for_beside_it(more):
    with pytest.raises(UsageError, match="--budget has a search find what to try"):
        make_request(budget="20m", **more)


def test_a_search_has_no_rungs_and_profiles_what_it_compares():
    request = make_request(budget="20m", preset="full")
    preset = settled_preset(request)
    assert (preset.rungs, preset.ablation, preset.parallel) == ((), False, False)
    assert (preset.epochs, preset.repeats, preset.limit_train) == (FULL.epochs, FULL.repeats, FULL.limit_train)
    slow = make_request(budget="20m", workload="eurosat")
    data = make_data_spec(train=64, test=20)
    tuned = replace(resolve("cpu-optimized"), name="cpu-tuned")
    assert make_spec(slow, tuned, data, 0).profile == "full"


def test_what_a_search_found_is_asked_for_by_its_list():
    with pytest.raises(UsageError, match=r"'cpu-tuned.flip' is what one search found, .* its list, --variant cpu-b"):
        resolve("cpu-tuned+flip")


def test_a_search_leaves_out_what_can_not_be_had_alone():
    probe = ProbeRecord(machine=Machine(cores=2), gains={"bf16": 0.9}, refusals={"lightning": "not installed"})
    data = make_data_spec(train=1000, test=500)
    ladder = plan_of(make_request(), data, "cpu", probe)
    search = plan_of(make_request(budget="20m"), data, "cpu", probe)
    assert {o.variant for o in search.left_out} == {"cpu-bf16", "cpu-lightning"}
    assert {o.variant for o in ladder.left_out} > {o.variant for o in search.left_out}
    assert (search.rungs, search.parallel, search.adaptive) == ((), (), True)


def test_a_search_waits_for_no_probe_that_takes_long_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(probing, "missing_compiler", lambda _: None)
    asked = []

    def probed(_probe, what, _places, _say) -> ProbeRecord:
        asked.append(what)
        return ProbeRecord(gains={"compile": 1.4})

    monkeypatch.setattr(probing, "_new", probed)
    quick = ProbeRecord(machine=Machine(fingerprint="f"))
    ladder, places = ("cifar", "cpu", find_preset(find_workload("cifar"), "quick")), Places(tmp_path)
    short = opening.probe_slow_rungs(quick, ladder, places, budget_s=900.0)
    assert short.refusals == {
        "compile": "its probe takes up to 10 minutes, more than half of the budget of 15 minutes: give a larger one"
    }
    assert not asked
    assert opening.probe_slow_rungs(quick, ladder, places, budget_s=1200.0).gains == {"compile": 1.4}
    assert len(asked) == 1
    kept, _ = probing._place(quick, ("cifar", "cpu", "compile"), places)
    write_json(kept, ProbeRecord(gains={"compile": 1.2}))
    assert opening.probe_slow_rungs(quick, ladder, places, budget_s=60.0).gains == {"compile": 1.2}


@pytest.mark.parametrize(("given", "seconds"), [("20m", 1200.0), (1200, 1200.0), ("1200", 1200.0), (90.5, 90.5)])
def test_a_flow_takes_a_budget_as_text_and_as_a_number(given, seconds):
    from flows.optimize import optimize

    budget = optimize.validate_parameters({"budget": given})["budget"]
    assert make_request(budget=budget).budget == seconds
