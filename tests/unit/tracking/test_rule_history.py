from __future__ import annotations

import pytest
from tracking_samples import MemoryStore, a_ladder

from laptime.records import Finding, Measured, RuleHistory
from laptime.tracking.outage import Outage
from laptime.tracking.publish import ladder_key, ladder_started
from laptime.tracking.rule_history import (
    LAST,
    MACHINE,
    MEASURED,
    OWN,
    PREDICTED,
    QUALITY,
    RULE,
    advice_verified,
    below_ladder,
    histories,
    rule_history,
)

FOUND = Finding(
    id="hot-operator/aten::conv 2d",
    what="Convolutions take half of the step.",
    step_ms_now=100,
    step_ms_expected=(60, 80),
    gain=(0.2, 0.4),
    variant="cpu-a+channels-last",
)


def told(rule: str, predicted: float, measured: float | None) -> tuple[dict[str, str], dict[str, float]]:
    figures = {OWN: predicted, PREDICTED: predicted}
    return {RULE: rule}, figures | ({} if measured is None else {MEASURED: measured})


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
    assert (found["workers"].compared, found["workers"].here) == (3, False)
    assert set(found) == {"workers", "compile"}


def scaled(own: float, predicted: float, measured: float, machine: str = "") -> tuple[dict[str, str], dict[str, float]]:
    """A proposal whose range had been scaled by its rule's past."""
    return {RULE: "workers", MACHINE: machine}, {OWN: own, PREDICTED: predicted, MEASURED: measured}


def test_the_ratio_is_of_what_the_rule_itself_said() -> None:
    # Of what was shown after the past had scaled it the ratio would be 1, and what was learnt would be forgotten.
    found = histories([scaled(0.2, 0.26, 0.26), scaled(0.3, 0.4, 0.42), scaled(0.1, 0.13, 0.12)])["workers"]
    assert (found.ratio, found.compared) == (pytest.approx(1.3), 3)
    assert found.error == pytest.approx(0.01)


def test_what_rules_of_earlier_versions_said_scales_nothing() -> None:
    labels, figures = told("workers", 0.2, 0.3)
    old = labels, {name: value for name, value in figures.items() if name != OWN}
    found = histories([old, scaled(0.2, 0.3, 0.2), old])["workers"]
    assert (found.ratio, found.compared, found.tried, found.faster) == (pytest.approx(1.0), 1, 3, 3)
    assert histories([old])["workers"].ratio is None


def test_what_was_slower_brought_nothing_and_what_failed_says_nothing() -> None:
    found = histories([told("workers", 0.2, -0.4), told("workers", 0.2, 0.2), told("workers", 0.2, None)])["workers"]
    assert (found.ratio, found.compared) == (pytest.approx(0.5), 2)
    only = histories([told("compile", 0.2, None), told("zero", 0.0, 0.1)])
    assert [(h.ratio, h.compared) for h in only.values()] == [(None, 0), (None, 0)]


def test_a_rule_that_has_changed_is_judged_by_its_last_proposals() -> None:
    rows = [told("workers", 0.2, 0.2)] * LAST + [told("workers", 0.2, 0.4)] * 100
    found = histories(rows)["workers"]
    assert (found.ratio, found.compared, found.tried) == (pytest.approx(1.0), LAST, LAST + 100)


def test_the_last_proposals_are_counted_beside_all_where_there_are_more() -> None:
    right, wrong, failed = (told("workers", 0.2, measured) for measured in (0.2, -0.1, None))
    found = histories([wrong] * 10 + [right] * 4 + [failed] * 6 + [right] * 380)["workers"]
    assert (found.tried, found.faster, found.last, found.last_faster) == (400, 384, LAST, 4)
    few = histories([wrong] * 10 + [right] * 10)["workers"]
    assert (few.tried, few.faster, few.last) == (LAST, 10, 0)


def test_a_remedy_that_lost_quality_is_no_success() -> None:
    def judged(kept: float | None) -> tuple[dict[str, str], dict[str, float]]:
        labels, figures = told("batch-size", 0.3, 0.4)
        return labels, figures | ({} if kept is None else {QUALITY: kept})

    found = histories([judged(0.0), judged(1.0), judged(None)])["batch-size"]
    assert (found.tried, found.faster) == (3, 2)
    assert (found.ratio, found.compared) == (pytest.approx(4 / 3), 3)  # its time is as good as any


