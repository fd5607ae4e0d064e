from __future__ import annotations

import pytest
from tracking_samples import MemoryStore, a_ladder

from laptime.records import Finding, Measured, RuleHistory
from laptime.tracking.publish import ladder_key, ladder_started
from laptime.tracking.rule_history import MEASURED, PREDICTED, RULE, advice_verified, histories, rule_history

FOUND = Finding(
    id="hot-operator/aten::conv 2d",
    what="Convolutions take half of the step.",
    step_ms_now=100,
    step_ms_expected=(60, 80),
    gain=(0.2, 0.4),
    variant="cpu-a+channels-last",
)


def told(rule: str, predicted: float, measured: float | None) -> tuple[dict[str, str], dict[str, float]]:
    return {RULE: rule}, {PREDICTED: predicted} | ({} if measured is None else {MEASURED: measured})


def test_rules_are_counted_apart_and_a_failed_remedy_was_tried_without_being_faster() -> None:
    found = histories(
        [
            told("workers", 0.3, 0.28),
            told("workers", 0.3, 0.2),
            told("workers", 0.3, -0.1),
            told("workers", 0.3, None),
            told("compile", 0.5, None),
            ({"variant": "of something else"}, {}),
        ]
    )
    assert (found["workers"].tried, found["workers"].faster) == (4, 2)
    assert found["workers"].error == pytest.approx(0.1)
    assert found["compile"] == RuleHistory(tried=1, faster=0, error=None)
    assert set(found) == {"workers", "compile"}


def test_a_verified_finding_is_a_run_below_its_ladder() -> None:
    store, ladder = MemoryStore(), a_ladder()
    ladder_started(store, ladder)
    measured = Measured(gain=0.25, gain_low=0.2, gain_high=0.3, n=3, quality_kept=True)
    advice_verified(store, ladder, "cpu-a", FOUND.model_copy(update={"measured": measured}))
    (key,) = [k for k in store.created if k != ladder_key(ladder)]
    assert key == f"{ladder.id}/advice/cpu-a/hot-operator/aten::conv_2d"
    run = store.runs[f"id-{key}"]
    start = run["start"]
    assert (start.parent, start.experiment) == (ladder_key(ladder), "cifar")
    assert {"laptime.kind": "advice", "laptime.rule": "hot-operator"}.items() <= start.tags.items()
    assert start.params[RULE] == "hot-operator"
    figures = {name: float(value) for name, value, *_ in run["metrics"]}
    assert figures[PREDICTED] == pytest.approx(0.3)
    assert (figures[MEASURED], figures[f"{MEASURED}_low"], figures["advice_quality_kept"]) == (0.25, 0.2, 1.0)
    assert run["status"] == "FINISHED"


def test_a_failed_remedy_is_a_failed_run_with_its_reason_and_an_unverified_one_is_none() -> None:
    store, ladder = MemoryStore(), a_ladder()
    ladder_started(store, ladder)
    advice_verified(store, ladder, "cpu-a", FOUND)
    assert len(store.created) == 1
    advice_verified(store, ladder, "cpu-a", FOUND.model_copy(update={"measured": Measured(error="it was wrong")}))
    run = store.runs[f"id-{store.created[-1]}"]
    assert run["status"] == "FAILED"
    assert run["start"].tags["laptime.error"] == "it was wrong"
    assert MEASURED not in {name for name, *_ in run["metrics"]}


def test_a_store_that_is_not_there_yet_or_does_not_answer_costs_no_advice(tmp_path) -> None:
    said: list[str] = []
    assert rule_history(f"sqlite:///{tmp_path / 'none.db'}", said.append) == {}
    assert not said
    assert not (tmp_path / "none.db").exists()
    assert rule_history("http://127.0.0.1:9", said.append) == {}
    assert rule_history("ftp://nowhere", said.append) == {}
    assert [s.startswith("Advice is given without its rules' record: ") for s in said] == [True, True]
