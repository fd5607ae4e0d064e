"""Ranges that follow what a rule's past proposals brought of what it had said."""

from __future__ import annotations

import pytest
from advice_examples import cpu

from laptime.advice import to_markdown, to_text
from laptime.advice.judge import ask, judge, scale
from laptime.advice.rules import RULES
from laptime.compare.advising import history
from laptime.records.advice import Finding, RuleHistory

LOOP = cpu(optimizer_ms=40.0, passes=None)


def advised(past: RuleHistory, signals=LOOP):
    return judge(ask(RULES, signals), signals, {"optimizer": past})


def found(past: RuleHistory, signals=LOOP) -> Finding:
    return next(f for f in advised(past, signals).findings if f.id == "optimizer")


def brought(ratio: float, compared: int, **more) -> RuleHistory:
    return RuleHistory(tried=compared, faster=compared, ratio=ratio, compared=compared, **more)


def test_the_ratio_is_shrunk_by_a_prior_worth_four_proposals():
    assert scale(RuleHistory()) == 1.0
    assert scale(RuleHistory(tried=3, faster=3, error=0.1)) == 1.0  # of earlier versions
    assert scale(brought(1.3, 6)) == pytest.approx(1.3**0.6)
    assert scale(brought(1.3, 1)) == pytest.approx(1.3**0.2)
    assert scale(brought(0.7, 396)) == pytest.approx(0.7**0.99)
    assert scale(brought(9.0, 10_000)) == pytest.approx(2.0, rel=0.001)
    assert scale(brought(0.0, 10_000)) == pytest.approx(0.5, rel=0.001)


def test_a_range_is_scaled_and_the_rule_s_own_stays_beside():
    plain, learnt = found(RuleHistory()), found(brought(1.3, 6))
    assert plain.own_gain == plain.gain == learnt.own_gain
    assert learnt.gain == pytest.approx(tuple(1.3**0.6 * g for g in plain.gain))
    now = learnt.step_ms_now
    assert learnt.step_ms_expected == pytest.approx((now * (1 - learnt.gain[1]), now * (1 - learnt.gain[0])))
    assert learnt.evidence[:-1] == plain.evidence
    said = "the last 6 proposals of this rule brought 1.3 times what it said; the range is scaled by 1.17"
    assert learnt.evidence[-1] == said
    for text in (to_text(advised(brought(1.3, 6))), to_markdown(advised(brought(1.3, 6)))):
        assert f"- {said}" in text
    one = found(brought(0.5, 1, here=True)).evidence[-1]
    assert one.startswith("the last proposal of this rule on this machine brought 0.5 times what it said; ")
    assert one.endswith("the range is scaled by 0.87")
    assert found(brought(1.0, 9)).evidence == plain.evidence


def test_something_is_always_left_of_a_step():
    most = found(brought(3.0, 40), cpu(optimizer_ms=90.0, passes=None))
    assert most.gain[1] == 0.99
    assert most.step_ms_expected[0] == pytest.approx(1.0)
    assert most.own_gain == pytest.approx((0.585, 0.81))


def test_what_the_past_leaves_of_a_gain_decides_whether_it_is_said():
    small = cpu(optimizer_ms=6.0, passes=None)  # 3.9 % at the least
    assert found(RuleHistory(), small)
    held = next(w for w in advised(brought(0.4, 30), small).withheld if w.id == "optimizer")
    assert "under 3 %" in held.reason


def test_what_ceilings_leave_cuts_the_range_and_not_what_the_rule_said():
    near = found(brought(1.2, 12), cpu(optimizer_ms=30.0, floor_share=0.75, noise=0.0, passes=None))
    assert near.gain[1] == pytest.approx(0.25)
    assert near.own_gain == pytest.approx((0.195, 0.27))


def test_where_a_past_is_of_this_machine_alone_it_says_so():
    past = RuleHistory(tried=8, faster=7, error=0.12, here=True)
    assert "this rule was right 7 of 8 times on this machine, with a median error" in to_text(advised(past))
    assert history(past) == "faster in 7 of 8 runs on this machine, off by 12 % of the step in the middle"


def test_the_last_proposals_decide_where_there_were_hundreds():
    spoilt = RuleHistory(tried=400, faster=380, last=20, last_faster=0)
    mended = RuleHistory(tried=400, faster=20, last=20, last_faster=20)
    prior = found(RuleHistory()).confidence
    assert found(spoilt).confidence == pytest.approx(4 * prior / 24)
    assert found(mended).confidence == pytest.approx((4 * prior + 20) / 24)
    assert "this rule was right 380 of 400 times and 0 of the last 20" in to_text(advised(spoilt))
    assert history(mended) == "faster in 20 of 400 runs and in 20 of the last 20"


def test_advice_of_earlier_versions_still_reads():
    old = found(brought(1.3, 6)).model_dump(exclude={"own_gain"})
    old["history"] = {"tried": 8, "faster": 7, "error": 0.04}
    read = Finding.model_validate(old)
    assert read.own_gain is None
    assert (read.history.ratio, read.history.compared, read.history.here) == (None, 0, False)