def test_what_was_measured_in_more_noise_than_was_promised_counts_nowhere() -> None:
    def within(measured: float, half: float) -> tuple[dict[str, str], dict[str, float]]:
        labels, figures = told("workers", 0.2, measured)
        return labels, figures | {f"{MEASURED}_low": measured - half, f"{MEASURED}_high": measured + half}

    # A fifth was promised: 3 % within 34 to each side may as well be that fifth.
    found = histories([within(0.03, 0.34), within(0.18, 0.05), within(0.22, 0.19)])["workers"]
    assert (found.tried, found.faster, found.compared) == (2, 2, 2)
    assert (found.ratio, found.error) == (pytest.approx(1.0), pytest.approx(0.02))
    assert histories([within(0.03, 0.34)])["workers"] == RuleHistory()


def test_a_machine_s_own_proposals_speak_for_it_from_four_on() -> None:
    others = [scaled(0.2, 0.2, 0.1, "b")] * 6
    few = histories([*[scaled(0.2, 0.2, 0.3, "a")] * 3, *others], "a")["workers"]
    assert (few.tried, few.ratio, few.here) == (9, pytest.approx(0.5), False)
    enough = histories([*[scaled(0.2, 0.2, 0.3, "a")] * 4, *others], "a")["workers"]
    assert (enough.tried, enough.ratio, enough.here) == (4, pytest.approx(1.5), True)
    nobody = histories([scaled(0.2, 0.2, 0.3)] * 5)["workers"]
    assert (nobody.tried, nobody.here) == (5, False)


def test_what_a_ladder_had_verified_before_a_break_does_not_change_what_it_proposes() -> None:
    labels, figures = scaled(0.2, 0.2, 0.1)
    mine = ({**labels, "laptime.key": "l/advice/cpu-a/workers"}, figures)
    others = ({**labels, "laptime.key": "l2/advice/cpu-a/workers"}, figures)
    assert histories([mine, others], but="l")["workers"].tried == 1
    assert histories([mine], but="l") == {}
    assert histories([mine, others])["workers"].tried == 2


def test_a_verified_finding_is_a_run_below_its_ladder() -> None:
    store, ladder = MemoryStore(), a_ladder()
    ladder_started(store, ladder)
    measured = Measured(gain=0.25, gain_low=0.2, gain_high=0.3, n=3, quality_kept=True)
    own = {"measured": measured, "own_gain": (0.15, 0.31)}
    advice_verified(store, below_ladder(ladder), "cpu-a", FOUND.model_copy(update=own))
    (key,) = [k for k in store.created if k != ladder_key(ladder)]
    assert key == f"{ladder.id}/advice/cpu-a/hot-operator/aten::conv_2d"
    run = store.runs[f"id-{key}"]
    start = run["start"]
    assert (start.parent, start.experiment) == (ladder_key(ladder), "cifar")
    assert {"laptime.kind": "advice", "laptime.rule": "hot-operator"}.items() <= start.tags.items()
    assert start.params[RULE] == "hot-operator"
    figures = {name: float(value) for name, value, *_ in run["metrics"]}
    assert figures[PREDICTED] == pytest.approx(0.3)
    assert figures[OWN] == pytest.approx(0.23)
    ends = [figures[f"{name}_{end}"] for name in (PREDICTED, OWN) for end in ("low", "high")]
    assert ends == pytest.approx([0.2, 0.4, 0.15, 0.31])
    assert (figures[MEASURED], figures[f"{MEASURED}_low"], figures["advice_quality_kept"]) == (0.25, 0.2, 1.0)
    assert run["status"] == "FINISHED"


def test_a_failed_remedy_is_a_failed_run_with_its_reason_and_an_unverified_one_is_none() -> None:
    store, ladder = MemoryStore(), a_ladder()
    ladder_started(store, ladder)
    advice_verified(store, below_ladder(ladder), "cpu-a", FOUND)
    assert len(store.created) == 1
    advice_verified(
        store, below_ladder(ladder), "cpu-a", FOUND.model_copy(update={"measured": Measured(error="it was wrong")})
    )
    run = store.runs[f"id-{store.created[-1]}"]
    assert run["status"] == "FAILED"
    assert run["start"].tags["laptime.error"] == "it was wrong"
    assert MEASURED not in {name for name, *_ in run["metrics"]}


def test_a_store_that_is_not_there_yet_or_does_not_answer_costs_no_advice(tmp_path) -> None:
    said: list[str] = []
    assert rule_history(f"sqlite:///{tmp_path / 'none.db'}", Outage(said.append)) == {}
    assert not said
    assert not (tmp_path / "none.db").exists()
    assert rule_history("http://127.0.0.1:9", Outage(said.append)) == {}
    assert rule_history("ftp://nowhere", Outage(said.append)) == {}
    assert [s.startswith("Advice is given without its rules' record: ") for s in said] == [True, True]
